"""An objective of one's own: `phylatent train objectives=[pred,sigreg,docs/examples/straight.py] straight.weight=0.1`."""

# B batch, T frames, D latent

from dataclasses import dataclass

import torch
from torch import Tensor

from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import EPSILON, Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws


def straight(z_BTD: Tensor, *, power: float = 1.0) -> Tensor:
    """The mean of (1 − cos)^power over the angles between a step of the latent and the next: 0 on a straight line."""
    steps = z_BTD.float().diff(dim=1)
    cosine = torch.cosine_similarity(steps[:, 1:], steps[:, :-1], dim=-1, eps=EPSILON)
    return (1 - cosine).clamp(min=EPSILON).pow(power).mean()


@dataclass(frozen=True)
class StraightSettings(ObjectiveSettings):
    weight: float = 0.05
    power: float = 1.0
    """Above 1, sharp turns count more."""


class Straight(Objective):
    """Latents of a clip lie on a line, as far as the other objectives let them."""

    name = "straight"
    Settings = StraightSettings

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        return straight(seq.z_BTD, power=self.settings.power)


OBJECTIVE = Straight
