"""The cross-entropy method, the paper's: sample, keep the best, sample around them."""

# P problems solved side by side, k blocks, A values of a block

from __future__ import annotations

import torch
from torch import Tensor

from phylatent.planning.solver import Search, Solver, pick


def cem(search: Search) -> Tensor:
    """The mean [P, k, A] of the last elites; mean and unbiased deviation of the elites make the next round."""
    mean = search.first_mean()
    deviation = torch.full_like(mean, search.start_deviation)
    for _ in range(search.iterations):
        sampled = search.sample(mean, deviation)
        elites = pick(sampled, search.costs(sampled).topk(search.elites, dim=1, largest=False).indices)
        mean, deviation = elites.mean(dim=1), elites.std(dim=1)
    return mean


SOLVER = Solver("cem", cem)
