"""How far a plan is from its goal, written once: for searches, for records, and for other libraries' solvers."""

# N any batch, k blocks ahead, D latent, S what is read off a latent

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


def squared_distance(z_ND: Tensor, goal_ND: Tensor, *, readout_DS: Tensor | None = None) -> Tensor:
    """[N]: the squared distance of latents to the goal's, or of what a linear map reads off the two."""
    away = z_ND - goal_ND
    if readout_DS is not None:
        away = away @ readout_DS.to(away)
    return away.square().sum(-1)


def end_and_way(costs_Nk: Tensor, *, running: float) -> Tensor:
    """[N]: the cost at a plan's end, and `running` times the mean of those before it; a plan of one block has none."""
    on_the_way = costs_Nk[..., :-1].mean(-1) if running and costs_Nk.shape[-1] > 1 else 0.0
    return costs_Nk[..., -1] + running * on_the_way


@dataclass(frozen=True)
class GoalCost:
    """The paper's as it stands: the squared distance of the last imagined latent to the goal's."""

    readout_DS: Tensor | None = None
    """What is compared instead of latents (`plan.cost=readout`)."""
    running: float = 0.0
    """Weight of the cost on the way (`plan.running`)."""

    def of_latents(self, z_ND: Tensor, goal_ND: Tensor) -> Tensor:
        """[N]: the cost of being at these latents."""
        return squared_distance(z_ND, goal_ND, readout_DS=self.readout_DS)

    def of_plans(self, imagined_NkD: Tensor, goal_ND: Tensor) -> Tensor:
        """[N]: the cost of plans that are expected to lead through these latents."""
        return end_and_way(self.of_latents(imagined_NkD, goal_ND[..., None, :]), running=self.running)
