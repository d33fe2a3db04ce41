"""Rates with honest intervals, and paired comparisons. No torch: the report uses them too."""

# E episodes, P pairs, M models (training seeds)

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z95 = 1.959963984540054


def wilson(successes: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion; (0, 1) when there is nothing to count."""
    if count == 0:
        return 0.0, 1.0
    share, z2 = successes / count, Z95**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 / (1 + z2 / count) * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == count else min(1.0, centre + half)
    return low, high


@dataclass(frozen=True)
class McNemar:
    """Two policies on the same pairs: how often only one of them succeeded, and how likely that is by chance."""

    only_first: int
    only_second: int
    p: float


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """The exact two-sided test: under the null, each disagreement is a fair coin."""
    assert len(first) == len(second), "paired outcomes come from one list"
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    disagreements, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(disagreements, k) for k in range(fewer + 1)) / 2**disagreements
    return McNemar(only_first, only_second, min(1.0, 2 * tail))


@dataclass(frozen=True)
class Difference:
    mean: float
    low: float
    high: float


def paired_difference(first_MP: np.ndarray, second_MP: np.ndarray, *, draws: int = 10_000, seed: int = 0) -> Difference:
    """Success of the first minus the second, over training seeds, with a 95 % bootstrap interval over the pairs.

    A pair keeps its outcomes under every training seed when it is drawn: they are not independent.
    """
    assert first_MP.shape == second_MP.shape, "paired outcomes come from one list"
    per_pair = (first_MP.astype(float) - second_MP.astype(float)).mean(axis=0)
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(per_pair), size=(draws, len(per_pair)))
    low, high = np.quantile(per_pair[chosen].mean(axis=1), (0.025, 0.975))
    return Difference(float(per_pair.mean()), float(low), float(high))


def spread(values: Sequence[float]) -> float | None:
    """The sample standard deviation; None for fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
