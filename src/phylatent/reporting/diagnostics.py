"""Headline, reductions, breakdowns and thresholds: the figures and tables of failure rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from phylatent.diagnostics import DIAGNOSTICS
from phylatent.diagnostics.diagnostic import Breakdown, Diagnostic
from phylatent.reporting.comparisons import Reduction, compare_diagnostics
from phylatent.reporting.marks import Cell, Figure, Guide, Key, Panel, Series, Table
from phylatent.reporting.methods import SEEDS, Average, Method, average, diagnostic, dig, shown_diagnostics, success
from phylatent.reporting.words import MISSING, health, percent, points, rate_cell, relative_change
from phylatent.schema import PERTURBATIONS, PLAN_PROTOCOLS

FORMS = ("seen", "unseen")
BESIDE = 0.36
"""How far the marks of single seeds reach to the left of their mean, in widths of a category."""
LABEL_HEIGHT = 0.07
"""Of a floor's label, as a share of the success axis."""
FLOORS = {"random": ("random actions", "dot"), "nothing": ("doing nothing", "dash"), "expert": ("expert", "solid")}


def headline_protocol(methods: Sequence[Method]) -> str:
    return next((p for p in PLAN_PROTOCOLS for method in methods for run in method.runs if p in run.plans), "paper")


def keys(methods: Sequence[Method]) -> tuple[Key, ...]:
    return tuple(Key(method.label, method.colour, method.symbol) for method in methods)


def headline(methods: Sequence[Method]) -> Figure:
    """The failure rates and planning success, each with its interval, floors and ceiling as lines."""
    protocol = headline_protocol(methods)
    panels = []
    for one in shown_diagnostics(methods):
        guides = () if one.chance is None else (Guide("chance", one.chance),)
        rates = {method.label: diagnostic(method, one.name) for method in methods}
        panels.append(rates_panel(f"{one.title} ↓", methods, rates, guides))
    panels.append(success_panel(f"Planning success, {protocol} ↑", methods, protocol))
    return Figure("headline", "Failure rates and planning success of each method", tuple(panels), keys(methods))


def success_panel(title: str, methods: Sequence[Method], protocol: str) -> Panel:
    rates = {method.label: success(method, protocol) for method in methods}
    return rates_panel(title, methods, rates, floors(methods, protocol))


def floors(methods: Sequence[Method], protocol: str) -> tuple[Guide, ...]:
    """A line for every value that random actions, doing nothing and the expert reach; one each where all share their pairs."""
    guides: dict[tuple[str, str], Guide] = {}
    for policy, (label, dash) in FLOORS.items():
        for method in methods:
            rate = success(method, protocol, policy).mean
            if rate is not None:
                guides[policy, percent(rate)] = Guide(label, rate, dash=dash)
    values = [guide.value for guide in guides.values()]
    return tuple(replace(g, below=any(0 < value - g.value < LABEL_HEIGHT for value in values)) for g in guides.values())


def rates_panel(title: str, methods: Sequence[Method], rates: Mapping[str, Average], guides: tuple[Guide, ...] = ()) -> Panel:
    series: list[Series] = []
    for method in methods:
        rate = rates[method.label]
        if rate.mean is None:
            continue
        series += seed_marks(method, rate)
        series.append(
            Series(
                method.label,
                method.colour,
                (method.label,),
                (rate.mean,),
                low=(rate.low,),
                high=(rate.high,),
                symbol=method.symbol,
                texts=(percent(rate.mean),),
                hover=(rate_cell(rate).note,),
                mean=rate.over == SEEDS,
            )
        )
    missing = tuple(method.label for method in methods if rates[method.label].mean is None)
    return Panel(title, tuple(series), guides if series else (), percent=True, y_from_zero=True, missing=missing)


def seed_marks(method: Method, rate: Average) -> list[Series]:
    """A mark for each training seed, side by side to the left of the mean; none where there is one seed."""
    if rate.over != SEEDS:
        return []
    known = [(run, value) for run, value in zip(method.runs, rate.values, strict=True) if value is not None]
    step = min(0.08, BESIDE / len(known))
    return [
        Series(
            method.title(run),
            method.colour,
            (method.label,),
            (value,),
            symbol=method.symbol,
            faint=True,
            shift=step * (at - len(known)) - 0.04,
        )
        for at, (run, value) in enumerate(known)
    ]


def headline_table(methods: Sequence[Method]) -> Table:
    protocol, shown = headline_protocol(methods), shown_diagnostics(methods)
    rows = []
    for method in methods:
        cells = [_headline_cell(method, one) for one in shown]
        rows.append((Cell(method.label), *cells, rate_cell(success(method, protocol))))
    for policy, (label, _) in FLOORS.items():
        # Floors depend on the evaluation alone: several trainings measured one and the same.
        known = [average([dig(run.plans.get(protocol), "policies", policy)]) for method in methods for run in method.runs]
        rate = next((rate for rate in known if rate.mean is not None), None)
        if rate is not None:
            rows.append((Cell(label), *(Cell("–"),) * len(shown), rate_cell(rate)))
    head = ("Method", *(f"{one.title} ↓" for one in shown), f"Planning success ({protocol}) ↑")
    return Table("Failure rates (lower is better) and planning success (higher is better)", head, tuple(rows), colours(methods))


def _headline_cell(method: Method, one: Diagnostic[Any]) -> Cell:
    """The rate, and what the diagnostic has to say beside it where there is one record of it."""
    cell = rate_cell(diagnostic(method, one.name), health(method))
    sections = [section for run in method.runs if (section := dig(run.diagnosis, one.name))]
    more = one.remark(sections[0]) if len(sections) == 1 else ""
    return replace(cell, note=" · ".join(part for part in (cell.note, more) if part))


def colours(methods: Sequence[Method]) -> tuple[str, ...]:
    return tuple(method.colour for method in methods)


def reductions_figure(methods: Sequence[Method]) -> Figure:
    """fig:diagnostic_improvements: bars of each failure rate, with the relative reduction above them."""
    found = {(r.diagnostic, r.method): r for r in compare_diagnostics(methods)}
    panels = []
    for one in shown_diagnostics(methods):
        series = []
        for method in methods:
            rate = diagnostic(method, one.name)
            if rate.mean is None:
                continue
            change = _change(found.get((one.name, method.label)))
            text = percent(rate.mean) + (f"\n{change}" if change else "")
            low, high = (rate.low,), (rate.high,)
            series.append(
                Series(method.label, method.colour, (method.label,), (rate.mean,), "bars", low=low, high=high, texts=(text,))
            )
            series += [replace(mark, shift=mark.shift + 0.12) for mark in seed_marks(method, rate)]
        missing = tuple(method.label for method in methods if diagnostic(method, one.name).mean is None)
        panels.append(Panel(one.title, tuple(series), percent=True, y_from_zero=True, missing=missing))
    return Figure("reductions", "Failure rates as bars, with the relative change against the reference", tuple(panels))


def _change(reduction: Reduction | None) -> str:
    if reduction is None:
        return ""
    if reduction.reason:
        return "not compared"
    return relative_change(reduction).replace(".0 %", " %")


def reductions_table(methods: Sequence[Method]) -> Table | None:
    rows = []
    for r in compare_diagnostics(methods):
        change = relative_change(r)
        difference = "" if r.before is None or r.after is None else f"{points(r.after - r.before)} points"
        difference += ", ranges overlap" if r.overlap else ""
        last = Cell("not compared", r.reason) if r.reason else Cell(change or "–", difference)
        name = DIAGNOSTICS[r.diagnostic].title
        rows.append((Cell(f"{r.method} against {r.reference}"), Cell(name), _share(r.before), _share(r.after), last))
    head = ("Comparison", "Failure mode", "Reference", "Method", "Relative change")
    return (
        Table("Change of each failure rate against the reference, on the same diagnostic sample", head, tuple(rows))
        if rows
        else None
    )


def _share(value: float | None) -> Cell:
    return Cell(percent(value, 2) if value is not None else "–")


def breakdowns(methods: Sequence[Method]) -> Figure:
    """The rates under several conditions, of the diagnostics that have such: invariance by perturbation, for one."""
    panels = [_breakdown(methods, one.name, one.breakdown) for one in shown_diagnostics(methods) if one.breakdown]
    return Figure("breakdowns", "Failures under each condition that was measured", tuple(panels), keys(methods))


def _breakdown(methods: Sequence[Method], name: str, breakdown: Breakdown) -> Panel:
    """Conditions are in the order of the records; numbers ascend, where records differ in which they hold."""
    found = dict.fromkeys(c for m in methods for r in m.runs for c in dig(r.diagnosis, name, breakdown.key) or {})
    conditions = sorted(found, key=int) if all(condition.isdecimal() for condition in found) else list(found)
    paths = [(name, breakdown.key, condition) for condition in conditions]
    series = _series(methods, paths, [_condition(breakdown, condition) for condition in conditions], breakdown.kind)
    return Panel(breakdown.title, series, percent=True, y_from_zero=True, dodge=True)


def _condition(breakdown: Breakdown, condition: str) -> str:
    """In the diagnostic's words, where it has some for it."""
    try:
        return breakdown.label(condition)
    except ValueError:
        return condition


def kinds_table(methods: Sequence[Method]) -> Table | None:
    """Invariance failures under each perturbation, and under those whose form a method's training had or had not."""
    if not any(dig(run.diagnosis, "invariance", "by_kind") for method in methods for run in method.runs):
        return None
    rows = []
    for method in methods:
        cells = [rate_cell(diagnostic(method, "invariance", "by_kind", kind)) for kind in PERTURBATIONS]
        rows.append((Cell(method.label), *cells, *(_form(method, form) for form in FORMS)))
    head = ("Method", *(f"{kind} ↓" for kind in PERTURBATIONS), *(f"{form} in training ↓" for form in FORMS))
    title = "Invariance failures under each perturbation, on all states; together where its form was seen or unseen in training"
    return Table(title, head, tuple(rows), colours(methods))


def _form(method: Method, form: str) -> Cell:
    known = [entry for run in method.runs if (entry := dig(run.diagnosis, "invariance", form)) is not None]
    if not known:
        return Cell(MISSING, "the record does not say what its training had")
    names = ", ".join(known[0].get("kinds") or [])
    if not names:
        return Cell("–", f"no perturbation is {form}")
    cell = rate_cell(diagnostic(method, "invariance", form))
    return replace(cell, note=" · ".join(part for part in (names, cell.note) if part))


def _series(
    methods: Sequence[Method], paths: Sequence[tuple[str, ...]], labels: Sequence[str], kind: str
) -> tuple[Series, ...]:
    found = []
    for method in methods:
        rates = [diagnostic(method, *path) for path in paths]
        if any(rate.mean is not None for rate in rates):
            means, lows, highs = [r.mean for r in rates], [r.low for r in rates], [r.high for r in rates]
            notes = [rate_cell(r).note for r in rates]
            found.append(
                Series(method.label, method.colour, labels, means, kind, lows, highs, symbol=method.symbol, hover=notes)
            )
    return tuple(found)


def thresholds(methods: Sequence[Method]) -> Table | None:
    """tab:threshold_sensitivity: nine settings, methods as columns, the paper's setting in bold."""
    settings = {
        (entry["q_phys"], entry["q_lat"])
        for method in methods
        for run in method.runs
        for entry in dig(run.diagnosis, "identifiability", "thresholds") or []
    }
    if not settings:
        return None
    rows = []
    for q_phys, q_lat in sorted(settings):
        strong = (round(_quantile(q_phys)), round(_quantile(q_lat))) == (75, 10)
        cells = [rate_cell(_at(method, q_phys, q_lat), strong=strong) for method in methods]
        rows.append((Cell(f"{_quantile(q_phys):g}", strong=strong), Cell(f"{_quantile(q_lat):g}", strong=strong), *cells))
    head = ("Far above quantile", "Near below quantile", *(f"{method.label} ↓" for method in methods))
    return Table("Identifiability failures under nine pairs of thresholds; the paper's own in bold", head, tuple(rows))


def _quantile(value: float) -> float:
    """Quantiles as the paper writes them, 75 for 0.75."""
    return 100 * value if value <= 1 else value


def _at(method: Method, q_phys: float, q_lat: float) -> Average:
    entries = []
    for run in method.runs:
        known = dig(run.diagnosis, "identifiability", "thresholds") or []
        entries.append(next((e for e in known if (e["q_phys"], e["q_lat"]) == (q_phys, q_lat)), None))
    return average(entries)


def orderings(methods: Sequence[Method]) -> Table | None:
    """The later protocol's rates, where they were measured."""
    entries = [item for method in methods for run in method.runs for item in (run.ordering or {}).items()]
    names = list(dict.fromkeys(name for name, entry in entries if isinstance(entry, Mapping) and "rate" in entry))
    if not names:
        return None
    rows = [(Cell(m.label), *(rate_cell(average([dig(r.ordering, name) for r in m.runs])) for name in names)) for m in methods]
    head = ("Method", *(f"{DIAGNOSTICS[name].title if name in DIAGNOSTICS else name.capitalize()} ↓" for name in names))
    return Table("Failure rates under the ordering protocol", head, tuple(rows), colours(methods))
