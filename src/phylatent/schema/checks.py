"""What settings are held to, and the sentence when they are not."""

from __future__ import annotations

import math
from typing import Any

from phylatent.errors import UserError


def check(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def at_least(section: str, settings: Any, lowest: float, *names: str) -> None:
    """Every named setting is a finite number, not below `lowest`; None is for settings that may be left open."""
    for name in names:
        value = getattr(settings, name)
        good = value is None or (math.isfinite(value) and value >= lowest)
        check(good, f"{section}.{name} is {value}; it must be at least {lowest}")


def choices(name: str, values: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    check(len(values) > 0, f"{name} is empty; choose among {', '.join(allowed)}")
    for value in values:
        check(value in allowed, f"{name} holds {value!r}; it must be among {', '.join(allowed)}")


LARGEST = 2**63
"""What a seed must stay below, so that every file and generator can hold it."""


def seed(section: str, value: int) -> None:
    check(0 <= value < LARGEST, f"{section}seed is {value}; it must be at least 0, and fit 63 bits")


def whole(name: str, values: tuple[int, ...], lowest: int) -> None:
    check(len(values) > 0, f"{name} is empty")
    for value in values:
        check(lowest <= value < LARGEST, f"{name} holds {value}; it must be at least {lowest}, and fit 63 bits")
    check(len(set(values)) == len(values), f"{name} holds a value twice")


def as_tuples(settings: Any, *names: str) -> None:
    """OmegaConf 2.3 hands over lists where a setting is declared as a tuple."""
    for name in names:
        object.__setattr__(settings, name, tuple(getattr(settings, name)))
