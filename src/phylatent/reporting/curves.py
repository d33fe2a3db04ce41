"""Training curves: every objective, its share of the gradient, the effective rank and the read-out, as training logged them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from phylatent.reporting.diagnostics import colours, keys
from phylatent.reporting.inputs import Columns, Run
from phylatent.reporting.marks import Cell, Figure, Key, Panel, Series, Table
from phylatent.reporting.methods import Method, dig, number
from phylatent.reporting.words import MISSING, over_seeds, plain

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
REACHES = {"z": "encoder", "zhat": "predictor"}
TERMS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB", "#EE7733", "#117733", "#882255")
"""Of objectives, in the order of the loss curves; other colours than the methods'."""
LEAST_LABELLED = 0.06
"""A smaller share has no room for its name in the bar."""


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


def share_ends(methods: Sequence[Method]) -> Figure | None:
    """Who pulls how strongly at the end: a bar for each method, all its objectives on each other."""
    terms = _shared_terms(methods)
    panels, seen = [], set()
    for place, (symbol, _) in PLACES.items():
        found = {
            method.label: {term: share for term in terms if (share := _mean_share(method, place, term))} for method in methods
        }
        labels = [label for label, shares in found.items() if shares]
        series = []
        for at, term in enumerate(terms):
            shares = [found[label].get(term, 0.0) for label in labels]
            if any(shares):
                seen.add(term)
                name = OBJECTIVES.get(term, term)
                texts = [f"{name} {share:.0%}" if share >= LEAST_LABELLED else "" for share in shares]
                series.append(Series(name, TERMS[at % len(TERMS)], labels, shares, "bars", texts=texts))
        title = f"At {symbol}, which reaches the {REACHES[place]}"
        panels.append(Panel(title, tuple(series), percent=True, stacked=True, y_from_zero=True))
    keys = tuple(
        Key(OBJECTIVES.get(term, term), TERMS[at % len(TERMS)], "square") for at, term in enumerate(terms) if term in seen
    )
    title = "Share of the gradient of every objective at the end of training"
    return Figure("shares-end", title, tuple(panels), keys) if terms else None


def _mean_share(method: Method, place: str, term: str) -> float:
    known = [value for run in method.runs if (value := _last(run.validation, f"{SHARE}{place}/{term}")) is not None]
    return sum(known) / len(known) if known else 0.0


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
    """The last shares of every method, with the weight that led to them where training chose it."""
    terms = _shared_terms(methods)
    rows = [(Cell(method.label), *(_share_cell(method, term) for term in terms)) for method in methods]
    head = ("Method", *(OBJECTIVES.get(term, term) for term in terms))
    title = "Share of the gradient at the end, at Z / at Ẑ"
    return Table(title, head, tuple(rows), colours(methods)) if terms else None


def _shared_terms(methods: Sequence[Method]) -> list[str]:
    """In the order of the loss curves."""
    tables = [run.validation for method in methods for run in method.runs]
    names = [name.removeprefix(SHARE) for table in tables for name in table or {} if name.startswith(SHARE)]
    logged = dict.fromkeys(name.partition("/")[2] for name in names)
    return [*(name for name in OBJECTIVES if name in logged), *(name for name in logged if name not in OBJECTIVES)]


def _share_cell(method: Method, term: str) -> Cell:
    by_place = [[_last(run.validation, f"{SHARE}{place}/{term}") for run in method.runs] for place in PLACES]
    shares = [over_seeds(values, _percent) for values in by_place if any(value is not None for value in values)]
    if not shares:
        logged = any(name.startswith(SHARE) for run in method.runs for name in run.validation or {})
        return Cell("–" if logged else MISSING)
    weights = [_last(run.train, f"{WEIGHT}{term}") for run in method.runs]
    known = [value for value in weights if value is not None]
    notes = [f"n = {len(method.runs)}"] if len(method.runs) > 1 else []
    notes += [f"weight {over_seeds(known, lambda value: f'{value:.3g}').text}"] if known else []
    return Cell(" / ".join(share.text.replace(" % ±", " ±") for share in shares), " · ".join(notes))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


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
    """A row for each method: where it ended, over its training seeds."""
    rows = []
    for method in methods:
        ends = [dig(run.result, "validation") or {} for run in method.runs]
        before = _before(method.runs[0]) if len(method.runs) == 1 else ""
        rows.append(
            (
                Cell(method.label, "" if len(method.runs) == 1 else f"{len(method.runs)} training seeds"),
                over_seeds([number(dig(run.result, "steps")) for run in method.runs], lambda value: plain(value, 0)),
                over_seeds([number(dig(run.result, "seconds")) for run in method.runs], _duration),
                over_seeds([number(end.get("pred")) for end in ends], lambda value: plain(value, 4), before),
                over_seeds([number(end.get(RANK)) for end in ends], plain),
                over_seeds([_mean_end(end) for end in ends], lambda value: plain(value, 4)),
            )
        )
    head = ("Method", "Steps", "Time", "Validation prediction loss ↓", "Effective rank ↑", "Read-out R² ↑")
    return Table("Where training ended", head, tuple(rows), colours(methods))


def _mean_end(validation: Mapping[str, object]) -> float | None:
    known = [value for name, found in validation.items() if _is_readout(name) and (value := number(found)) is not None]
    return sum(known) / len(known) if known else None


def _before(run: Run) -> str:
    """The prediction loss without the predictor's own steps, where there were some."""
    found = number(dig(run.result, "validation_before_predictor_steps", "pred"))
    return "" if found is None else f"{plain(found, 4)} before the predictor's own steps"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
