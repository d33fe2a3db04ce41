"""Physical states as points whose distances can be compared: s̄ of eq:identifiability_diagnostic."""

# N states, d_s physical target, C coordinates

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from phylatent.data.readers import Episodes
from phylatent.data.stats import Split, episode_rows, fit_normaliser, unroll
from phylatent.errors import UserError
from phylatent.schema import Row, TaskSpec

NORMAL_IQR = 1.349
"""The interquartile range of a standard normal."""


@dataclass(frozen=True)
class Coordinates:
    """Targets → centred and scaled coordinates. `periods` are dimensions that become a point on the unit circle first."""

    centre: tuple[float, ...]
    scale: tuple[float, ...]
    periods: Mapping[int, float]

    def __call__(self, targets: np.ndarray) -> np.ndarray:
        """float64 [..., C] from targets [..., d_s]."""
        return (_unrolled(targets, self.periods) - np.array(self.centre)) * np.array(self.scale)


def _unrolled(targets: np.ndarray, periods: Mapping[int, float]) -> np.ndarray:
    return unroll(torch.from_numpy(np.array(targets, dtype=np.float64)), periods=periods).numpy()


def z_scored(task: TaskSpec, episodes: Episodes, split: Split, *, circular: bool) -> Coordinates:
    """Mean and standard deviation of the training episodes; `circular` unrolls the dimensions that are angles."""
    periods = dict(task.target.angles) if circular else {}
    statistics = fit_normaliser(_unrolled(episodes.targets[episode_rows(episodes, split.train)], periods))
    return Coordinates(statistics.mean, statistics.scale, periods)


def robust(task: TaskSpec, episodes: Episodes, split: Split) -> Coordinates:
    """protocol=ordering: median and IQR/1.349 of the training episodes, angles as sine and cosine."""
    periods = dict(task.target.angles)
    values = _unrolled(episodes.targets[episode_rows(episodes, split.train)], periods)
    values = values[np.isfinite(values).all(axis=1)]
    if not len(values):
        raise UserError("no training row has a physical target without NaN, so states cannot be compared; check data=")
    low, centre, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    width = (high - low) / NORMAL_IQR
    scale = np.divide(1, width, out=np.zeros_like(width), where=width > 1e-8)
    return Coordinates(tuple(centre.tolist()), tuple(scale.tolist()), periods)


def physical_target(task: TaskSpec, row: Row) -> np.ndarray:
    """S of tab:physical_targets, float32 [d_s], of one row of the simulator: as `read_targets` takes it from a file."""
    target = np.concatenate([np.ravel(row[name]) for name in task.target.columns]).astype(np.float32)
    for dimension, period in task.target.modulo.items():
        target[dimension] = np.mod(target[dimension], period)
    return target
