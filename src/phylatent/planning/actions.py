"""What a model's actions are: bounds, z-scores, blocks, and how they vary in its training data."""

# k blocks, A values of a block

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phylatent.errors import UserError
from phylatent.planning.noise import mixing_matrix
from phylatent.schema import Normaliser


@dataclass(frozen=True)
class Actions:
    """What a raw action is: its bounds, its z-scores, and how many of them make a block."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    normaliser: Normaliser
    stride: int = 5
    correlations: tuple[Any, ...] | None = None
    """Of z-scored actions in the training data, [lag, dimension, dimension of the action that much later]."""

    @classmethod
    def of(cls, model: Any) -> Actions:
        """As a phylatent model brings them along."""
        config = getattr(model, "config", None)
        if config is None or getattr(config, "action", None) is None or config.action_low is None:
            raise UserError(
                "this model does not say what its actions are; give Planner(model, actions=Actions(low, high, normaliser))"
            )
        correlations = getattr(config, "action_correlations", None)
        return cls(config.action_low, config.action_high, config.action, config.clip.stride, correlations)

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Of a z-scored block [A]; a dimension that never varied in the data stays where it was."""
        mean, scale = np.array(self.normaliser.mean), np.array(self.normaliser.scale)
        ends = [torch.tensor((np.array(end) - mean) * scale, dtype=torch.float32) for end in (self.low, self.high)]
        return ends[0].repeat(self.stride), ends[1].repeat(self.stride)

    def mixing(self, blocks: int) -> Tensor:
        """[k·A, k·A]: white noise times this varies over a plan of k blocks as actions do in the training data."""
        if self.correlations is None:
            raise UserError("plan.noise=data needs a model that knows how actions vary in its training data; train it anew")
        lags = np.array(self.correlations)
        steps, dims = blocks * self.stride, lags.shape[1]
        covariance = np.zeros((steps, dims, steps, dims))
        for first in range(steps):
            for later in range(first, min(steps, first + len(lags))):
                covariance[first, :, later] = lags[later - first]
                covariance[later, :, first] = lags[later - first].T
        return mixing_matrix(covariance.reshape(steps * dims, steps * dims))

    def raw(self, z_A: Tensor) -> Tensor:
        """z-scored blocks [..., A] → raw ones, inside the bounds to the last bit."""
        repeated = [torch.tensor(v, dtype=torch.float32).repeat(self.stride).to(z_A.device) for v in self._constants()]
        mean, std, low, high = repeated
        return (z_A * std + mean).clamp(low, high)

    def z_scored(self, raw_A: Tensor) -> Tensor:
        mean, scale = (torch.tensor(v).repeat(self.stride).to(raw_A) for v in (self.normaliser.mean, self.normaliser.scale))
        return (raw_A - mean) * scale

    def _constants(self) -> tuple[tuple[float, ...], ...]:
        return self.normaliser.mean, self.normaliser.std, self.low, self.high
