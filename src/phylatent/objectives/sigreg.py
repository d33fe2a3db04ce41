"""SIGReg: the latent cloud of every time step is pushed towards an isotropic Gaussian, along random directions."""

# B batch, T time, D latent, M directions, K knots

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from phylatent import distributed
from phylatent.errors import UserError
from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import Dims, Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws


def unit_directions(normal_DM: Tensor) -> Tensor:
    return normal_DM / normal_DM.norm(dim=-2, keepdim=True)


class _Characteristic(torch.autograd.Function):
    """Σ_b exp(i·k·h·x_b) of x [T, B, M] for the knots k = 0 … K−1 at spacing h, as real and imaginary part [2, K, T, M].

    Each knot's exponential is the one before it, turned by the same angle: one sine and one cosine for all of them, and nothing
    but those two is kept for the gradient.
    """

    @staticmethod
    def forward(ctx: Any, x_TBM: Tensor, spacing: float, knots: int) -> Tensor:
        angle_TBM = spacing * x_TBM
        turn_TBM = torch.complex(angle_TBM.cos(), angle_TBM.sin())
        ctx.save_for_backward(turn_TBM)
        ctx.spacing = spacing
        times, batch, directions = x_TBM.shape
        sums_KTM = turn_TBM.new_full((knots, times, directions), batch)
        turned = turn_TBM
        for knot in range(1, knots):
            turned = turned if knot == 1 else turned * turn_TBM
            torch.sum(turned, dim=1, out=sums_KTM[knot])
        return torch.stack([sums_KTM.real, sums_KTM.imag])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Re Σ_k k·h·(∂S_k + i·∂C_k)·exp(i·k·h·x), by Horner's rule."""
        (turn_TBM,) = ctx.saved_tensors
        cosines_KTM, sines_KTM = gradient
        knots_K = ctx.spacing * torch.arange(len(cosines_KTM), device=gradient.device)
        parts_KT1M = (knots_K[:, None, None] * torch.complex(sines_KTM, cosines_KTM))[:, :, None]
        total_TBM = parts_KT1M[-1] * turn_TBM
        for part_T1M in reversed(parts_KT1M[1:-1]):
            total_TBM += part_T1M
            total_TBM *= turn_TBM
        return total_TBM.real, None, None


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
        real_KTM, imaginary_KTM = distributed.sum_across(_Characteristic.apply(projected_TBM, spacing, knots)) / samples
        error_KTM = (real_KTM - gaussian_K[:, None, None]).square() + imaginary_KTM.square()
        return torch.tensordot(weights_K * gaussian_K, error_KTM, dims=1).mean() * samples


@dataclass(frozen=True)
class SigregSettings(ObjectiveSettings):
    weight: float = 0.09
    directions: int = 1024
    """Random directions along which the latents are compared with a normal distribution, drawn anew at every step."""
    knots: int = 17
    """Points at which the characteristic function is compared."""
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
