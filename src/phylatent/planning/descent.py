"""Down the gradient of the cost: polishes what a search by sampling has found."""

# P problems solved side by side, k blocks, A values of a block

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from phylatent.errors import UserError

Cost = Callable[[Tensor], Tensor]
"""Plans [P, k, A] → costs [P], differentiable."""


def descend(cost: Cost, start_PkA: Tensor, *, low_A: Tensor, high_A: Tensor, steps: int, rate: float) -> Tensor:
    """The best plans [P, k, A] among the start and `steps` steps of Adam from it, each clamped to the bounds.

    Adam's step does not depend on the scale of the cost, which differs from one latent space to the next.
    """
    plan = start_PkA.detach().clone().requires_grad_()
    best, lowest = start_PkA.detach().clone(), torch.full(plan.shape[:1], torch.inf, device=plan.device)
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
            raise UserError("plan.gradient_steps needs a model whose rollout can be differentiated; leave it at 0 for this one")
        (plan.grad,) = torch.autograd.grad(total, plan)  # and none of the model's weights
        optimizer.step()
        with torch.no_grad():
            plan.clamp_(low_A, high_A)
    return best
