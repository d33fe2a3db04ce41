"""A page that says what runs have shown, made from their records alone. No torch here."""

from phylatent.reporting.page import make_report

__all__ = ["make_report"]
