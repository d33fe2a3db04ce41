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
    """Written at the points; a line break is one."""
    hover: Sequence[str] = ()
    shift: float = 0.0
    """How far beside its category it stands, in widths of a category: each training seed has a place of its own."""
    mean: bool = False
    """A mean over training seeds: a bar across, so that the seeds' own marks stay the ones that are seen."""


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

    @property
    def categories(self) -> list[str]:
        """The names on the x axis, in their order; none where it has numbers."""
        return [*dict.fromkeys(x for series in self.series for x in series.x if isinstance(x, str)), *self.missing]


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
    bar: float | None = None
    """A share in 0–1, drawn as a bar under the text, in this colour."""
    colour: str = ""


@dataclass(frozen=True)
class Table:
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    swatches: tuple[str, ...] = ()
    """Colours of the rows' methods, where rows are methods."""
