"""The same figures for a paper: PNG and PDF, drawn with matplotlib from the same data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, PercentFormatter

from phylatent.diagnostics import DIAGNOSTICS
from phylatent.diagnostics.diagnostic import ScatterAxes
from phylatent.files import atomic
from phylatent.reporting.harmless import in_figure, pieces
from phylatent.reporting.interactive import bottom, diagonal, top
from phylatent.reporting.marks import Figure, Panel, Series, Value
from phylatent.reporting.scatter import FAILED, Box, Cloud, Scatter
from phylatent.reporting.strips import Filmstrips
from phylatent.texts import shortened

MARKERS = {
    "circle": "o", "diamond": "D", "square": "s", "triangle-up": "^",
    "cross": "P", "triangle-down": "v", "star": "*", "hexagon": "h", "": "",
}  # fmt: skip
DASHES: dict[str, Any] = {"solid": "-", "dash": "--", "dot": ":", "": "-", "faint": "-"}
HATCHES = {"": "", "/": "///", "x": "xxx", ".": "..."}
INK = "#5A6068"
WIDTH, COLUMNS = 3.1, 4
TICK, TITLE, LINE = 18, 46, 130
"""Characters in a line: under a mark, above a panel, across a whole figure."""


def render_figure(figure: Figure, directory: Path) -> list[str]:
    count = len(figure.panels)
    columns = min(COLUMNS, count)
    rows = -(-count // columns)
    canvas = Canvas(figsize=(WIDTH * columns, 2.7 * rows + 0.4), layout="constrained")
    for axes, panel in zip(np.ravel(canvas.subplots(rows, columns, squeeze=False)), figure.panels, strict=False):
        _panel(axes, panel)
    for axes in canvas.axes[count:]:
        axes.set_axis_off()
    if figure.keys:
        handles = [
            Line2D([], [], color=key.colour, marker=MARKERS[key.symbol], linestyle=DASHES[key.dash] if key.dash else "")
            for key in figure.keys
        ]
        labels = [in_figure(shortened(key.label, LINE)) for key in figure.keys]
        side_by_side = max(1, min(6, columns * TITLE // max(map(len, labels))))
        canvas.legend(handles, labels, loc="outside lower center", ncols=side_by_side, frameon=False, fontsize=8)
    return _save(canvas, directory, figure.name)


def _panel(axes: Axes, panel: Panel) -> None:
    axes.set_title(in_figure(panel.title, TITLE), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    if not panel.series:
        said = in_figure(panel.reason, TITLE)
        axes.text(0.5, 0.5, said, ha="center", va="center", transform=axes.transAxes, color=INK, wrap=True)
        axes.set_axis_off()
        return
    axes.set_xlabel(in_figure(panel.x_label, TITLE), fontsize=8)
    axes.set_ylabel(in_figure(panel.y_label, TITLE), fontsize=8)
    if panel.log_x:
        axes.set_xscale("log")
    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    below: dict[Any, float] = {}
    for name in panel.categories:
        axes.plot([_place(name)], [np.nan], linestyle="")  # in their order, before a mark stands beside one of them
    for at, series in enumerate(panel.series):
        beside = 0.16 * (at - (len(panel.series) - 1) / 2) if panel.dodge else 0.0
        first = panel.categories.index(str(series.x[0])) if series.shift else 0
        _series(axes, series, below if panel.stacked else None, beside or (first + series.shift if series.shift else 0.0))
    if panel.dodge:
        axes.set_xticks(range(len(panel.series[0].x)), [_place(x) for x in panel.series[0].x])
    for guide in panel.guides:
        if guide.axis == "diagonal":
            axes.plot(diagonal(panel), diagonal(panel), color=INK, linestyle=DASHES[guide.dash], linewidth=1)
            continue
        axes.axhline(guide.value, color=INK, linestyle=DASHES[guide.dash], linewidth=1, zorder=0)
        label, side = f"{in_figure(guide.label)} {100 * guide.value:.0f} %", "top" if guide.below else "bottom"
        axes.text(0.01, guide.value, label, transform=axes.get_yaxis_transform(), fontsize=6.5, color=INK, va=side)
    if panel.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if top(panel) > 0.08 else 1))
    if panel.y_from_zero and not panel.log_y:
        axes.set_ylim(bottom(panel), top(panel))
    if isinstance(panel.series[0].x[0], str) and not panel.dodge:
        axes.set_xlim(-0.6, len(panel.categories) - 0.3)
    for name in panel.missing:
        axes.plot([_place(name)], [bottom(panel)], linestyle="")
        style: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 7, "color": INK}
        axes.annotate("not measured", (_place(name), 0.04), xycoords=("data", "axes fraction"), **style)


def _series(axes: Axes, series: Series, below: dict[Any, float] | None, shift: float) -> None:
    x: Any = [at + shift for at in range(len(series.x))] if shift else [_place(x) for x in series.x]
    y = np.array([np.nan if value is None else value for value in series.y], dtype=float)
    errors = None
    if series.low:
        ends = [[np.nan if value is None else value for value in side] for side in (series.low, series.high)]
        errors = np.nan_to_num(np.maximum(0, np.array([y - ends[0], ends[1] - y], dtype=float)))
    alpha = 0.4 if series.faint and not series.shift else 1.0
    if series.kind == "bars":
        bottom = [0.0 if below is None else below.get(name, 0.0) for name in x]
        axes.bar(x, y, 0.55, bottom=bottom, color=series.colour, hatch=HATCHES[series.hatch], yerr=errors)
        if below is not None:
            _stacked_texts(axes, series, x, bottom, y.tolist())
            below |= {name: base + height for name, base, height in zip(x, bottom, y.tolist(), strict=True)}
    elif series.kind == "line":
        marker = MARKERS[series.symbol] if len(x) < 30 else ""
        axes.errorbar(
            x, y, errors, color=series.colour, marker=marker, markersize=4, alpha=alpha, linestyle=DASHES[series.dash],
            linewidth=0.8 if series.faint else 1.6, capsize=2,
        )  # fmt: skip
    else:
        size = 3.5 if series.faint else 8 if series.mean else 6
        axes.errorbar(
            x,
            y,
            errors,
            color=series.colour,
            marker="_" if series.mean else MARKERS[series.symbol],
            markersize=size,
            markeredgewidth=0.5 if series.shift else 2 if series.mean else None,
            markeredgecolor="white" if series.shift else None,
            alpha=alpha,
            linestyle="",
            capsize=3,
        )
    for at, text in enumerate(series.texts if below is None else ()):
        high = series.high[at] if series.high and series.kind == "bars" else None
        place: dict[str, Any] = {"ha": "center", "va": "bottom"} if series.kind == "bars" else {"ha": "left", "va": "center"}
        offset = (0, 2) if series.kind == "bars" else (6, 0)
        point = (x[at], y[at] if high is None else high)
        lines = "\n".join(in_figure(line) for line in text.split("\n"))
        axes.annotate(lines, point, xytext=offset, textcoords="offset points", fontsize=7, **place)


def _stacked_texts(axes: Axes, series: Series, x: Any, bottom: list[float], heights: list[float]) -> None:
    """In the middle of each part of a bar."""
    for name, base, height, text in zip(x, bottom, heights, series.texts, strict=False):
        axes.text(name, base + height / 2, in_figure(text), ha="center", va="center", fontsize=6)


def _place(x: Value) -> Any:
    """Where a mark stands on the x axis: a number, or a name as it is written there."""
    return "\n".join(in_figure(piece, TICK) for piece in pieces(x)) if isinstance(x, str) else x


def render_scatter(
    scatter: Scatter, shown: Mapping[str, ScatterAxes], boxes: Mapping[str, Box], directory: Path, name: str
) -> list[str]:
    columns = len(shown)
    canvas = Canvas(figsize=(4 * columns, 4.4))
    canvas.subplots_adjust(left=0.01, right=0.97, bottom=0.03, top=0.88, wspace=0.12)
    canvas.suptitle(in_figure(scatter.title, LINE), fontsize=10)
    for at, (panel, cloud) in enumerate(scatter.clouds.items(), start=1):
        axes: Any = canvas.add_subplot(1, columns, at, projection="3d")
        axes.set_title(f"({ascii_lowercase[at - 1]}) {DIAGNOSTICS[panel].title}", fontsize=9)
        if cloud is None:
            axes.set_axis_off()
            reason = in_figure(scatter.reason, TITLE)
            axes.text2D(0.5, 0.5, reason, ha="center", va="center", transform=axes.transAxes, wrap=True, fontsize=8)
            continue
        _cloud(axes, cloud, shown[panel], boxes[panel])
    return _save(canvas, directory, name)


def _cloud(axes: Any, cloud: Cloud, shown: ScatterAxes, box: Box) -> None:
    scale: Callable[[Any], Any] = np.log10 if shown.log else (lambda value: value)
    z, limits = scale(cloud.z), (box[0], box[1], tuple(float(scale(end)) for end in box[2]))
    for failed, colour, marker, size in ((False, shown.colour, "o", 1.5), (True, FAILED, "x", 9)):
        mask = cloud.failed == failed
        axes.scatter(cloud.x[mask], cloud.y[mask], z[mask], c=colour, marker=marker, s=size, linewidths=0.6, rasterized=True)
    for axis, value in cloud.planes:
        at = "xyz".index(axis)
        u, v = np.meshgrid(*(limits[i] for i in range(3) if i != at))
        corners = [u, v]
        corners.insert(at, np.full_like(u, value))
        axes.plot_surface(*corners, color=INK, alpha=0.18)
    for setter, limit in zip((axes.set_xlim, axes.set_ylim, axes.set_zlim), limits, strict=True):
        setter(*limit)
    x_label, y_label, z_label = shown.labels
    axes.set_xlabel(x_label, fontsize=8)
    axes.set_ylabel(y_label, fontsize=8)
    axes.set_zlabel(z_label.replace(", log", ", log10"), fontsize=8)
    axes.tick_params(labelsize=7)
    axes.locator_params(nbins=5)
    axes.set_box_aspect(None, zoom=0.88)


def render_strips(strips: Filmstrips, directory: Path) -> list[str]:
    """fig:qualitative_rollout: every model on the same episodes."""
    rows = [(episode, strip) for episode in strips.episodes for strip in episode.strips]
    height, width = rows[0][1].pixels.shape[:2]
    canvas = Canvas(figsize=(11, 11 * height / width * len(rows) * 1.2))
    canvas.subplots_adjust(left=0.01, right=0.99, bottom=0.005, top=0.985, hspace=0.16)
    for axes, (episode, strip) in zip(np.ravel(canvas.subplots(len(rows), 1, squeeze=False)), rows, strict=True):
        axes.imshow(strip.pixels)
        axes.set_axis_off()
        axes.set_title(in_figure(f"{episode.title} · {strip.title}: {strip.badge}"), fontsize=7, loc="left")
    return _save(canvas, directory, "rollouts")


def _save(canvas: Canvas, directory: Path, name: str) -> list[str]:
    written = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # a box stands for it, and that says enough
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")  # once is enough: arranging costs more than drawing
        for kind in ("png", "pdf"):
            path = directory / f"{name}.{kind}"
            # Without a date the same records give the same file.
            metadata = {"CreationDate": None} if kind == "pdf" else None
            with atomic(path) as temporary:
                canvas.savefig(temporary, format=kind, dpi=160, metadata=metadata)
            written.append(path.name)
    return written
