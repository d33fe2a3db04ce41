"""Sub-JEPA's regulariser: SIGReg not in the whole latent space but in many small random subspaces of it."""

# B batch, T time, D latent, K subspaces, R their dimension, M directions in each

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from torch import Tensor

from phylatent.errors import UserError
from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import Dims, Objective, ObjectiveSettings, Sequences
from phylatent.objectives.sigreg import sigreg, unit_directions
from phylatent.randomness import Draws


def orthonormal_rows(normal_KDR: Tensor) -> Tensor:
    """W [K, R, D]: each subspace has its own QR decomposition, so that subspaces overlap at random."""
    return torch.linalg.qr(normal_KDR).Q.transpose(1, 2).contiguous()


def subspaces(z_BTD: Tensor, bases_KRD: Tensor, directions_KRM: Tensor, *, knots: int = 17) -> Tensor:
    """The mean over k of SIGReg(W_k z): a direction u in subspace k is the direction W_kᵀ u of the whole space."""
    with torch.autocast(z_BTD.device.type, enabled=False):
        whole_KDM = einsum(bases_KRD.float(), directions_KRM.float(), "k r d, k r m -> k d m")
    return sigreg(z_BTD, rearrange(whole_KDM, "k d m -> d (k m)"), knots=knots)


@dataclass(frozen=True)
class SubspacesSettings(ObjectiveSettings):
    weight: float = 0.09
    count: int = 32
    """How many subspaces."""
    directions: int = 1024
    """In each subspace."""
    knots: int = 17
    """Points at which the characteristic function is compared."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.directions < 1 or self.knots < 2:
            raise UserError(
                f"subspaces takes a count of at least 1, 1 direction and 2 knots; got {self.count}, {self.directions} "
                f"and {self.knots}"
            )


class Subspaces(Objective):
    name = "subspaces"
    Settings = SubspacesSettings
    bases_KRD: Tensor

    def __init__(self, settings: SubspacesSettings, dims: Dims) -> None:
        super().__init__(settings, dims)
        if settings.count > dims.latent:
            raise UserError(
                f"subspaces.count is {settings.count}, but the latent has {dims.latent} dimensions to share; "
                f"take at most {dims.latent}, or a larger model.width"
            )
        normal = torch.randn(settings.count, dims.latent, dims.latent // settings.count)
        self.register_buffer("bases_KRD", orthonormal_rows(normal))

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        directions = unit_directions(draws.normal(*self.bases_KRD.shape[:2], self.settings.directions))
        return subspaces(seq.z_BTD, self.bases_KRD, directions, knots=self.settings.knots)
