"""L_pred: the baseline's prediction loss, eq:lewm_pred and eq:sequence_prediction."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import PLACES, ZHAT, Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws


def prediction(predicted: Tensor, future: Tensor, *, stop_gradient: bool = True) -> Tensor:
    """MSE(Ẑ, sg(Z⁺)). The paper stops the gradient at the target; reference LeWM does not."""
    future = future.detach() if stop_gradient else future
    return (predicted.float() - future.float()).square().mean()


@dataclass(frozen=True)
class PredictionSettings(ObjectiveSettings):
    weight: float = 1.0
    share: float = 1.0
    """The other shares are relative to this one."""
    stop_gradient: bool = False
    """The paper's equation has it, and so has the preset `paper`; what it costs at laptop scale is in docs/experiments.md."""


class Prediction(Objective):
    name = "pred"
    Settings = PredictionSettings
    of_prediction = True

    @property
    def acts_on(self) -> tuple[str, ...]:
        return (ZHAT,) if self.settings.stop_gradient else PLACES

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        return prediction(seq.z_predicted_BHD, seq.z_future_BHD, stop_gradient=self.settings.stop_gradient)
