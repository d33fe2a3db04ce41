"""SD-JEPA's triplet: in the first few dimensions a frame is nearer to its own clip than to another one."""

# B batch, T time, D latent, k dimensions that are contrasted

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from phylatent import distributed
from phylatent.errors import UserError
from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import EPSILON, Dims, Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws


def contrast(anchor_Bk: Tensor, positive_Bk: Tensor, negative_Bk: Tensor, *, margin: float) -> Tensor:
    """mean relu(cos(anchor, negative) − cos(anchor, positive) + margin); all three branches move."""
    near, far = (
        F.cosine_similarity(anchor_Bk.float(), other.float(), dim=-1, eps=EPSILON) for other in (positive_Bk, negative_Bk)
    )
    return (far - near + margin).relu().mean()


def triplet_frames(frames: int) -> tuple[int, int]:
    """Anchor T//2 and the frame after it; in a clip of two frames, which has none after it, the one before."""
    anchor = frames // 2
    return anchor, anchor + 1 if anchor + 1 < frames else anchor - 1


@dataclass(frozen=True)
class ContrastSettings(ObjectiveSettings):
    weight: float = 0.1
    dims: int = 2
    """The first dimensions of the latent, which it moves."""
    margin: float = 0.2
    """By how much the cosine to its own clip must be above that to another one."""

    def __post_init__(self) -> None:
        if self.dims < 1:
            raise UserError(f"contrast.dims is {self.dims}; it must be at least 1")


class Contrast(Objective):
    name = "contrast"
    Settings = ContrastSettings

    def __init__(self, settings: ContrastSettings, dims: Dims) -> None:
        super().__init__(settings, dims)
        if settings.dims > dims.latent:
            raise UserError(f"contrast.dims is {settings.dims}, more than the latent's {dims.latent}; take fewer")

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        first = seq.z_BTD[..., : self.settings.dims]
        anchor, positive = (first[:, frame] for frame in triplet_frames(first.shape[1]))
        batch = len(anchor)
        others = batch * distributed.world_size() - 1
        if others == 0:
            return 0 * anchor.float().sum()  # there is no other sample to tell it from
        shift = 1 + int(draws.permutation(others)[0])
        everyone = torch.roll(distributed.gather_moving(anchor.float()), shift, dims=0)
        return contrast(anchor, positive, everyone[distributed.own_rows(batch)], margin=self.settings.margin)
