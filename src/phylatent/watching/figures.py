"""The curves of runs side by side, drawn as the report draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from phylatent.diagnostics import DIAGNOSTICS
from phylatent.reporting.curves import curves, share_curves
from phylatent.reporting.diagnostics import keys
from phylatent.reporting.inputs import Run
from phylatent.reporting.interactive import panels
from phylatent.reporting.marks import Figure, Panel, Series
from phylatent.reporting.methods import FIXED, OTHERS, SYMBOLS, Method
from phylatent.texts import printable
from phylatent.watching.state import Columns, Snapshot

DIAGNOSED = "diagnose/"
COLOURS = (FIXED["phylatent"], FIXED["lewm"], *OTHERS)
SPEED = {"clips_per_second": "Clips a second", "lr": "Learning rate"}


def figures(snapshots: Sequence[Snapshot]) -> list[dict[str, Any]]:
    """Every figure as the page's script takes it: a title, the runs' keys, and panels that are plotly's own JSON."""
    methods = [_method(snapshot, at) for at, snapshot in enumerate(snapshots)]
    made = [curves([_without_rates(method) for method in methods]), share_curves(methods), _rates(methods), _speed(methods)]
    return [_plain(figure) for figure in made if figure is not None and any(panel.series for panel in figure.panels)]


def colour_of(at: int) -> str:
    return COLOURS[at % len(COLOURS)]


def _plain(figure: Figure) -> dict[str, Any]:
    drawn = [
        {"title": printable(panel.title), **one}
        for panel, one in zip(figure.panels, panels(figure), strict=True)
        if panel.series
    ]
    return {
        "name": figure.name,
        "title": printable(figure.title),
        "keys": [asdict(key) | {"label": printable(key.label)} for key in figure.keys],
        "panels": drawn,
    }


def _method(snapshot: Snapshot, at: int) -> Method:
    """A run under its own name: here nothing is averaged."""
    run = Run(
        directory=Path(snapshot.name),
        variant=snapshot.name,
        stop_gradient=True,
        task=None,
        preset=None,
        seed=None,
        train=snapshot.train,
        validation=snapshot.validation,
    )
    return Method(snapshot.name, colour_of(at), SYMBOLS[at % len(SYMBOLS)], (run,))


def _without_rates(method: Method) -> Method:
    """A rate is no loss: it has a figure of its own, and 0 is what it should be."""
    (run,) = method.runs
    table = {name: values for name, values in (run.validation or {}).items() if not name.startswith(DIAGNOSED)}
    return replace(method, runs=(replace(run, validation=table or None),))


def _rates(methods: Sequence[Method]) -> Figure:
    """What `diagnose.every` measured while it trained."""
    logged = dict.fromkeys(name for m in methods for name in m.runs[0].validation or {} if name.startswith(DIAGNOSED))
    made = []
    for column in logged:
        name = column.removeprefix(DIAGNOSED)
        title = DIAGNOSTICS[name].title if name in DIAGNOSTICS else name
        lines = tuple(line for method in methods for line in _line(method, method.runs[0].validation, column, title))
        made.append(Panel(f"{title} ↓", lines, x_label="step", percent=True, y_from_zero=True))
    return Figure("rates", "Failure rates, from a small diagnosis while it trains", tuple(made), keys(methods))


def _speed(methods: Sequence[Method]) -> Figure:
    made = [
        Panel(title, tuple(line for m in methods for line in _line(m, m.runs[0].train, column, title)), x_label="step")
        for column, title in SPEED.items()
    ]
    return Figure("speed", "Speed", tuple(made), keys(methods))


def _line(method: Method, table: Columns | None, column: str, title: str) -> list[Series]:
    if not table or column not in table:
        return []
    known = [(x, y) for x, y in zip(table["step"], table[column], strict=True) if math.isfinite(y)]
    if not known:
        return []
    xs, ys = zip(*known, strict=True)
    return [Series(f"{method.label}, {title}", method.colour, xs, ys, "line", symbol=method.symbol)]
