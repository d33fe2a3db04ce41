"""A rate is never a bare number: failures, eligible, and a 95 % interval by bootstrap over episodes.

Samples of one episode resemble each other, so whole episodes are drawn again; a pair belongs to the two episodes it joins.
"""

# N samples, E episodes

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from phylatent.statistics import cluster_interval, spread


@dataclass(frozen=True)
class Rate:
    failures: int
    eligible: int
    rate: float | None
    """None when nothing was eligible."""
    interval: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        interval = None if self.interval is None else list(self.interval)
        return {"rate": self.rate, "interval": interval, "failures": self.failures, "eligible": self.eligible}


@dataclass(frozen=True)
class Counts:
    """Failures and eligible samples by episode [E], or of pairs by the two episodes they join [E, E]."""

    failures: np.ndarray
    eligible: np.ndarray

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.failures + other.failures, self.eligible + other.eligible)

    @property
    def share(self) -> float | None:
        eligible = int(self.eligible.sum())
        return float(self.failures.sum() / eligible) if eligible else None


@dataclass(frozen=True, eq=False)
class Measured:
    """What one diagnostic found with one seed."""

    headline: Counts
    beside: Mapping[str, Counts]
    """The same rate under other conditions, by their names."""
    arrays: Mapping[str, np.ndarray]
    facts: Mapping[str, float] = field(default_factory=dict)
    """Numbers of this seed that the record shows beside its rate."""


def count(failed_N: np.ndarray, eligible_N: np.ndarray, episode_N: np.ndarray, *, episodes: int) -> Counts:
    """Of every episode 0 … E−1."""
    return Counts(*(np.bincount(episode_N[chosen], minlength=episodes) for chosen in (failed_N & eligible_N, eligible_N)))


def count_pairs(
    failed_N: np.ndarray, eligible_N: np.ndarray, first_N: np.ndarray, second_N: np.ndarray, *, episodes: int
) -> Counts:
    """`first_N` and `second_N` are the episodes of a pair's two ends; their order means nothing."""
    cell = np.minimum(first_N, second_N) * episodes + np.maximum(first_N, second_N)
    flat = count(failed_N, eligible_N, cell, episodes=episodes**2)
    return Counts(flat.failures.reshape(episodes, episodes), flat.eligible.reshape(episodes, episodes))


def bootstrap_rate(counts: Counts, *, replicates: int, seed: int) -> Rate:
    """The rate of all counts with its interval over episodes."""
    failures, eligible = int(counts.failures.sum()), int(counts.eligible.sum())
    if eligible == 0:
        return Rate(failures, eligible, None, None)
    interval = cluster_interval(counts.failures, counts.eligible, draws=replicates, seed=seed)
    return Rate(failures, eligible, failures / eligible, interval)


def over_seeds(counts: Sequence[Counts], *, replicates: int, seed: int = 0) -> tuple[Rate, float | None]:
    """Counts pooled over the seeds with their interval, `rate` the mean of the seeds' own; and its spread over the seeds."""
    pooled = bootstrap_rate(sum(counts[1:], counts[0]), replicates=replicates, seed=seed)
    shares = [share for one in counts if (share := one.share) is not None]
    return replace(pooled, rate=float(np.mean(shares)) if shares else None), spread(shares)
