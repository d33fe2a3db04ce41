"""Planning under each protocol: success, when and how near, why it failed, and imagined against real cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from phylatent.reporting.comparisons import PlanComparison, compare_plans
from phylatent.reporting.diagnostics import colours, keys, success_panel
from phylatent.reporting.marks import Cell, Figure, Guide, Key, Panel, Series, Table
from phylatent.reporting.methods import Method, dig, number, success
from phylatent.reporting.words import MISSING, chance, over_seeds, percent, plain, points, rate_cell
from phylatent.schema import PLAN_PROTOCOLS

CAUSES = {
    "search": "the search missed a plan as good as the recorded actions, by the model's own cost",
    "model": "the model imagined arriving, but reality went elsewhere",
    "latent": "it arrived where it meant to in latent space, but not physically",
}
CAUSE_STYLE = {
    "search": ("#56B4E9", "/"),
    "model": ("#E69F00", "x"),
    "latent": ("#CC79A7", "."),
    "not judged": ("#8A8F98", ""),
}
GREY = "#7A808A"
MOST_POINTS = 1500
"""Plans drawn per method; the figure says when there are more."""


def protocols(methods: Sequence[Method]) -> list[str]:
    return [p for p in PLAN_PROTOCOLS if any(p in run.plans for method in methods for run in method.runs)]


def _titled(methods: Sequence[Method], protocol: str) -> str:
    """With what the task's record says the protocol asks for."""
    rules = (dig(run.plans.get(protocol), "rule") for method in methods for run in method.runs)
    rule = next((rule for rule in rules if rule), None)
    return f"{protocol}: {rule}" if rule else protocol


def success_figure(methods: Sequence[Method]) -> Figure:
    panels = tuple(success_panel(_titled(methods, protocol), methods, protocol) for protocol in protocols(methods))
    return Figure("planning-success", "Planning success under each protocol", panels, keys(methods))


def success_table(methods: Sequence[Method], protocol: str) -> Table:
    unit = next((str(r.plans[protocol].get("unit") or "") for m in methods for r in m.runs if protocol in r.plans), "")
    rows = []
    for method in methods:
        entries = [dig(run.plans.get(protocol), "policies", "model") or {} for run in method.runs]
        rows.append(
            (Cell(method.label), rate_cell(success(method, protocol)), *_means(entries), _imagination(method, protocol))
        )
    for policy, label in (("random", "random actions"), ("nothing", "doing nothing"), ("expert", "expert")):
        entry = next((e for m in methods for r in m.runs if (e := dig(r.plans.get(protocol), "policies", policy))), None)
        if entry is None:
            rows.append((Cell(label), Cell(MISSING), *(Cell("–"),) * 4))
            continue
        counts = f"{entry.get('successes')} of {entry.get('count')}"
        rows.append((Cell(label), Cell(percent(entry.get("rate"), 2), counts), *_means([entry]), Cell("–")))
    head = (
        "Policy",
        "Success ↑",
        "Median first success, steps",
        f"Mean final distance{f', {unit}' if unit else ''}",
        "Time to plan an episode, s",
        "Imagination agreed",
    )
    solved = next((r.plans[protocol].get("already_solved") for m in methods for r in m.runs if protocol in r.plans), None)
    note = "" if solved is None else f"; {solved} of the pairs were already solved at the start"
    return Table(f"Planning under the {protocol} protocol{note}", head, tuple(rows), colours(methods))


def _means(entries: Sequence[dict[str, Any]]) -> tuple[Cell, Cell, Cell]:
    """Over training seeds where there are several entries."""
    steps, distances, seconds = (
        [number(entry.get(key)) for entry in entries] for key in ("median_steps", "mean_final_distance", "planning_seconds")
    )
    digits = 1 if max((value for value in distances if value is not None), default=0.0) >= 1 else 3
    return (
        over_seeds(steps, lambda value: plain(value, 0)) if any(map(_known, steps)) else Cell("–"),
        over_seeds(distances, lambda value: plain(value, digits)),
        over_seeds(seconds, lambda value: plain(value, 2)) if any(map(_known, seconds)) else Cell("–"),
    )


def _known(value: float | None) -> bool:
    return value is not None


def _imagination(method: Method, protocol: str) -> Cell:
    known = [found for run in method.runs if (found := dig(run.plans.get(protocol), "imagination"))]
    correlation = [value for entry in known if (value := number(entry.get("correlation"))) is not None]
    note = f"rank correlation {sum(correlation) / len(correlation):.2f}" if correlation else ""
    return over_seeds([number(entry.get("agreed")) for entry in known], percent, note)


def comparison_table(methods: Sequence[Method]) -> Table | None:
    rows = [_comparison(c) for c in compare_plans(methods)]
    head = (
        "Comparison",
        "Protocol",
        "Difference in success",
        "Sign flips by episode",
        "McNemar's test for each training seed, as if pairs were independent",
    )
    title = "Paired comparison: every method planned between the same starts and goals; pairs of one episode count together"
    return Table(title, head, tuple(rows)) if rows else None


def _comparison(c: PlanComparison) -> tuple[Cell, ...]:
    names = (Cell(f"{c.method} − {c.reference}"), Cell(c.protocol))
    if c.difference is None:
        return (*names, Cell("not compared", c.reason), Cell("–"), Cell("–"))
    found = c.difference
    tests = "; ".join(
        f"seed {t.seed}: only {c.method} {t.only_method}, only {c.reference} {t.only_reference}, {chance(t.p)}" for t in c.tests
    )
    interval = (
        f"95 %: {points(found.low)} to {points(found.high)}, bootstrap over {found.episodes:,} episodes ({c.pairs:,} pairs)"
    )
    return (
        *names,
        Cell(f"{points(found.mean)} points", interval),
        Cell(chance(found.p_sign_flip), "over all training seeds"),
        Cell(tests or "no training seed in common"),
    )


def episodes(method: Method, protocol: str, policy: str = "model") -> list[dict[str, Any]]:
    return [episode for run in method.runs for episode in dig(run.plans.get(protocol), "episodes", policy) or []]


def outcomes_figure(methods: Sequence[Method], protocol: str) -> Figure:
    """When goals are reached, how near the rest ended, why planning failed, and what the model imagined."""
    unit = next((str(r.plans[protocol].get("unit") or "") for m in methods for r in m.runs if protocol in r.plans), "")
    costs, note = _costs(methods, protocol)
    panels = (
        Panel(
            "Solved by step",
            _first_success(methods, protocol),
            (),
            "environment step",
            "share of pairs",
            percent=True,
            y_from_zero=True,
        ),
        Panel(
            "Ended within a distance",
            _final_distance(methods, protocol),
            (),
            f"distance to the goal{f' ({unit})' if unit else ''}",
            "share of pairs",
            percent=True,
            y_from_zero=True,
        ),
        Panel(
            "Why planning failed",
            _causes(methods, protocol),
            y_label="share of pairs",
            percent=True,
            stacked=True,
            y_from_zero=True,
            reason="not judged",
        ),
        Panel(
            f"Imagined and real cost{note}",
            costs,
            (Guide("as imagined", axis="diagonal"),) if costs else (),
            "imagined cost of the plan",
            "real cost after executing it",
            log_x=True,
            log_y=True,
        ),
    )
    floors = (Key("random actions", GREY, "", "dot"), Key("expert", GREY, "", "dash"))
    return Figure(
        f"planning-outcomes-{protocol}",
        f"Outcomes of planning under the {protocol} protocol",
        panels,
        (*keys(methods), *floors),
    )


def _others(methods: Sequence[Method], protocol: str) -> list[tuple[str, str, str, list[dict[str, Any]]]]:
    found = [(method.label, method.colour, "solid", episodes(method, protocol)) for method in methods]
    for policy, label, dash in (("random", "random actions", "dot"), ("expert", "expert", "dash")):
        known: list[dict[str, Any]] = next(
            (e for m in methods for r in m.runs if (e := dig(r.plans.get(protocol), "episodes", policy))), []
        )
        found.append((label, GREY, dash, known))
    return [entry for entry in found if entry[3]]


def _first_success(methods: Sequence[Method], protocol: str) -> tuple[Series, ...]:
    series = []
    for label, colour, dash, played in _others(methods, protocol):
        steps = [e["first_success"] for e in played if e.get("success") and e.get("first_success") is not None]
        series.append(_cumulative(label, colour, dash, steps, len(played), end=_budget(methods, protocol)))
    return tuple(series)


def _budget(methods: Sequence[Method], protocol: str) -> float:
    known = [number(dig(r.plans.get(protocol), "settings", "budget")) for m in methods for r in m.runs]
    return next((value for value in known if value is not None), 50.0)


def _final_distance(methods: Sequence[Method], protocol: str) -> tuple[Series, ...]:
    played = _others(methods, protocol)
    known = {
        label: [value for e in episodes if (value := number(e.get("final_distance"))) is not None]
        for label, *_, episodes in played
    }
    end = max((value for values in known.values() for value in values), default=1.0)
    return tuple(
        _cumulative(label, colour, dash, known[label], len(episodes), end=end)
        for label, colour, dash, episodes in played
        if known[label]
    )


def _cumulative(label: str, colour: str, dash: str, values: Sequence[float], count: int, *, end: float) -> Series:
    """The share of `count` at or below each value, as corners of a staircase."""
    ends, counts = np.unique(np.asarray(values, dtype=float), return_counts=True)
    shares = np.cumsum(counts) / count
    x, y = [0.0], [0.0]
    for value, share in zip(ends.tolist(), shares.tolist(), strict=True):
        x, y = [*x, value, value], [*y, y[-1], share]
    return Series(label, colour, [*x, max(end, x[-1])], [*y, y[-1]], "line", symbol="", dash=dash)


def _causes(methods: Sequence[Method], protocol: str) -> tuple[Series, ...]:
    played = {method.label: found for method in methods if (found := episodes(method, protocol))}
    failed = {label: [e for e in found if not e.get("success")] for label, found in played.items()}
    if not any(e.get("verdict") for found in failed.values() for e in found):
        return ()
    series = []
    for name, (colour, hatch) in CAUSE_STYLE.items():
        counts = {label: sum((e.get("verdict") or "not judged") == name for e in found) for label, found in failed.items()}
        shares = [counts[label] / len(played[label]) for label in played]
        if any(shares):
            hover = [f"{name}: {counts[label]} of {len(played[label])} pairs" for label in played]
            series.append(Series(name, colour, list(played), shares, "bars", hatch=hatch, hover=hover))
    return tuple(series)


def _costs(methods: Sequence[Method], protocol: str) -> tuple[tuple[Series, ...], str]:
    series, drawn, total = [], 0, 0
    for method in methods:
        plans = [plan for e in episodes(method, protocol) for plan in e.get("plans") or []]
        both = [(number(plan.get("imagined_cost")), number(plan.get("real_cost"))) for plan in plans]
        known = [(x, y) for x, y in both if x is not None and y is not None and x > 0 and y > 0]
        chosen = known[:: max(1, -(-len(known) // MOST_POINTS))]
        drawn, total = drawn + len(chosen), total + len(known)
        if chosen:
            xs, ys = zip(*chosen, strict=True)
            series.append(Series(method.label, method.colour, xs, ys, symbol=method.symbol, faint=True))
    return tuple(series), "" if drawn == total else f" ({drawn:,} of {total:,} plans)"
