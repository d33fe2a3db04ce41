"""Figures for the page: each panel as plotly's own JSON. Colours of ink and paper are the page's, set by its script."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from phylatent.reporting.harmless import in_plotly, pieces
from phylatent.reporting.marks import Figure, Guide, Panel, Series, Value
from phylatent.texts import shortened

ROOM = 1.16
"""How far the y axis goes above the highest mark, so that texts fit."""
LABEL = 0.1
"""Height of a line's label, as a share of the y axis."""
SHORT = 22
"""Characters of a name that stands upright, where names do not fit side by side."""
TICK, TITLE = 18, 60
"""Characters in a line under a mark, and in a line of an axis title."""


def panels(figure: Figure) -> list[dict[str, Any]]:
    return [_panel(panel) for panel in figure.panels]


def _panel(panel: Panel) -> dict[str, Any]:
    traces = [_trace(series, panel) for series in panel.series]
    traces += [_diagonal(panel, guide) for guide in panel.guides if guide.axis == "diagonal"]
    straight = [guide for guide in panel.guides if guide.axis != "diagonal"]
    layout: dict[str, Any] = {
        "xaxis": _x_axis(panel),
        "yaxis": _y_axis(panel),
        "shapes": [_line(guide) for guide in straight],
        "annotations": [_label(guide) for guide in straight] + _bar_texts(panel) + _missing(panel),
        "barmode": "stack" if panel.stacked else "group",
        "scattermode": "group" if panel.dodge else "overlay",
        "scattergap": 0.7,
    }
    if not panel.series:
        layout["annotations"] = [
            {"text": in_plotly(panel.reason, TITLE), "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}
        ]
        layout["xaxis"] = layout["yaxis"] = {"visible": False}
    short = [in_plotly(shortened(pieces(name)[-1], SHORT)) for name in panel.categories]
    return {"data": traces, "layout": layout, "short": short}


def _trace(series: Series, panel: Panel) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "bar" if series.kind == "bars" else "scatter",
        "name": in_plotly(series.label),
        "x": [_place(x, panel, series.shift) for x in series.x],
        "y": list(series.y),
        "cliponaxis": False,
        "hovertemplate": _hover(series, panel),
    }
    if series.hover:
        trace["customdata"] = [in_plotly(text, TITLE) for text in series.hover]
    if series.texts:
        trace["text"] = [_text(text) for text in series.texts]
    if series.low:
        ends = list(zip(series.y, series.low, series.high, strict=True))
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [_gap(high, y) for y, _, high in ends],
            "arrayminus": [_gap(y, low) for y, low, _ in ends],
            "color": "#7A808A" if series.kind == "bars" else series.colour,
            "thickness": 1.6,
            "width": 5,
        }
    style = {"bars": _bars, "line": _lines, "dots": _dots}[series.kind]
    return trace | style(series, panel)


def _dots(series: Series, panel: Panel) -> dict[str, Any]:
    marker: dict[str, Any] = {"color": series.colour, "symbol": series.symbol, "size": 6 if series.faint else 11}
    if series.mean:
        marker |= {"symbol": "line-ew-open", "size": 13, "line": {"width": 3}}
    if series.shift:
        marker |= {"size": 8, "line": {"width": 1, "color": "#FFFFFF"}}
    mode = "markers+text" if series.texts else "markers"
    lines = [guide.value for guide in panel.guides if guide.axis == "y"]
    # A line through a number would strike it out.
    struck = [y is not None and any(abs(y - line) < 0.03 * max(lines) for line in lines) for y in series.y]
    places = ["bottom right" if on_a_line else "middle right" for on_a_line in struck]
    return {"mode": mode, "marker": marker, "opacity": 0.45 if series.faint and not series.shift else 1, "textposition": places}


def _lines(series: Series, panel: Panel) -> dict[str, Any]:
    line = {"color": series.colour, "dash": series.dash, "width": 1 if series.faint else 2}
    marked = bool(series.symbol) and len(series.x) < 30
    marker = {"color": series.colour, "symbol": series.symbol or "circle", "size": 7}
    return {
        "mode": "lines+markers" if marked else "lines",
        "line": line,
        "marker": marker,
        "opacity": 0.4 if series.faint else 1,
    }


def _bars(series: Series, panel: Panel) -> dict[str, Any]:
    marker: dict[str, Any] = {"color": series.colour, "line": {"width": 0}}
    if series.hatch:
        marker["pattern"] = {
            "shape": series.hatch,
            "size": 7,
            "solidity": 0.25,
            "fgcolor": "rgba(0,0,0,0.55)",
            "fillmode": "overlay",
        }
    if panel.stacked and series.texts:
        return {"marker": marker, "width": 0.7, "textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
    # A text of plotly's own would sit on the error bar; `_bar_texts` writes it above the interval.
    return {"marker": marker, "width": 0.55, "textposition": "none"}


def _hover(series: Series, panel: Panel) -> str:
    y = "%{y:.1%}" if panel.percent else "%{y:.4g}"
    note = "<br>%{customdata}" if series.hover else ""
    if _shifted(panel):  # there the axis has places, not names
        return f"{in_plotly(series.label, TITLE)}: {y}{note}<extra></extra>"
    x = "%{x}" if series.x and isinstance(series.x[0], str) else "%{x:.4g}"
    return f"{in_plotly(series.label, TITLE)}<br>{x}: {y}{note}<extra></extra>"


def _x_axis(panel: Panel) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": in_plotly(panel.x_label, TITLE)}, "automargin": True}
    axis |= {"autotickangles": [0, 90]}  # upright where names would not fit side by side
    if panel.log_x:
        return axis | {"type": "log", "dtick": 1, "tickformat": "~g"}
    named = panel.categories
    if named:
        margin = 0.6 if len(named) > 1 else 0.9
        labels = [_category(x) for x in named]
        axis |= {"range": [-margin, len(named) - 1 + margin + 0.15], "showgrid": False, "zeroline": False}
        if _shifted(panel):
            return axis | {"type": "linear", "tickvals": list(range(len(named))), "ticktext": labels}
        axis |= {"type": "category", "categoryorder": "array", "categoryarray": labels}
    return axis


def _missing(panel: Panel) -> list[dict[str, Any]]:
    """A mark that is not there says so in its place."""
    place = {"y": 0.04, "yref": "paper", "yanchor": "bottom", "textangle": -90, "showarrow": False}
    return [{"text": "not measured", "x": _place(name, panel), **place} for name in panel.missing]


def _y_axis(panel: Panel) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": in_plotly(panel.y_label, TITLE)}, "automargin": True}
    if panel.log_y:
        marks: list[Value | None] = [y for series in panel.series for y in series.y]
        marks += [guide.value for guide in panel.guides if guide.axis == "y"]
        if any(guide.axis == "diagonal" for guide in panel.guides):  # which goes as far as either axis
            marks += [x for series in panel.series for x in series.x]
        values = [value for value in marks if isinstance(value, int | float) and value > 0]
        return axis | {"type": "log", "tickformat": "~g", "tickvals": log_ticks(min(values), max(values)) if values else []}
    if panel.percent:
        axis["tickformat"] = ".0%" if top(panel) > 0.08 else ".1%"
    if panel.y_from_zero:
        axis["range"] = [bottom(panel), top(panel)]
    return axis


def log_ticks(low: float, high: float) -> list[float]:
    """As many as can be read without touching: powers of ten, with 3 between them, with 2 and 5, or all digits."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    apart = math.log10(high / low) / 9  # of an axis that is some ten lines high
    ticks: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        found = [float(f"{digit}e{power}") for power in powers for digit in digits]
        inside = [value for value in found if low * 0.98 <= value <= high * 1.02]
        if len(inside) > len(ticks) and all(math.log10(b / a) >= apart for a, b in pairwise(inside)):
            ticks = inside
        elif not ticks:  # more powers of ten than there is room for
            ticks = inside[:: -(-len(inside) // 7)] if inside else []
    return ticks


def top(panel: Panel) -> float:
    """Where the y axis ends: above the highest mark, interval end and guide."""
    if panel.stacked:
        width = max((len(series.y) for series in panel.series), default=0)
        highest = max((sum(series.y[at] or 0 for series in panel.series) for at in range(width)), default=0.0)
    else:
        marks = [value for series in panel.series for value in (*series.y, *series.high) if value is not None]
        highest = max((*marks, *(guide.value for guide in panel.guides if guide.axis == "y")), default=0.0)
    texts = any(series.texts and series.kind == "bars" for series in panel.series) and not panel.stacked
    return (highest or 0.01) * (ROOM + 0.16 if texts else 1.04 if not any(s.texts for s in panel.series) else 1.1)


def bottom(panel: Panel) -> float:
    """A little below zero, so that a mark at zero is whole, and a label there; bars and staircases stand on zero."""
    marked = any(series.kind == "dots" or (series.kind == "line" and series.low) for series in panel.series)
    under = any(guide.below and guide.value < LABEL * top(panel) for guide in panel.guides)
    return -LABEL * top(panel) if under else -0.05 * top(panel) if marked else 0.0


def _line(guide: Guide) -> dict[str, Any]:
    across, along = ("x", "y") if guide.axis == "y" else ("y", "x")
    ends = {f"{across}ref": "paper", f"{across}0": 0, f"{across}1": 1, f"{along}0": guide.value, f"{along}1": guide.value}
    return {"type": "line", "layer": "above", "line": {"width": 1.3, "dash": guide.dash}, **ends}


def _label(guide: Guide) -> dict[str, Any]:
    place = {"x": 0, "xref": "paper", "y": guide.value, "xanchor": "left", "yanchor": "top" if guide.below else "bottom"}
    return {"text": f"{in_plotly(guide.label)} {100 * guide.value:.0f} %", "showarrow": False, "font": {"size": 11}, **place}


def _diagonal(panel: Panel, guide: Guide) -> dict[str, Any]:
    ends = diagonal(panel)
    line = {"color": "#7A808A", "dash": guide.dash, "width": 1.3}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": ends,
        "y": ends,
        "line": line,
        "hoverinfo": "skip",
        "name": in_plotly(guide.label),
    }


def diagonal(panel: Panel) -> list[float]:
    """Ends of the line x = y across the data."""
    values = [v for s in panel.series for v in (*s.x, *s.y) if isinstance(v, (int, float)) and math.isfinite(v)]
    return [min(values), max(values)]


def _gap(high: float | None, low: float | None) -> float:
    return 0.0 if high is None or low is None else max(0.0, high - low)


def _shifted(panel: Panel) -> bool:
    """Whether marks stand beside their categories: then these are numbered places with names, for plotly."""
    return any(series.shift for series in panel.series)


def _place(x: Value, panel: Panel, shift: float = 0.0) -> Value:
    return panel.categories.index(x) + shift if isinstance(x, str) and _shifted(panel) else _category(x)


def _category(x: Value) -> Value:
    return "<br>".join(in_plotly(piece, TICK) for piece in pieces(x)) if isinstance(x, str) else x


def _text(text: str) -> str:
    """What stands at a mark: lines of our own."""
    return "<br>".join(in_plotly(line) for line in text.split("\n"))


def _bar_texts(panel: Panel) -> list[dict[str, Any]]:
    """Texts above bars and their intervals, as annotations."""
    found: list[dict[str, Any]] = []
    for series in () if panel.stacked else panel.series:
        if series.kind == "bars" and series.texts:
            for at, text in enumerate(series.texts):
                marks = [value for other in panel.series if other.shift and other.x[0] == series.x[at] for value in other.y]
                y = max(value for value in (series.y[at], *(series.high[at : at + 1]), *marks) if value is not None)
                place = {"x": _place(series.x[at], panel), "y": y, "yanchor": "bottom", "showarrow": False}
                found.append({"text": _text(text), **place})
    return found
