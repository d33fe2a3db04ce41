"""PLDM's regularisers: latents vary over the batch and over time, uncorrelated, and change little from frame to frame."""

# B batch, T time, D latent

from __future__ import annotations

import torch
from torch import Tensor

from phylatent import distributed
from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import Objective, Sequences
from phylatent.randomness import Draws

MARGIN, VARIANCE_EPSILON = 1.0, 1e-4


def centred(z_BTD: Tensor) -> Tensor:
    """Without the mean of each dimension and time step over the global batch."""
    z_BTD = z_BTD.float()
    return z_BTD - distributed.sum_across(z_BTD.sum(0)) / samples(z_BTD)


def samples(z_BTD: Tensor) -> int:
    return len(z_BTD) * distributed.world_size()


def hinge(variance: Tensor) -> Tensor:
    """mean relu(1 − √(variance + ε))."""
    return (MARGIN - (variance + VARIANCE_EPSILON).sqrt()).relu().mean()


def variance(z_BTD: Tensor) -> Tensor:
    """Hinge on the standard deviation over the global batch, of each dimension and time step."""
    squares = distributed.sum_across(centred(z_BTD).square().sum(0))
    return hinge(squares / max(samples(z_BTD) - 1, 1))


def variance_time(z_BTD: Tensor) -> Tensor:
    """Hinge on the standard deviation over time, of each sample and dimension, after the batch's mean is taken off."""
    return hinge(centred(z_BTD).var(1))


def covariance(z_BTD: Tensor) -> Tensor:
    """Squared off-diagonal covariances over the global batch, their sum divided by D² − D, averaged over time."""
    z, dims = centred(z_BTD), z_BTD.shape[-1]
    with torch.autocast(z.device.type, enabled=False):
        products_TDD = torch.einsum("bti,btj->tij", z, z)
    matrix_TDD = distributed.sum_across(products_TDD) / max(samples(z) - 1, 1)
    apart = ~torch.eye(dims, dtype=torch.bool, device=z.device)
    return (matrix_TDD.square() * apart).sum((1, 2)).mean() / max(dims**2 - dims, 1)


def smoothness(z_BTD: Tensor) -> Tensor:
    """mean((z_t − z_{t+1})²)."""
    return z_BTD.float().diff(dim=1).square().mean()


class Variance(Objective):
    """PLDM: each dimension varies over the batch."""

    name = "variance"

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        return variance(seq.z_BTD)


class VarianceTime(Objective):
    """PLDM: each dimension varies over a clip."""

    name = "variance_time"

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        return variance_time(seq.z_BTD)


class Covariance(Objective):
    """PLDM: dimensions are uncorrelated."""

    name = "covariance"

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        return covariance(seq.z_BTD)


class Smoothness(Objective):
    """PLDM: latents change little from frame to frame."""

    name = "smoothness"

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        return smoothness(seq.z_BTD)
