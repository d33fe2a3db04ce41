"""SVIC, the static visual invariance constraint: appearance must not move the latent."""

# B batch, T time, D latent

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from phylatent.draws import Draws
from phylatent.models.blocks import batch_statistics_only
from phylatent.models.world_model import WorldModel
from phylatent.objectives.distance import normalized_mse
from phylatent.objectives.term import Sequences, Term, TermSettings


def shift_appearance(pixels: Tensor, uniform_BT4: Tensor, *, brightness: float, channel: float) -> Tensor:
    """A(O) of eq:visual_augmentation on normalised pixels [B, T, 3, H, W], from uniform draws in [0, 1).

    One brightness offset in [−b, b] per frame and one in [−c, c] per frame and channel; not clipped.
    """
    signed = 2 * uniform_BT4 - 1
    offsets_BT3 = brightness * signed[..., :1] + channel * signed[..., 1:]
    return pixels + offsets_BT3[..., None, None]


def svic(z_augmented: Tensor, z: Tensor) -> Tensor:
    """L_inv of eq:visual_invariance: only the augmented branch moves."""
    return normalized_mse(z_augmented, z.detach())


@dataclass(frozen=True)
class SvicSettings(TermSettings):
    share: float = 0.2
    brightness: float = 0.0
    channel: float = 0.0


class Svic(Term):
    name = "svic"
    Settings = SvicSettings

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        batch, frames = seq.z_BTD.shape[:2]
        shifted = shift_appearance(
            seq.pixels,
            draws.uniform_rows(batch, frames, 4),
            brightness=self.settings.brightness,
            channel=self.settings.channel,
        )
        with batch_statistics_only(model):
            return svic(model.embed_frames(shifted), seq.z_BTD)
