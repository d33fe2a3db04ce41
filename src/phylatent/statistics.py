"""Rates with honest intervals, and paired comparisons. No torch: the report uses them too."""

# E episodes, P pairs, M models (training seeds), R bootstrap replicates

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z95 = 1.959963984540054
DRAWS = 10_000
EPISODES = "episodes (cluster bootstrap)"
"""What an interval was made over, as a record says it. A record without a word about it is older, and holds Wilson's."""


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


def cluster_interval(
    totals: np.ndarray,
    counts: np.ndarray,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """The 95 % interval of Σ totals / Σ counts by bootstrap over episodes: samples of one episode resemble each other.

    Both are by episode [E], or, for what joins two episodes, by both [E, E]. An episode drawn w times weighs w; what joins two
    of them w_i·w_j, and w within one episode. A sample's value lies within `bounds`.
    Where all episodes agree every replicate is the same and the bootstrap says nothing. There Wilson's bound on the share of
    *episodes* that would be otherwise takes its place: at a rate of exactly 0 or 1 that is Wilson's interval over the episodes.
    From a single episode nothing follows about others.
    """
    low, high = bounds
    involved = int(np.count_nonzero(counts if counts.ndim == 1 else counts.sum(axis=0) + counts.sum(axis=1)))
    if involved < 2:
        return bounds
    common = float(totals.sum() / counts.sum())
    if np.allclose(totals, common * counts, rtol=1e-9):
        otherwise = wilson(0, involved)[1]
        return common + otherwise * (low - common), common + otherwise * (high - common)
    weights_RE = _weights(len(counts), draws, seed)
    drawn = _weighted(counts, weights_RE)
    means_R = _weighted(totals, weights_RE)[drawn > 0] / drawn[drawn > 0]
    if not len(means_R):
        return bounds
    low, high = np.quantile(means_R, (0.025, 0.975))
    return float(low), float(high)


def _weights(episodes: int, draws: int, seed: int) -> np.ndarray:
    """float64 [R, E]: how often each episode is drawn."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(episodes, np.full(episodes, 1 / episodes), size=draws).astype(np.float64)


def _weighted(values: np.ndarray, weights_RE: np.ndarray) -> np.ndarray:
    if values.ndim == 1:
        return weights_RE @ values
    within = np.diag(values)
    return ((weights_RE @ (values - np.diag(within))) * weights_RE).sum(axis=1) + weights_RE @ within


def by_episode(values_P: np.ndarray, episode_P: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum of the values and number of pairs of each episode that occurs [E]."""
    assert len(values_P) == len(episode_P), "every pair belongs to an episode"
    _, place_P = np.unique(np.asarray(episode_P), return_inverse=True)
    return np.bincount(place_P, weights=np.asarray(values_P, dtype=float)), np.bincount(place_P)


def success_interval(success_P: Sequence[bool], episode_P: Sequence[int]) -> tuple[float, float]:
    """The 95 % interval of a success rate, by bootstrap over the episodes that the pairs were taken from."""
    return cluster_interval(*by_episode(np.asarray(success_P), episode_P))


@dataclass(frozen=True)
class Difference:
    mean: float
    low: float
    high: float
    """95 %, by bootstrap over episodes."""
    p_sign_flip: float
    """By sign flips of whole episodes: how often chance alone brings a difference as large, two-sided."""
    episodes: int


def paired_difference(
    first_MP: np.ndarray, second_MP: np.ndarray, episode_P: Sequence[int] | np.ndarray, *, draws: int = DRAWS, seed: int = 0
) -> Difference:
    """Success of the first minus the second, over training seeds, with interval and test over the pairs' episodes.

    An episode that is drawn brings all its pairs, and a pair its outcomes under every training seed: neither are independent.
    """
    assert first_MP.shape == second_MP.shape, "paired outcomes come from one list"
    per_pair = (first_MP.astype(float) - second_MP.astype(float)).mean(axis=0)
    totals_E, counts_E = by_episode(per_pair, episode_P)
    low, high = cluster_interval(totals_E, counts_E, bounds=(-1.0, 1.0), draws=draws, seed=seed)
    p = sign_flip(totals_E, draws=draws, seed=seed)
    return Difference(float(per_pair.mean()), low, high, p, len(totals_E))


def sign_flip(totals_E: np.ndarray, *, draws: int = DRAWS, seed: int = 0) -> float:
    """The permutation test of paired differences summed by episode.

    Under the null the two methods may change places in any episode, all its pairs at once. p = (1 + as extreme) / (1 + draws).
    """
    signs_RE = np.random.default_rng(seed).integers(0, 2, size=(draws, len(totals_E)), dtype=np.int8) * 2 - 1
    # Sums of the same numbers in another order may differ in their last digit, and count as equal.
    as_extreme = np.abs(signs_RE @ totals_E) >= abs(totals_E.sum()) - 1e-9
    return float((1 + as_extreme.sum()) / (1 + draws))


def spread(values: Sequence[float]) -> float | None:
    """The sample standard deviation; None for fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float | None:
    """Spearman's; equal values share their mean rank. None where one side does not vary."""
    ranks = np.stack([_ranks(first), _ranks(second)])
    if len(first) < 2 or (ranks.std(axis=1) == 0).any():
        return None
    return float(np.corrcoef(ranks)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]
