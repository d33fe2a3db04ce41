"""Numbers as text, and the summary in sentences made from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phylatent.reporting.comparisons import PlanComparison, Reduction, compare_diagnostics, compare_plans
from phylatent.reporting.marks import Cell
from phylatent.reporting.methods import SEEDS, Average, Method, diagnostic, dig, shown_diagnostics, success
from phylatent.schema import PLAN_PROTOCOLS
from phylatent.statistics import spread

MISSING = "not measured"
MOST_LISTED = 8
"""Training seeds whose own numbers stand in a table's cell."""
SUCCESS = "Share of start/goal pairs that closed-loop planning with the model solves within the step budget."


def meanings(methods: Sequence[Method]) -> dict[str, str]:
    """What is measured → what its rate says."""
    return {one.title: one.meaning for one in shown_diagnostics(methods)} | {"Planning success": SUCCESS}


def percent(share: float | None, digits: int = 1) -> str:
    return MISSING if share is None else f"{100 * share:.{digits}f} %"


def points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def plain(value: float | None, digits: int = 1, unit: str = "") -> str:
    return MISSING if value is None else f"{value:,.{digits}f}{' ' + unit if unit else ''}"


def rate_cell(rate: Average, reason: str = "", digits: int = 2, strong: bool = False) -> Cell:
    """A rate is never a bare number: spread and what it is over, interval, counts."""
    if rate.mean is None:
        return Cell(MISSING, reason)
    plus = "" if rate.spread is None else f" ± {100 * rate.spread:.{digits}f}"
    notes = []
    if rate.over:
        notes.append(f"± over {rate.over}")
    if rate.over != SEEDS:
        notes += [] if rate.low is None or rate.high is None else [f"95 %: {_interval(rate.low, rate.high)}"]
        notes += [] if rate.eligible is None else [f"{rate.failures:,} of {rate.eligible:,}"]
    if rate.measured < len(rate.values):
        notes.append(f"{rate.measured} of {len(rate.values)} training seeds measured")
    if rate.over == SEEDS:
        notes.append(each(rate.values, lambda value: f"{100 * value:.{digits}f}"))
    return Cell(f"{100 * rate.mean:.{digits}f}{plus} %", " · ".join(notes), strong)


def each(values: Sequence[float | None], written: Callable[[float], str]) -> str:
    """`n = 3: 10.0, 16.0, 13.0`: how many training seeds were measured, and what each of them reached."""
    known = [written(value) for value in values if value is not None]
    return f"n = {len(known)}: {', '.join(known)}" if len(known) <= MOST_LISTED else f"n = {len(known)}"


def over_seeds(values: Sequence[float | None], written: Callable[[float], str], note: str = "") -> Cell:
    """A number of a method: as it is for one training seed; mean ± standard deviation, and each seed's own, for several."""
    known = [value for value in values if value is not None]
    if not known:
        return Cell(MISSING, note)
    deviation, mean = spread(known), sum(known) / len(known)
    if deviation is None:
        return Cell(written(mean), note)
    return Cell(f"{written(mean)} ± {written(deviation)}", " · ".join(part for part in (each(known, written), note) if part))


def _interval(low: float, high: float) -> str:
    digits = 1 if high >= 0.02 else 2
    return f"{100 * low:.{digits}f}–{100 * high:.{digits}f}"


def intervals(methods: Sequence[Method]) -> str:
    """What the 95 % intervals on the page were made over, as far as the records say."""
    found = {
        dig(record, "policies", "model", "interval_of")
        for method in methods
        for run in method.runs
        for record in run.plans.values()
        if dig(record, "policies", "model")
    }
    said = "95 % intervals are bootstraps over held-out episodes: an episode that is drawn brings all its states or pairs."
    older = " Success rates of older records have Wilson's interval instead, as if pairs of one episode were independent."
    return said + (older if None in found else "")


def health(method: Method) -> str:
    """What the diagnostics say about a model they could not judge."""
    sentences = [
        f"{method.title(run)}: {dig(run.diagnosis, 'health', 'sentence') or dig(run.diagnosis, 'health', 'status')}"
        for run in method.runs
        if dig(run.diagnosis, "health", "status") not in (None, "ok")
    ]
    return " ".join(sentences)


def summary(methods: Sequence[Method]) -> list[str]:
    """One paragraph, sentence by sentence."""
    comparisons, reductions = compare_plans(methods), compare_diagnostics(methods)
    protocol = next((p for p in PLAN_PROTOCOLS for m in methods for run in m.runs if p in run.plans), None)
    said = [_planning(methods, protocol) if protocol else "Planning was not measured."]
    unmeasured = {m.label for m in methods if protocol and success(m, protocol).mean is None}
    said += [
        _difference(c, methods) for c in comparisons if c.protocol == protocol and not {c.method, c.reference} & unmeasured
    ]
    said += [sentence for sentence in (_floors(methods, protocol),) if protocol and sentence]
    for method in dict.fromkeys(r.method for r in reductions):
        said.append(_reductions([r for r in reductions if r.method == method]))
    if not reductions:
        said += [_alone(method) for method in methods]
    said += [sentence for method in methods if (sentence := health(method))]
    if all(len(method.runs) == 1 for method in methods) and len(methods) > 1:
        said.append("Each method was trained once, so these numbers cannot tell a better method from a luckier training seed.")
    return said


def _planning(methods: Sequence[Method], protocol: str) -> str:
    rates = {method.label: success(method, protocol).mean for method in methods}
    measured = [f"{label} reaches {percent(rate)}" for label, rate in rates.items() if rate is not None]
    missing = [label for label, rate in rates.items() if rate is None]
    if not measured:
        return "Planning was not measured."
    said = f"Planning under the {protocol} protocol, {_listed(measured)} of the goals"
    return f"{said}; {_listed(missing)} was not measured." if missing else f"{said}."


def _floors(methods: Sequence[Method], protocol: str | None) -> str:
    said = []
    for policy, words in (
        ("random", "random actions reach"),
        ("nothing", "doing nothing reaches"),
        ("expert", "the expert reaches"),
    ):
        rates = [success(method, protocol, policy).mean for method in methods] if protocol else []
        known = next((rate for rate in rates if rate is not None), None)
        said += [] if known is None else [f"{words} {percent(known)}"]
    return f"For scale, {_listed(said)}." if said else ""


def _difference(comparison: PlanComparison, methods: Sequence[Method]) -> str:
    names = f"{comparison.method} and {comparison.reference}"
    found = comparison.difference
    if found is None:
        return f"{names} are not compared in planning: {comparison.reason}."
    seeds = min(len(m.runs) for m in methods if m.label in (comparison.method, comparison.reference))
    over = f"on the same {comparison.pairs:,} pairs" + (f", {seeds} training seeds" if seeds > 1 else "")
    interval = f"95 % interval over {found.episodes:,} episodes {points(found.low)} to {points(found.high)}"
    if found.low > 0 or found.high < 0:
        which = "more" if found.mean > 0 else "less"
        return (
            f"That is {abs(100 * found.mean):.1f} percentage points {which} for {comparison.method} "
            f"than for {comparison.reference} {over} ({interval})."
        )
    return f"The difference between {names}, {points(found.mean)} points {over}, may be chance ({interval})."


def _reductions(reductions: Sequence[Reduction]) -> str:
    method, reference = reductions[0].method, reductions[0].reference
    parts = [_change(r) for r in reductions if not r.reason]
    reasons = list(dict.fromkeys(r.reason for r in reductions if r.reason))
    if not parts:
        return f"The failure rates of {method} and {reference} are not compared: {_listed(reasons)}."
    said = f"Compared with {reference}, {method} has {_listed(parts)}."
    return f"{said} The rest is not compared: {_listed(reasons)}." if reasons else said


DOUBLED = -1.0
"""From here on a change is told as a factor: thousands of per cent say nothing."""


def relative_change(r: Reduction) -> str:
    if r.relative is None:
        return ""
    factor = 1 - r.relative
    return f"×{factor:.{0 if factor >= 10 else 1}f}" if r.relative < DOUBLED else f"{points(-r.relative)} %"


def _change(r: Reduction) -> str:
    values = f"({percent(r.before)} → {percent(r.after)}{', ranges overlap' if r.overlap else ''})"
    if r.relative is None or r.relative == 0:
        return f"as many {r.diagnostic} failures {values}" if r.before == r.after else f"more {r.diagnostic} failures {values}"
    if r.relative < DOUBLED:
        return f"{relative_change(r).removeprefix('×')} times as many {r.diagnostic} failures {values}"
    share = "over 99" if 0.99 < r.relative < 1 else f"{abs(100 * r.relative):.0f}"
    return f"{share} % {'fewer' if r.relative > 0 else 'more'} {r.diagnostic} failures {values}"


def _alone(method: Method) -> str:
    names = [one.name for one in shown_diagnostics([method])]
    rates = {name: diagnostic(method, name).mean for name in names}
    known = [f"{name} {percent(rate)}" for name, rate in rates.items() if rate is not None]
    return f"Failure rates of {method.label}: {_listed(known)}." if known else f"{method.label} was not diagnosed."


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
