"""Down the gradient of the cost, through the model's rollout: from several starts, or from what a search has found."""

# P problems solved side by side, N starts, k blocks, A values of a block

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from phylatent.errors import UserError
from phylatent.planning.solver import Cost, Search, Solver, finite_somewhere, pick
from phylatent.schema.checks import at_least, check

ROLLOUTS_OF_A_STEP = 3
"""What a step costs beside a candidate of a search by sampling: once forward, and backward about twice as much."""


@dataclass(frozen=True)
class Settings:
    starts: int = 4
    """Plans that descend side by side. They share the search's rollouts: with more of them, each makes fewer steps."""
    rate: float = 0.1
    """How far a step goes, in deviations of the data's actions."""

    def __post_init__(self) -> None:
        at_least("gradient", self, 1, "starts")
        check(self.rate > 0, f"gradient.rate is {self.rate}; it must be above 0")


def descend(cost: Cost, start_PNkA: Tensor, *, low_A: Tensor, high_A: Tensor, steps: int, rate: float) -> tuple[Tensor, Tensor]:
    """The best plans [P, N, k, A] on the way down from each start, and their costs [P, N]; each step clamped to the bounds.

    Adam's step does not depend on the scale of the cost, which differs from one latent space to the next.
    """
    plan = start_PNkA.detach().clone().requires_grad_()
    best, lowest = start_PNkA.detach().clone(), torch.full(plan.shape[:-2], torch.inf, device=plan.device)
    optimizer = torch.optim.Adam([plan], lr=rate)
    for step in range(steps + 1):
        with torch.enable_grad():
            costs = cost(plan)
            total = costs.sum()
        better = costs.detach() < lowest
        best[better], lowest[better] = plan.detach()[better], costs.detach()[better]
        if step == steps:
            break
        if not total.requires_grad:
            raise UserError(
                "steps down the gradient need a model whose rollout can be differentiated, and this one's cannot; choose "
                "another plan.solver and leave plan.gradient_steps at 0"
            )
        (plan.grad,) = torch.autograd.grad(total, plan)  # and none of the model's weights
        optimizer.step()
        with torch.no_grad():
            plan.clamp_(low_A, high_A)
    return best, lowest


def gradient(search: Search, *, starts: int, rate: float) -> Tensor:
    """The best plans [P, k, A] that any start led to; the first start is the search's own, the others lie around it."""
    mean = search.first_mean()
    begun = replace(search, candidates=starts).sample(mean, torch.full_like(mean, search.start_deviation))
    each = search.candidates * search.iterations // starts
    steps = max(1, (each - 1) // ROLLOUTS_OF_A_STEP)  # the place after the last step is rolled out, too
    plans, costs = descend(search.cost, begun, low_A=search.low_A, high_A=search.high_A, steps=steps, rate=rate)
    return pick(plans, finite_somewhere(costs).argmin(dim=1, keepdim=True))[:, 0]


SOLVER = Solver("gradient", gradient, Settings, unused=("elites",))
