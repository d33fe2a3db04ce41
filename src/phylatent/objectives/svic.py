"""SVIC, the static visual invariance constraint: appearance must not move the latent."""

# B batch, T time, D latent

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from phylatent.models.world_model import WorldModel
from phylatent.objectives.appearance import FAMILY, vary
from phylatent.objectives.distance import MEAN, check_reduction, normalized_mse
from phylatent.objectives.objective import Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws
from phylatent.schema.checks import as_tuples, at_least, check, choices


def shift_appearance(pixels: Tensor, uniform_BT4: Tensor, *, brightness: float, channel: float) -> Tensor:
    """A(O) of eq:visual_augmentation on normalised pixels [B, T, 3, H, W], from uniform draws in [0, 1).

    One brightness offset in [−b, b] per frame and one in [−c, c] per frame and channel; not clipped.
    """
    signed = 2 * uniform_BT4 - 1
    offsets_BT3 = brightness * signed[..., :1] + channel * signed[..., 1:]
    return pixels + offsets_BT3[..., None, None]


def svic(z_augmented: Tensor, z: Tensor, *, reduction: str = MEAN) -> Tensor:
    """L_inv of eq:visual_invariance: only the augmented branch moves."""
    return normalized_mse(z_augmented, z.detach(), reduction=reduction)


OFFSETS, BROAD = FAMILIES = ("offsets", "broad")


@dataclass(frozen=True)
class SvicSettings(ObjectiveSettings):
    share: float = 0.2
    family: str = OFFSETS
    """What is done to a frame: the paper's offsets, or random ones of `kinds` (objectives/appearance.py)."""
    brightness: float = 0.0
    """For `offsets`: the range of the paper's brightness offset."""
    channel: float = 0.0
    """For `offsets`: the range of its offset of each colour."""
    kinds: tuple[str, ...] = ("brightness", "contrast", "hue", "blur", "shading", "stripes")
    """For `broad`. No image noise and no checker: the diagnosis asks for those, and should find a model that never saw them."""
    strength: float = 1.0
    """For `broad`: scales all of it."""
    light: float = 1.0
    """For `broad`: scales brightness and contrast once more."""
    reduction: str = MEAN
    """`mean`: the paper's distance. `sum`: 2 − 2 cos, whatever the latent's size."""
    frames: int | None = None
    """Of each clip, drawn anew at every step: a pass over half of them costs half. Unset: all."""

    def __post_init__(self) -> None:
        as_tuples(self, "kinds")
        at_least("svic", self, 1, "frames")
        check(self.family in FAMILIES, f"svic.family is {self.family!r}; it must be one of {', '.join(FAMILIES)}")
        choices("svic.kinds", self.kinds, tuple(FAMILY))
        at_least("svic", self, 0, "strength", "light")
        check_reduction("svic", self.reduction)


class Svic(Objective):
    name = "svic"
    Settings = SvicSettings

    def more_frames(self, pixels: Tensor, draws: Draws) -> Tensor:
        times = self._times(pixels.shape[1], draws)
        return self._change(pixels if times is None else pixels[:, times], draws)

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        times, changed = self._times(seq.z_BTD.shape[1], draws), seq.beside[self.name].z_BtD
        assert changed is not None
        return svic(changed, seq.z_BTD if times is None else seq.z_BTD[:, times], reduction=self.settings.reduction)

    def _times(self, frames: int, draws: Draws) -> Tensor | None:
        """The frames of a clip that it looks at; None for all of them."""
        if self.settings.frames is None:
            return None
        return draws.named("frames").permutation(frames)[: self.settings.frames].sort().values

    def _change(self, pixels: Tensor, draws: Draws) -> Tensor:
        settings = self.settings
        if settings.family == BROAD:
            return vary(pixels, draws, kinds=settings.kinds, strength=settings.strength, light=settings.light)
        uniform_BT4 = draws.uniform_rows(*pixels.shape[:2], 4)
        return shift_appearance(pixels, uniform_BT4, brightness=settings.brightness, channel=settings.channel)


SAME_FORM = {"brightness": "brightness", "contrast": "brightness", "hue": "colour", "noise": "noise"}
"""Kind of change in training → the diagnosed perturbation that has its form. A blur is none of them; a shading is smooth and
has at most 8 cells to a side, and stripes are smooth and run one way, where the diagnosed texture is a hard-edged checker."""


def seen_in_training(trained: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The diagnosed perturbations whose form a model was trained with, by its training's configuration; None without one."""
    if not trained:
        return None
    settings = trained.get("svic") if "svic" in (trained.get("objectives") or trained.get("terms", ("svic",))) else None
    if settings is None:
        return ()
    if settings.get("family", OFFSETS) == OFFSETS:
        return ("brightness", "colour")
    return tuple(dict.fromkeys(SAME_FORM[kind] for kind in FAMILY if kind in settings["kinds"] and kind in SAME_FORM))
