"""FRA, future representation alignment: predicted and observed futures agree in two views."""

# B batch, H context, D latent

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from phylatent.models.heads import ActionQuery, ProjectionHead
from phylatent.models.world_model import WorldModel
from phylatent.objectives.distance import MEAN, check_reduction, normalized_mse
from phylatent.objectives.objective import Dims, Objective, ObjectiveSettings, Sequences
from phylatent.randomness import Draws


def alignment(view: Callable[[Tensor], Tensor], predicted: Tensor, future: Tensor, *, reduction: str = MEAN) -> Tensor:
    """d_N(view(Ẑ), sg(view(Z⁺))): the stop-gradient comes after the view, so the target moves neither latents nor view.

    With φ as the view this is eq:projection_alignment, with Ψ(·, C^a_ctx) it is eq:action_query_alignment.
    """
    with torch.no_grad():
        target = view(future)
    return normalized_mse(view(predicted), target, reduction=reduction)


@dataclass(frozen=True)
class FraSettings(ObjectiveSettings):
    share: float = 0.2
    reduction: str = MEAN
    """`mean`: the paper's distance. `sum`: 2 − 2 cos, whatever the latent's size."""

    def __post_init__(self) -> None:
        check_reduction("fra", self.reduction)


class Fra(Objective):
    """FRA, future representation alignment (eq:future_alignment): predicted and observed futures agree in two views."""

    name = "fra"
    Settings = FraSettings
    of_prediction = True

    def __init__(self, settings: FraSettings, dims: Dims) -> None:
        super().__init__(settings, dims)
        self.projection = ProjectionHead(dims.latent)
        self.action_query = ActionQuery(dims.latent)

    def forward(self, seq: Sequences, model: WorldModel, draws: Draws) -> Tensor:
        futures = seq.z_predicted_BHD, seq.z_future_BHD
        reduction = self.settings.reduction
        by_action = alignment(lambda x_BHD: self.action_query(x_BHD, seq.c_BHD), *futures, reduction=reduction)
        return alignment(self.projection, *futures, reduction=reduction) + by_action
