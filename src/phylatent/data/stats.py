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
from phylatent.schema import HELD_OUT, TEST, VALIDATION, Normaliser, SplitConfig, TaskSpec, split_note

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
    """z-scores of the target as it is regressed: with circular targets, of sines and cosines."""
    correlations: tuple[tuple[tuple[float, ...], ...], ...] | None = None
    """How z-scored actions vary together over time, [lag, A, A]; a planner's candidates are made with it."""


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
class Side:
    """Episodes of a split that a model is judged on, under the name that records give them."""

    name: str
    episodes: tuple[int, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """What a record says of where its numbers come from."""
        return {"name": self.name, "episodes": len(self.episodes), "note": split_note(self.name)}


@dataclass(frozen=True)
class Split:
    """Which episodes train, on which settings are chosen, and on which results are measured. It travels with the checkpoint.

    Without validation episodes it is a two-way split, as earlier versions had it: whatever was chosen may have been chosen on
    the test side, so that it is called held-out instead.
    """

    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]
    seed: int

    @property
    def two_way(self) -> bool:
        return not self.validation

    def side(self, name: str) -> Side:
        """The side that `diagnose.split` or `plan.split` names; an error if this split has no such side."""
        assert name in (TEST, VALIDATION)
        if name == TEST:
            return Side(HELD_OUT if self.two_way else TEST, self.test)
        if self.two_way:
            raise UserError("this model's split has two sides, train and held-out, and no validation episodes; take split=test")
        return Side(VALIDATION, self.validation)

    @property
    def validating(self) -> Side:
        """The side that training validates on."""
        return self.side(TEST if self.two_way else VALIDATION)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Split:
        """The split that a model was saved with; earlier versions split in two."""
        sides = {"validation": (), "test": record["held_out"]} if "held_out" in record else record
        train, validation, test = (tuple(map(int, ids)) for ids in (record["train"], sides["validation"], sides["test"]))
        return cls(train, validation, test, int(record["seed"]))


def split_episodes(count: int, config: SplitConfig) -> Split:
    """At least one episode on each side, however few there are.

    The validation side comes first in the shuffled order: what a two-way split of the same seed held out, and settings were
    chosen on, lies there and not among the test episodes.
    """
    sides = 2 if config.two_way else 3
    if count < sides:
        purpose = "train on some and hold out others" if config.two_way else "train, choose settings and test on different ones"
        raise UserError(f"the data holds {count} episode{'s' * (count != 1)}; it takes at least {sides} to {purpose}")
    validation = 0 if config.two_way else min(max(round(count * config.validation), 1), count - 2)
    test = min(max(round(count * config.test), 1), count - validation - 1)
    order = np.random.default_rng(config.seed).permutation(count).tolist()
    ends = (order[:validation], order[validation : validation + test], order[validation + test :])
    validating, testing, training = (tuple(sorted(ids)) for ids in ends)
    return Split(train=training, validation=validating, test=testing, seed=config.seed)
