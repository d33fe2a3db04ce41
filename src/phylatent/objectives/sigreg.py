"""SIGReg: the latent cloud of every time step is pushed towards an isotropic Gaussian, along random directions."""

# B batch, T time, D latent, M directions, K knots

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from phylatent import distributed
from phylatent.errors import UserError
from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import Dims, Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws


def unit_directions(normal_DM: Tensor) -> Tensor:
    return normal_DM / normal_DM.norm(dim=-2, keepdim=True)


def sigreg(z_BTD: Tensor, directions_DM: Tensor, *, knots: int = 17, t_max: float = 3.0) -> Tensor:
    """L_SIGReg of eq:full_objective: the Epps–Pulley statistic, one per direction and time step, averaged.

    The empirical characteristic function is the global batch's: it is averaged over processes before it is squared.
    """
    t_K = torch.linspace(0, t_max, knots, device=z_BTD.device)
    spacing = t_max / (knots - 1)
    weights_K = torch.full_like(t_K, 2 * spacing)
    weights_K[0] = weights_K[-1] = spacing
    gaussian_K = torch.exp(-t_K.square() / 2)
    samples = z_BTD.shape[0] * distributed.world_size()

    with torch.autocast(z_BTD.device.type, enabled=False):  # a statistic of small differences: never in half precision
        projected_TBM = z_BTD.float().transpose(0, 1) @ directions_DM.float()
        angles_TBMK = projected_TBM.unsqueeze(-1) * t_K
        sums = torch.stack([angles_TBMK.cos().sum(1), angles_TBMK.sin().sum(1)])
        real_TMK, imaginary_TMK = distributed.sum_across(sums) / samples
        error_TMK = (real_TMK - gaussian_K).square() + imaginary_TMK.square()
        return (error_TMK @ (weights_K * gaussian_K)).mean() * samples


@dataclass(frozen=True)
class SigregSettings(ObjectiveSettings):
    weight: float = 0.09
    directions: int = 1024
    knots: int = 17
    skip: int = 0
    """How many of the first dimensions it leaves free, as SD-JEPA does."""

    def __post_init__(self) -> None:
        if self.skip < 0:
            raise UserError(f"sigreg.skip is {self.skip}; it must be at least 0")
        if self.directions < 1 or self.knots < 2:
            raise UserError(f"sigreg takes at least 1 direction and 2 knots; got {self.directions} and {self.knots}")


class Sigreg(Objective):
    name = "sigreg"
    Settings = SigregSettings

    def __init__(self, settings: SigregSettings, dims: Dims) -> None:
        super().__init__(settings, dims)
        if settings.skip >= dims.latent:
            raise UserError(f"sigreg.skip is {settings.skip}, but the latent has {dims.latent} dimensions; leave it some")

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        z = seq.z_BTD[..., self.settings.skip :]
        return sigreg(z, unit_directions(draws.normal(z.shape[-1], self.settings.directions)), knots=self.settings.knots)
