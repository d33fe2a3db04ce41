"""Training curves: every objective, its share of the gradient, the effective rank and the read-out, as training logged them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from phylatent.report.diagnostics import colours, keys
from phylatent.report.inputs import Columns, Run
from phylatent.report.marks import Cell, Figure, Key, Panel, Series, Table
from phylatent.report.methods import Method, dig, number
from phylatent.report.words import MISSING, plain

OBJECTIVES = {
    "loss": "Sum of the method's own objectives",
    "pred": "Prediction",
    "sigreg": "SIGReg",
    "svic": "SVIC",
    "psg": "PSG",
    "fra": "FRA",
    "casc": "CASC",
    "ld": "LD",
    "contrast": "SD-JEPA, triplet",
    "covariance": "PLDM, covariance",
    "inverse": "SMWM, inverse dynamics",
    "rollout": "Rollout, open loop over the clip",
    "smoothness": "PLDM, smoothness",
    "subspaces": "Sub-JEPA, SIGReg in subspaces",
    "variance": "PLDM, variance over the batch",
    "variance_time": "PLDM, variance over time",
}
RANK, READOUT, ERROR = "effective_rank", "r2/", "error/"
SHARE, WEIGHT = "share/", "weight/"
PLACES = {"z": ("Z", "solid"), "zhat": ("Ẑ", "dash")}
"""Where a gradient is measured, as it is logged: the symbol, and how its line is drawn."""
CIRCLES = (f"{READOUT}sin ", f"{READOUT}cos ")
"""An angle's own R² is in the mean already."""
ASIDE = {"step", "lr", "clips_per_second", RANK}
BESIDE = (READOUT, ERROR, SHARE, WEIGHT)
GREY = "#7A808A"


def curves(methods: Sequence[Method]) -> Figure:
    runs = [(method, run) for method in methods for run in method.runs]
    logged = [name for _, run in runs for table in (run.train, run.validation) for name in table or {}]
    known = {*ASIDE, *OBJECTIVES}
    extra = [name for name in dict.fromkeys(logged) if name not in known and not name.startswith(BESIDE)]
    panels = []
    for name in [*OBJECTIVES, *extra]:
        if name in logged:
            series = [s for method, run in runs for s in _term(method, run, name)]
            panels.append(Panel(OBJECTIVES.get(name, name), tuple(series), x_label="step", log_y=_positive(series)))
    rank = tuple(s for method, run in runs for s in _line(method, run, run.validation, RANK, _column(run.validation, RANK)))
    readout = tuple(s for method, run in runs for s in _line(method, run, run.validation, "R²", mean_readout(run.validation)))
    panels.append(Panel("Effective rank of validation latents", rank, x_label="step", y_from_zero=True))
    panels.append(Panel("Read-out R², mean of dimensions", readout, x_label="step"))
    sides = (Key("validation", GREY, "circle", "solid"), Key("training batch", GREY, "", "faint"))
    return Figure("training", "Training curves of every run", tuple(panels), (*keys(methods), *sides))


def share_curves(methods: Sequence[Method]) -> Figure | None:
    """Each objective's part of the gradient over the steps; nothing where no run logged it."""
    runs = [(method, run) for method in methods for run in method.runs]
    panels = []
    for term in _shared_terms(methods):
        lines = [
            replace(line, dash=dash)
            for method, run in runs
            for place, (symbol, dash) in PLACES.items()
            for line in _line(method, run, run.validation, f"at {symbol}", _column(run.validation, f"{SHARE}{place}/{term}"))
            if any(line.y)  # an objective that only shapes the encoder is nothing at Ẑ
        ]
        panels.append(
            Panel(OBJECTIVES.get(term, term), tuple(lines), x_label="step", percent=True, reason="inert: 0 throughout")
        )
    places = tuple(Key(f"at {symbol}", GREY, "circle", dash) for symbol, dash in PLACES.values())
    return (
        Figure("shares", "Share of the gradient of every objective", tuple(panels), (*keys(methods), *places))
        if panels
        else None
    )


def share_table(methods: Sequence[Method]) -> Table | None:
    """The last shares of every run, with the weight that led to them where training chose it."""
    terms = _shared_terms(methods)
    rows, swatches = [], []
    for method, colour in zip(methods, colours(methods), strict=True):
        for run in method.runs:
            rows.append((Cell(method.title(run)), *(_share_cell(run, term) for term in terms)))
            swatches.append(colour)
    head = ("Run", *(OBJECTIVES.get(term, term) for term in terms))
    return Table("Share of the gradient at the end, at Z / at Ẑ", head, tuple(rows), tuple(swatches)) if terms else None


def _shared_terms(methods: Sequence[Method]) -> list[str]:
    """In the order of the loss curves."""
    tables = [run.validation for method in methods for run in method.runs]
    logged = dict.fromkeys(name.rpartition("/")[2] for table in tables for name in table or {} if name.startswith(SHARE))
    return [*(name for name in OBJECTIVES if name in logged), *(name for name in logged if name not in OBJECTIVES)]


def _share_cell(run: Run, term: str) -> Cell:
    last = [value for place in PLACES if (value := _last(run.validation, f"{SHARE}{place}/{term}")) is not None]
    if not last:
        return Cell("–" if any(name.startswith(SHARE) for name in run.validation or {}) else MISSING)
    weight = _last(run.train, f"{WEIGHT}{term}")
    return Cell(" / ".join(f"{100 * value:.1f} %" for value in last), "" if weight is None else f"weight {weight:.3g}")


def _last(table: Columns | None, name: str) -> float | None:
    known = [value for value in _column(table, name) or () if math.isfinite(value)]
    return known[-1] if known else None


def _term(method: Method, run: Run, name: str) -> list[Series]:
    train = _line(method, run, run.train, name, _column(run.train, name), faint=True)
    return train + _line(method, run, run.validation, name, _column(run.validation, name))


def _line(
    method: Method, run: Run, table: Columns | None, name: str, values: Sequence[float] | None, *, faint: bool = False
) -> list[Series]:
    if table is None or values is None or "step" not in table:
        return []
    known = [(x, y) for x, y in zip(table["step"], values, strict=True) if math.isfinite(y) and math.isfinite(x)]
    if not known:
        return []
    xs, ys = zip(*known, strict=True)
    symbol = "" if faint else method.symbol
    return [Series(f"{method.title(run)}, {name}", method.colour, xs, ys, "line", symbol=symbol, faint=faint)]


def _column(table: Columns | None, name: str) -> Sequence[float] | None:
    return table.get(name) if table else None


def mean_readout(table: Columns | None) -> Sequence[float] | None:
    columns = [values for name, values in (table or {}).items() if _is_readout(name)]
    return [sum(row) / len(row) for row in zip(*columns, strict=True)] if columns else None


def _is_readout(name: str) -> bool:
    return name.startswith(READOUT) and not name.startswith(CIRCLES)


def _positive(series: Sequence[Series]) -> bool:
    return all(y is not None and y > 0 for s in series for y in s.y)


def final_table(methods: Sequence[Method]) -> Table:
    rows = []
    for method in methods:
        for run in method.runs:
            validation = dig(run.result, "validation") or {}
            readout = [value for name, v in validation.items() if _is_readout(name) and (value := number(v)) is not None]
            rows.append(
                (
                    Cell(method.title(run)),
                    Cell(plain(number(dig(run.result, "steps")), 0)),
                    Cell(_duration(number(dig(run.result, "seconds")))),
                    Cell(plain(number(validation.get("pred")), 4), _before(run)),
                    Cell(plain(number(validation.get(RANK)), 1)),
                    Cell(plain(sum(readout) / len(readout), 4) if readout else MISSING),
                )
            )
    head = ("Run", "Steps", "Time", "Validation prediction loss ↓", "Effective rank ↑", "Read-out R² ↑")
    swatches = tuple(colour for method, colour in zip(methods, colours(methods), strict=True) for _ in method.runs)
    return Table("Where training ended", head, tuple(rows), swatches)


def _before(run: Run) -> str:
    """The prediction loss without the predictor's own steps, where there were some."""
    found = number(dig(run.result, "validation_before_predictor_steps", "pred"))
    return "" if found is None else f"{plain(found, 4)} before the predictor's own steps"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return MISSING
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
