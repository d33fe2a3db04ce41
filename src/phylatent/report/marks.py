"""A figure as data: what is drawn, before anyone decides how. The page and the paper's files are drawn from the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Value = float | str | None


@dataclass(frozen=True)
class Series:
    label: str
    colour: str
    x: Sequence[Value]
    y: Sequence[float | None]
    kind: str = "dots"
    """dots, line, or bars."""
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    """Ends of the intervals."""
    symbol: str = "circle"
    dash: str = "solid"
    """solid, dash, or dot."""
    faint: bool = False
    hatch: str = ""
    texts: Sequence[str] = ()
    """Written at the points."""
    hover: Sequence[str] = ()


@dataclass(frozen=True)
class Guide:
    """A line across the panel: a floor, a ceiling, chance. `x`, `y`, or the `diagonal`."""

    label: str
    value: float = 0.0
    axis: str = "y"
    dash: str = "dash"
    below: bool = False
    """Whether its label stands under the line: another line is close above."""


@dataclass(frozen=True)
class Panel:
    title: str
    series: tuple[Series, ...] = ()
    guides: tuple[Guide, ...] = ()
    x_label: str = ""
    y_label: str = ""
    percent: bool = False
    """y is a share, written in percent."""
    stacked: bool = False
    log_x: bool = False
    log_y: bool = False
    y_from_zero: bool = False
    dodge: bool = False
    """Series share their categories: draw them side by side."""
    missing: tuple[str, ...] = ()
    """Categories that belong here and were not measured; the panel names them."""
    reason: str = "not measured"
    """What the panel says when it has no series."""


@dataclass(frozen=True)
class Key:
    """An entry of the legend under a figure."""

    label: str
    colour: str
    symbol: str = "circle"
    dash: str = ""


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    panels: tuple[Panel, ...]
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Cell:
    text: str
    note: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Table:
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    swatches: tuple[str, ...] = ()
    """Colours of the rows' methods, where rows are methods."""
