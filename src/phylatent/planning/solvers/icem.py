"""The cross-entropy method, improved: candidates vary smoothly over a plan, elites stay, and the best one is returned.

A search starts at the last plan, moved on by what was executed, whenever there is one: `plan.warm`, which is always on here.
"""

# P problems solved side by side, N candidates, k blocks, A values of a block

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from phylatent.planning.noise import coloured
from phylatent.planning.solver import Search, Solver, pick
from phylatent.schema.checks import at_least, check


@dataclass(frozen=True)
class Settings:
    beta: float = 2.0
    """How smoothly candidates vary over a plan: noise power falls as frequency^−beta. It takes the place of `plan.noise`."""
    kept: float = 0.3
    """Share of the elites that are candidates of the next round as well."""

    def __post_init__(self) -> None:
        at_least("icem", self, 0, "beta", "kept")
        check(self.kept <= 1, f"icem.kept is {self.kept}; it is a share of the elites, in [0, 1]")


def icem(search: Search, *, beta: float, kept: float) -> Tensor:
    """The best candidates [P, k, A] of all rounds."""
    mixing = coloured(search.horizon * search.stride, len(search.low_A) // search.stride, beta)
    search = replace(search, mixing=mixing.to(search.low_A.device))
    staying = min(round(kept * search.elites), search.candidates - 1)
    mean = best = search.first_mean()
    deviation = torch.full_like(mean, search.start_deviation)
    lowest = torch.full((len(mean),), torch.inf, device=mean.device)
    elites = mean[:, None][:, :0]
    for _ in range(search.iterations):
        sampled = search.sample(mean, deviation)
        stay = elites[:, :staying]
        sampled[:, 1 : 1 + stay.shape[1]] = stay
        costs, places = search.costs(sampled).topk(search.elites, dim=1, largest=False)
        elites = pick(sampled, places)
        mean, deviation = elites.mean(dim=1), elites.std(dim=1)
        better = costs[:, 0] < lowest
        best = torch.where(better[:, None, None], elites[:, 0], best)
        lowest = torch.minimum(lowest, costs[:, 0])
    return best


SOLVER = Solver("icem", icem, Settings, always_warm=True, unused=("noise", "warm"))
