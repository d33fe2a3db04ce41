"""CASC, the counterfactual action separation constraint: other actions must predict other futures."""

# B batch, H context, D latent, A action block

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from phylatent import distributed
from phylatent.models.world_model import WorldModel
from phylatent.objectives.objective import Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws


def counterfactual_actions(global_BHA: Tensor, permutation: Tensor, normal_BHA: Tensor, *, noise: float) -> Tensor:
    """eq:counterfactual_action: whole context blocks of another sample, plus noise."""
    return global_BHA[permutation] + noise * normal_BHA


def distance(x: Tensor, y: Tensor) -> Tensor:
    """eq:counterfactual_distances: ‖x − y‖ / √dim. Where both coincide the gradient is 0, not NaN."""
    return torch.linalg.vector_norm(x.float() - y.float(), dim=-1) / x.shape[-1] ** 0.5


def casc(
    predicted_cf_BHD: Tensor,
    predicted_BHD: Tensor,
    action_distance_BH: Tensor,
    median: Tensor,
    *,
    margin_scale: float,
    max_margin: float,
) -> Tensor:
    """L_sep of eq:counterfactual_separation, with the margin of eq:counterfactual_margin and the active set of
    eq:counterfactual_active_set. The factual branch is a reference and does not move. 0 when nothing is active."""
    separation = distance(predicted_cf_BHD, predicted_BHD.detach())
    margin = (margin_scale * action_distance_BH).clamp(max=max_margin)
    return distributed.masked_mean((margin - separation).relu(), action_distance_BH > median)


@dataclass(frozen=True)
class CascSettings(ObjectiveSettings):
    share: float = 0.1
    action_noise: float = 0.0
    """Deviation of the noise on counterfactual actions (eq:counterfactual_action)."""
    margin_scale: float = 0.0
    """How far apart futures must be for a distance of their actions (eq:counterfactual_margin)."""
    max_margin: float = 0.0
    """The most that is asked for."""


class Casc(Objective):
    name = "casc"
    Settings = CascSettings
    of_prediction = True

    def more_actions(self, actions_BHA: Tensor, draws: Draws) -> Tensor:
        everyone = distributed.gather_rows(actions_BHA)
        permutation = draws.named("permutation").permutation(everyone.shape[0])
        return counterfactual_actions(
            everyone,
            permutation[distributed.own_rows(actions_BHA.shape[0])],
            draws.named("noise").normal_rows(*actions_BHA.shape),
            noise=self.settings.action_noise,
        )

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        other = seq.beside[self.name]  # eq:counterfactual_prediction
        assert other.actions_BHA is not None
        assert other.predicted_BHD is not None
        action_distance = distance(other.actions_BHA, seq.actions_BHA)
        return casc(
            other.predicted_BHD,
            seq.z_predicted_BHD,
            action_distance,
            distributed.gather_rows(action_distance).median(),
            margin_scale=self.settings.margin_scale,
            max_margin=self.settings.max_margin,
        )
