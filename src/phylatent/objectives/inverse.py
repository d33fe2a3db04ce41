"""SMWM's inverse dynamics: what was done between two frames must be readable off their latents."""

# B batch, T time, H context, D latent, A action block

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import Dims, Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws

HIDDEN = 256


def inverse(read_BHA: Tensor, actions_BHA: Tensor) -> Tensor:
    """mean((â − a)²) over z-scored action blocks."""
    return (read_BHA.float() - actions_BHA.float()).square().mean()


def neighbours(z_BTD: Tensor, blocks: int) -> Tensor:
    """[z_t, z_{t+1}], [B, H, 2 D]: the frames before and after each action block."""
    z_BTD = z_BTD.float()
    return torch.cat([z_BTD[:, :blocks], z_BTD[:, 1 : blocks + 1]], dim=-1)


@dataclass(frozen=True)
class InverseSettings(ObjectiveSettings):
    weight: float = 1.0
    """λ, which differs much between tasks; each shipped task has its own."""


class Inverse(Objective):
    name = "inverse"
    Settings = InverseSettings

    def __init__(self, settings: InverseSettings, dims: Dims) -> None:
        super().__init__(settings, dims)
        self.head = nn.Sequential(
            nn.Linear(2 * dims.latent, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, dims.action),
        )

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        return inverse(self.head(neighbours(seq.z_BTD, seq.actions_BHA.shape[1])), seq.actions_BHA)
