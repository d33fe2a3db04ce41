"""PSG, physical state grounding: one head reads the physical state off encoded and predicted latents alike."""

# B batch, T time, H context, D latent, S physical target

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from phylatent.distributed import masked_mean
from phylatent.errors import UserError
from phylatent.models.heads import StateHead
from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import PLACES, Dims, Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws


def state_error(read: Tensor, target: Tensor) -> Tensor:
    """MSE over the rows whose target is known: a row with a value that is not finite is left out."""
    known = target.isfinite().all(-1, keepdim=True)
    error = (read.float() - torch.where(known, target.float(), 0)).square()
    return masked_mean(error, known.expand_as(error))


def psg(read_BTS: Tensor, read_predicted_BHS: Tensor, targets_BTS: Tensor, *, offset: int) -> Tensor:
    """L_state of eq:state_grounding."""
    return state_error(read_BTS, targets_BTS) + state_error(read_predicted_BHS, targets_BTS[:, offset:])


RAW, CIRCULAR = ANGLES = ("raw", "circular")


@dataclass(frozen=True)
class PsgSettings(ObjectiveSettings):
    angles: str = RAW
    """The paper regresses angles as they are; `circular` regresses their sine and cosine, which do not jump."""

    def __post_init__(self) -> None:
        if self.angles not in ANGLES:
            raise UserError(f"psg.angles is {self.angles!r}; it must be one of {', '.join(ANGLES)}")


class Psg(Objective):
    name = "psg"
    Settings = PsgSettings
    of_prediction = True
    acts_on = PLACES

    def __init__(self, settings: PsgSettings, dims: Dims) -> None:
        super().__init__(settings, dims)
        self.head = StateHead(dims.latent, dims.target)

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        return psg(self.head(seq.z_BTD), self.head(seq.z_predicted_BHD), seq.targets_BTS, offset=seq.offset)
