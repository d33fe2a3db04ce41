"""The sides of the episodes' split, by the names that settings, records and pages use."""

from __future__ import annotations

from phylatent.schema.checks import check

TEST, VALIDATION = SPLITS = ("test", "validation")
HELD_OUT = "held-out"
"""The one side that a two-way split holds out."""


def split_note(name: str) -> str | None:
    """What a reader must know about numbers from this side of a split."""
    if name == TEST:
        return None
    way = "two-way split: " if name == HELD_OUT else ""
    return f"{way}settings may have been chosen on these episodes"


def check_split(section: str, name: str) -> None:
    check(name in SPLITS, f"{section}.split is {name!r}; it must be one of {', '.join(SPLITS)}")
