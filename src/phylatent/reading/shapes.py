"""What a value that was read from a file should look like, and the words for one that does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

LARGEST = 2**63


@dataclass(frozen=True)
class Rule:
    """A shape for `misfit` that has words for itself."""

    expected: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Maybe:
    """A shape for `misfit`, or null."""

    shape: Any


def is_whole(value: Any, lowest: int = -LARGEST) -> bool:
    """Whether it is a whole number of a size that one counts with; True is none."""
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value < LARGEST


def is_real(value: Any) -> bool:
    return is_whole(value) or (isinstance(value, float) and math.isfinite(value))


WHOLE = Rule("a whole number", is_whole)
COUNT = Rule("a whole number from 0 on", lambda value: is_whole(value, 0))
REAL = Rule("a finite number", is_real)
TYPES = {bool: "true or false", str: "a text", int: "a whole number", float: "a number", dict: "an object", list: "a list"}


def misfit(value: Any, shape: Any, where: str = "") -> str | None:
    """What is wrong with a value that should have this shape, in words; None where nothing is.

    A shape is a type, a `Rule`, a `Maybe`, `[shape]` for a list of such, or `{"name": shape}` for an object: a name with a `?`
    at its end may be missing, "*" stands for all other names, and without it other names may hold anything.
    """
    if isinstance(shape, Maybe):
        return None if value is None else misfit(value, shape.shape, where)
    if isinstance(shape, Rule):
        return None if shape.holds(value) else _unlike(value, shape.expected, where)
    if isinstance(shape, dict):
        return _misfit_object(value, shape, where) if isinstance(value, Mapping) else _unlike(value, "an object", where)
    if isinstance(shape, list):
        if not isinstance(value, (list, tuple)):
            return _unlike(value, "a list", where)
        found = (misfit(one, shape[0], f"{where}[{at}]") for at, one in enumerate(value))
        return next((wrong for wrong in found if wrong), None)
    right = shape is object or (isinstance(value, shape) and (shape is bool or not isinstance(value, bool)))
    return None if right else _unlike(value, TYPES.get(shape, f"a {shape.__name__}"), where)


def _misfit_object(value: Mapping[Any, Any], shape: Mapping[str, Any], where: str) -> str | None:
    known = set()
    for name, inner in shape.items():
        key = name.removesuffix("?")
        known.add(key)
        if name == "*":
            continue
        if key not in value:
            if name == key:
                return f"{where or 'it'} has no {key}"
        elif wrong := misfit(value[key], inner, f"{where}.{key}" if where else key):
            return wrong
    rest = ((key, one) for key, one in value.items() if key not in known)
    found = (misfit(one, shape.get("*", object), f"{where}.{key}" if where else str(key)) for key, one in rest)
    return next((wrong for wrong in found if wrong), None)


def _unlike(value: Any, expected: str, where: str) -> str:
    return f"{where or 'it'} is {shown(value)}, expected {expected}"


def shown(value: Any) -> str:
    """A value in a sentence: as JSON has it where it is short, else its type."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and not is_whole(value):
        return "a huge number"
    if not isinstance(value, (str, int, float)):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]}…"
