"""Rollout: prediction over several blocks in open loop, as the planner uses the model. Not in the paper."""

# B batch, H context, D latent, h latents known at the start, k steps ahead

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from phylatent.errors import UserError
from phylatent.models.blocks import batch_statistics_only
from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import PLACES, ZHAT, Objective, ObjectiveSettings, OpenLoop, Sequences
from phylatent.randomness import Draws


def open_loop(model: WorldModel, z_BhD: Tensor, first_B1D: Tensor, c_BLD: Tensor, draws: Draws) -> Tensor:
    """Ẑ_1 … Ẑ_k [B, k, D] after the known latents, each from the last H of known latents and earlier predictions.

    The first of them is given: in closed loop the same latents and actions predict it. Every further step has its own dropout.
    """
    context, known = model.config.clip.context, z_BhD.shape[1]
    latents = torch.cat([z_BhD.float(), first_B1D.float()], dim=1)
    for end in range(known + 1, c_BLD.shape[1] + 1):
        window = slice(max(0, end - context), end)
        predicted = model.predict(latents[:, window], c_BLD[:, window], draws.named(f"step{end - known}"))
        latents = torch.cat([latents, predicted[:, -1:].float()], dim=1)
    return latents[:, known:]


def rollout(predicted_BkD: Tensor, observed_BkD: Tensor, *, stop_gradient: bool = True) -> Tensor:
    """MSE(Ẑ_1…k, sg(Z_1…k)): errors are fed back, so a step answers for what it makes of the later ones."""
    observed_BkD = observed_BkD.detach() if stop_gradient else observed_BkD
    return (predicted_BkD.float() - observed_BkD.float()).square().mean()


@dataclass(frozen=True)
class RolloutSettings(ObjectiveSettings):
    weight: float = 1.0
    stop_gradient: bool = True
    """Whether targets stay where they are."""
    start: int = 0
    """The frame that it starts from; those before it are known too. The planner's first plan knows one frame."""
    curriculum: bool = True
    """In the predictor's own steps: from one block to all of them over the first half."""

    def __post_init__(self) -> None:
        if self.start < 0:
            raise UserError(f"rollout.start is {self.start}; it must be at least 0")


class Rollout(Objective):
    name = "rollout"
    Settings = RolloutSettings
    of_prediction = True

    @property
    def acts_on(self) -> tuple[str, ...]:
        return (ZHAT,) if self.settings.stop_gradient else PLACES

    def reach(self, done: float, blocks: int) -> int:
        """How many of a clip's blocks to look at when this share of the predictor's own steps is done."""
        first = self.settings.start + 1
        return first + round(min(1.0, 2 * done) * (blocks - first)) if self.settings.curriculum else blocks

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        known = self.settings.start + 1
        if seq.offset != 1 or known > seq.z_predicted_BHD.shape[1]:
            raise UserError(
                f"rollout needs clip.offset=1 and a rollout.start below clip.context = {seq.z_predicted_BHD.shape[1]}; "
                f"got {seq.offset} and {self.settings.start}"
            )
        clip = seq.open_loop or OpenLoop(seq.z_BTD, seq.c_BHD)
        with batch_statistics_only(model):
            # F is causal: at its position, Ẑ knows nothing of the frames that come after the start
            first = seq.z_predicted_BHD[:, known - 1 : known]
            predicted = open_loop(model, clip.z_BLD[:, :known], first, clip.c_BkD, draws)
        return rollout(predicted, clip.z_BLD[:, known:], stop_gradient=self.settings.stop_gradient)
