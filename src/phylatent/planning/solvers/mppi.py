"""Model-predictive path integrals: every candidate counts, by how good it is beside the others."""

# P problems solved side by side, N candidates, k blocks, A values of a block

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from phylatent.planning.solver import Search, Solver
from phylatent.schema.checks import at_least, check


@dataclass(frozen=True)
class Settings:
    temperature: float = 0.1
    """How much worse a candidate may be and still count, in deviations of the candidates' costs."""
    deviation: float = 0.05
    """The least that candidates vary, in deviations of the data's actions: a single good one must not end the search."""

    def __post_init__(self) -> None:
        check(self.temperature > 0, f"mppi.temperature is {self.temperature}; it must be above 0")
        at_least("mppi", self, 0, "deviation")


def weights(costs_PN: Tensor, *, temperature: float) -> Tensor:
    """[P, N], summing to 1: softmax of −cost / (temperature × the costs' deviation), 0 where a cost is not finite.

    The deviation makes it independent of the latent space's scale, which differs from one model to the next.
    """
    finite = costs_PN.isfinite()
    count = finite.sum(dim=1, keepdim=True)
    mean = costs_PN.where(finite, 0).sum(dim=1, keepdim=True) / count
    spread = ((costs_PN - mean).where(finite, 0).square().sum(dim=1, keepdim=True) / count).sqrt()
    above = costs_PN - costs_PN.amin(dim=1, keepdim=True)
    smallest = torch.finfo(costs_PN.dtype).tiny  # where all costs are equal, so are the weights
    return (-above / (temperature * spread).clamp(min=smallest)).softmax(dim=1)


def mppi(search: Search, *, temperature: float, deviation: float) -> Tensor:
    """The weighted mean [P, k, A] of the last candidates; weighted mean and deviation make the next round."""
    mean = search.first_mean()
    spread = torch.full_like(mean, search.start_deviation)
    for _ in range(search.iterations):
        sampled = search.sample(mean, spread)
        weight = weights(search.costs(sampled), temperature=temperature)[:, :, None, None]
        mean = (weight * sampled).sum(dim=1)
        spread = (weight * (sampled - mean[:, None]).square()).sum(dim=1).sqrt().clamp(min=deviation)
    return mean.clamp(search.low_A, search.high_A)


SOLVER = Solver("mppi", mppi, Settings, unused=("elites",))
