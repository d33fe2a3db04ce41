"""The read-out of every physical dimension: how well a linear map finds it in the latents, and how far it is off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from phylatent.reporting.curves import CIRCLES, ERROR, READOUT
from phylatent.reporting.inputs import Run
from phylatent.reporting.marks import Cell, Table
from phylatent.reporting.methods import Method, dig, number
from phylatent.reporting.words import each, over_seeds

NONE = Cell("–")


def readout_table(methods: Sequence[Method]) -> Table | None:
    """A row for each dimension, a column for each method; nothing where no run logged a read-out."""
    ends = {method.label: [_end(run) for run in method.runs] for method in methods}
    logged = [name for found in ends.values() for end in found for name in end if name.startswith(READOUT)]
    names = list(dict.fromkeys(name.removeprefix(READOUT) for name in logged if not name.startswith(CIRCLES)))
    if not names:
        return None
    rows = [(Cell(name), *(_cell(method, ends[method.label], name) for method in methods)) for name in names]
    head = ("Physical dimension", *(f"{method.label}: R² ↑" for method in methods))
    return Table("Read-out of each physical dimension at the end of training, on validation episodes", head, tuple(rows))


def _end(run: Run) -> Mapping[str, float]:
    """What the last validation found: as the result says, else as the table does."""
    said = dig(run.result, "validation") or {name: values[-1] for name, values in (run.validation or {}).items()}
    return {name: value for name, found in said.items() if (value := number(found)) is not None and math.isfinite(value)}


def _cell(method: Method, ends: Sequence[Mapping[str, float]], name: str) -> Cell:
    def of(kind: str) -> list[float]:
        return [end[kind] for end in ends if kind in end]

    found = of(f"{READOUT}{name}")
    if not found:
        return NONE
    errors, circles = of(f"{ERROR}{name}"), [(part, of(f"{READOUT}{part} {name}")) for part in ("sin", "cos")]
    notes = [each(found, _score)] if len(found) > 1 else []
    notes += [f"off by {over_seeds(errors, _error).text}"] if errors else []
    notes += [f"R² of its {part} {over_seeds(values, _score).text}" for part, values in circles if values]
    cell = over_seeds(found, _score)
    share = min(1.0, max(0.0, sum(found) / len(found)))
    return replace(cell, note=" · ".join(notes), bar=share, colour=method.colour)


def _score(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def _error(value: float) -> str:
    return f"{value:.3g}"
