"""The split by episode, and the z-scores of actions and physical targets that its training side gives."""

# N rows, D dimensions

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phylatent.data.readers import Episodes
from phylatent.errors import UserError
from phylatent.schema import Normaliser, SplitConfig, TaskSpec

FLOAT32_RESOLUTION = 1e-6


def fit_normaliser(values: np.ndarray) -> Normaliser:
    """Population statistics of values [N, D]; rows that are not finite are left out."""
    finite = values[np.isfinite(values).all(axis=1)].astype(np.float64)
    if not len(finite):
        raise UserError(f"none of {len(values)} rows is free of NaN, so there is nothing to normalise by; check data=")
    spread = finite.max(axis=0) - finite.min(axis=0)
    # What float32 cannot tell from a constant is one; dividing by its rounding noise would blow that up to a signal.
    constant = spread <= FLOAT32_RESOLUTION * np.abs(finite).max(axis=0)
    std = np.where(constant, 0.0, finite.std(axis=0))
    return Normaliser(mean=tuple(finite.mean(axis=0).tolist()), std=tuple(std.tolist()))


def unroll(targets: Tensor, *, periods: Mapping[int, float]) -> Tensor:
    """Each dimension of [..., d_s] that has a period becomes its sine and cosine: 0 and one period are the same place."""
    if not periods:
        return targets
    columns = []
    for dimension, values in enumerate(targets.unbind(-1)):
        if dimension in periods:
            angle = 2 * math.pi / periods[dimension] * values
            columns += [angle.sin(), angle.cos()]
        else:
            columns.append(values)
    return torch.stack(columns, dim=-1)


@dataclass(frozen=True)
class Statistics:
    action: Normaliser
    target: Normaliser
    """Of S̄ as it is regressed: with circular targets, of sines and cosines."""
    correlations: tuple[tuple[tuple[float, ...], ...], ...] | None = None
    """Of z-scored actions over time, [lag, A, A]."""


def episode_rows(episodes: Episodes, ids: Sequence[int], *, drop_last: bool = False) -> np.ndarray:
    """The file's rows of these episodes, in their order; without each one's last row if asked."""
    ranges = (np.arange(episodes.offsets[i], episodes.offsets[i] + episodes.lengths[i] - drop_last) for i in ids)
    return np.concatenate([np.empty(0, dtype=np.int64), *ranges])


def fit_statistics(
    episodes: Episodes, task: TaskSpec, train_ids: Sequence[int], *, periods: Mapping[int, float] | None = None
) -> Statistics:
    """From training episodes only. Actions count one by one, also where rows hold whole blocks."""
    actions = episodes.actions[episode_rows(episodes, train_ids, drop_last=True)].reshape(-1, task.action_dim)
    targets = unroll(torch.from_numpy(episodes.targets[episode_rows(episodes, train_ids)]), periods=periods or {})
    action = fit_normaliser(actions)
    correlations = action_correlations(episodes, action, train_ids).round(6).tolist()
    return Statistics(action, fit_normaliser(targets.numpy()), tuple(tuple(map(tuple, lag)) for lag in correlations))


CORRELATED_STEPS = 25


def action_correlations(episodes: Episodes, normaliser: Normaliser, train_ids: Sequence[int]) -> np.ndarray:
    """[lag, A, A]: how each dimension of an action goes with every dimension of the one `lag` raw steps later, in z-scores.

    Divided by the number of all steps, whatever the lag: only so the matrix that a plan's noise is made of stays positive.
    """
    mean, scale = np.array(normaliser.mean), np.array(normaliser.scale)
    sums, steps = np.zeros((CORRELATED_STEPS, len(mean), len(mean))), 0
    for episode in train_ids:
        rows = episode_rows(episodes, [episode], drop_last=True)
        z = (episodes.actions[rows].reshape(-1, len(mean)).astype(np.float64) - mean) * scale
        for lag in range(min(CORRELATED_STEPS, len(z))):
            sums[lag] += z[: len(z) - lag].T @ z[lag:]
        steps += len(z)
    return sums / max(steps, 1)


@dataclass(frozen=True)
class Split:
    """Which episodes train and which are held out. It travels with the checkpoint."""

    train: tuple[int, ...]
    held_out: tuple[int, ...]
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Split:
        return cls(tuple(map(int, record["train"])), tuple(map(int, record["held_out"])), int(record["seed"]))


def split_episodes(count: int, config: SplitConfig) -> Split:
    if count < 2:
        raise UserError(f"the data holds {count} episode; it takes at least 2 to train on some and hold out others")
    held_out = min(max(round(count * config.held_out), 1), count - 1)
    order = np.random.default_rng(config.seed).permutation(count).tolist()
    return Split(train=tuple(sorted(order[held_out:])), held_out=tuple(sorted(order[:held_out])), seed=config.seed)
