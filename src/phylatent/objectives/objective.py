"""What every objective sees and what every objective is."""

# B batch, T frames, H context frames, D latent, A action block, S physical target

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from phylatent.models.world_model import WorldModel
from phylatent.randomness import Draws

EPSILON = 1e-8
PLACES = Z, ZHAT = "z", "zhat"
"""Where a gradient enters the model: at the clean latents the encoder, at the predicted ones the predictor."""


@dataclass(frozen=True)
class ObjectiveSettings:
    """What every objective can be told. Its own settings come in its own subclass."""

    weight: float = 0.0
    """Its factor in the sum. With `train.balance=shares`: where it starts, and stays within a factor of 1,000 of."""
    share: float = 0.5
    """How strong its gradient is kept beside the prediction's, with `train.balance=shares`."""


@dataclass(frozen=True)
class Dims:
    latent: int
    target: int
    action: int
    """Of an action block."""


@dataclass(frozen=True)
class OpenLoop:
    """k blocks in a row: the latents before and after each, and the embedded blocks."""

    z_BLD: Tensor
    """L = k + 1"""
    c_BkD: Tensor


@dataclass(frozen=True)
class Beside:
    """What an objective asked to see beside the clip, after the pass that both went through."""

    z_BtD: Tensor | None = None
    """The latents of its `more_frames`"""
    actions_BHA: Tensor | None = None
    """Its `more_actions`"""
    predicted_BHD: Tensor | None = None
    """What the model predicts from them"""


@dataclass(frozen=True)
class Sequences:
    """The shared graph of one step, eq:phylatent_sequence."""

    pixels: Tensor
    """O: normalised frames [B, T, 3, size, size]"""
    actions_BHA: Tensor
    """A_ctx, z-scored"""
    z_BTD: Tensor
    """Z = P(E(O))"""
    c_BHD: Tensor
    """C^a_ctx = G_a(A_ctx)"""
    z_context_BHD: Tensor
    """Z_ctx"""
    z_future_BHD: Tensor
    """Z⁺"""
    z_predicted_BHD: Tensor
    """Ẑ = F_θ(Z_ctx, C^a_ctx)"""
    targets_BTS: Tensor
    """S̄, z-scored, angles as `psg.angles` says; a row with NaN is unknown"""
    offset: int
    """K"""
    open_loop: OpenLoop | None = None
    """What a rollout is to see where it is not the clip: the predictor's own steps have longer ones, and begin with shorter."""
    beside: Mapping[str, Beside] = field(default_factory=dict)
    """By the name of the objective that asked for it."""


class Objective(nn.Module):
    """One objective: settings, at most one training-only head, and a loss of the shared graph.

    The mean of the returned loss over processes is the loss of the global batch.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[ObjectiveSettings]] = ObjectiveSettings
    of_prediction: ClassVar[bool] = False
    """Whether it teaches the predictor something; the others only shape the encoder."""

    def __init__(self, settings: Any, dims: Dims) -> None:
        super().__init__()
        self.settings = settings

    @property
    def acts_on(self) -> tuple[str, ...]:
        """The places at which its gradient is measured to keep it at its share."""
        return (ZHAT,) if self.of_prediction else (Z,)

    def more_frames(self, pixels: Tensor, draws: Draws) -> Tensor | None:
        """Frames [B, t, 3, size, size] to encode beside the clip's; `seq.beside[self.name].z_BtD` has their latents."""
        return None

    def more_actions(self, actions_BHA: Tensor, draws: Draws) -> Tensor | None:
        """Actions [B, H, A] to predict from beside the clip's own; `seq.beside[self.name].predicted_BHD` has the outcome."""
        return None

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no loss")
