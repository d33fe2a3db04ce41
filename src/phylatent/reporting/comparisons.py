"""Two methods on the same pairs or the same sample. Where those differ, the comparison says so instead of comparing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phylatent.reporting.inputs import Run
from phylatent.reporting.methods import Average, Method, diagnostic, dig, reference_of, shown_diagnostics
from phylatent.schema import PLAN_PROTOCOLS
from phylatent.statistics import Difference, mcnemar, paired_difference


@dataclass(frozen=True)
class SeedTest:
    """McNemar's test of one training seed: how often only one of the two methods reached the goal."""

    seed: int | None
    only_reference: int
    only_method: int
    p: float


@dataclass(frozen=True)
class PlanComparison:
    protocol: str
    reference: str
    method: str
    pairs: int = 0
    difference: Difference | None = None
    """Success of the method minus the reference's, with its interval and its test over the episodes of the pairs."""
    tests: tuple[SeedTest, ...] = ()
    reason: str = ""
    """Why nothing was compared."""


@dataclass(frozen=True)
class Reduction:
    """A failure rate against the reference's, on the same diagnostic sample."""

    diagnostic: str
    reference: str
    method: str
    before: float | None = None
    after: float | None = None
    overlap: bool = False
    """Whether the two rates' intervals have values in common: then the change may be chance."""
    reason: str = ""

    @property
    def relative(self) -> float | None:
        """The share of the reference's failures that is gone; negative where there are more."""
        if self.before is None or self.after is None or self.before == 0:
            return None
        return 1 - self.after / self.before


def compare_plans(methods: Sequence[Method]) -> list[PlanComparison]:
    return [
        _plans(protocol, reference, method)
        for protocol in PLAN_PROTOCOLS
        for reference, method in against_reference(methods)
        if any(protocol in run.plans for run in (*reference.runs, *method.runs))
    ]


def compare_diagnostics(methods: Sequence[Method]) -> list[Reduction]:
    names = [one.name for one in shown_diagnostics(methods)]
    return [_reduction(name, *pair) for pair in against_reference(methods) for name in names]


def against_reference(methods: Sequence[Method]) -> list[tuple[Method, Method]]:
    pairs = [(reference_of(methods, method.task), method) for method in methods]
    return [(reference, method) for reference, method in pairs if reference is not None and reference is not method]


def _plans(protocol: str, reference: Method, method: Method) -> PlanComparison:
    sides = [[run for run in side.runs if protocol in run.plans] for side in (reference, method)]
    base: dict[str, Any] = {"protocol": protocol, "reference": reference.label, "method": method.label}
    for side, runs in zip((reference, method), sides, strict=True):
        if not runs:
            return PlanComparison(**base, reason=f"{side.label} was not measured under this protocol")
    hashes = {dig(run.plans[protocol], "pairs", "hash") for runs in sides for run in runs}
    if len(hashes) != 1 or None in hashes:
        return PlanComparison(**base, reason="their lists of start/goal pairs have different hashes")
    first, second = [{run.seed: outcomes(run, protocol) for run in runs} for runs in sides]
    if len({tuple(sorted(found)) for side in (first, second) for found in side.values()}) != 1:
        return PlanComparison(**base, reason="not every run holds the outcome of every pair")
    pairs = sorted(next(iter(first.values())))
    if not pairs:
        return PlanComparison(**base, reason="the records hold no outcomes per pair")
    tests = tuple(_test(seed, first[seed], second[seed], pairs) for seed in first if seed in second)
    return PlanComparison(**base, pairs=len(pairs), difference=_difference(sides, protocol, pairs), tests=tests)


def _test(seed: int | None, reference: dict[int, bool], method: dict[int, bool], pairs: list[int]) -> SeedTest:
    test = mcnemar([reference[pair] for pair in pairs], [method[pair] for pair in pairs])
    return SeedTest(seed, test.only_first, test.only_second, test.p)


def _difference(sides: Sequence[Sequence[Run]], protocol: str, pairs: list[int]) -> Difference:
    """A pair's outcome is its mean over a method's training seeds, so that methods may have different numbers of them."""
    won = [[outcomes(run, protocol) for run in runs] for runs in sides]
    mean_1P, other_1P = (np.mean([[found[pair] for pair in pairs] for found in side], axis=0, keepdims=True) for side in won)
    home = episode_of(sides[0][0], protocol)
    return paired_difference(other_1P, mean_1P, [home[pair] for pair in pairs])


def episode_of(run: Run, protocol: str) -> dict[int, int]:
    """Pair → the held-out episode it was taken from."""
    episodes = dig(run.plans.get(protocol), "episodes", "model") or []
    return {int(episode["pair"]): int(episode["episode"]) for episode in episodes}


def outcomes(run: Run, protocol: str, policy: str = "model") -> dict[int, bool]:
    """Pair → success."""
    episodes = dig(run.plans.get(protocol), "episodes", policy) or []
    return {int(episode["pair"]): bool(episode["success"]) for episode in episodes}


def _reduction(name: str, reference: Method, method: Method) -> Reduction:
    first, second = diagnostic(reference, name), diagnostic(method, name)
    before, after = first.mean, second.mean
    base: dict[str, Any] = {"diagnostic": name, "reference": reference.label, "method": method.label}
    for side, value in ((reference, before), (method, after)):
        if value is None:
            return Reduction(**base, before=before, after=after, reason=f"{side.label} was not measured")
    samples = {run.diagnosis.get("sample") for side in (reference, method) for run in side.runs if run.diagnosis}
    if len(samples) != 1 or None in samples:
        return Reduction(**base, reason="their diagnostic samples have different hashes")
    return Reduction(**base, before=before, after=after, overlap=_overlap(first, second))


def _overlap(first: Average, second: Average) -> bool:
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return False
    return first.low <= second.high and second.low <= first.high
