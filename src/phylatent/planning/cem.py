"""The cross-entropy method: search for actions by sampling, keeping the best, and sampling around them."""

# P problems solved side by side, N candidates, k blocks, A values of a block

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from phylatent.errors import PhylatentError

Cost = Callable[[Tensor], Tensor]
"""Candidates [P, N, k, A] → costs [P, N]."""


def cem(
    cost: Cost,
    *,
    low_A: Tensor,
    high_A: Tensor,
    horizon: int,
    candidates: int,
    elites: int,
    iterations: int,
    generators: Sequence[torch.Generator],
    start_PkA: Tensor | None = None,
    start_deviation: float = 1.0,
    mixing: Tensor | None = None,
) -> Tensor:
    """The mean [P, k, A] of the last elites, one problem per generator.

    `start_PkA` is the first mean instead of 0, `start_deviation` the first deviation. `mixing` [k·A, k·A] makes white noise
    vary together over a plan; its rows have norm 1, so that every value keeps its deviation.

    Actions are z-scored: the search starts at mean 0 with deviation 1. Candidate 0 is the mean; every candidate is clamped to
    the bounds; mean and unbiased deviation of the elites make the next round.
    """
    shape = (horizon, len(low_A))
    start = torch.zeros(len(generators), *shape, device=low_A.device) if start_PkA is None else start_PkA
    mean = start.clamp(low_A, high_A)
    deviation = torch.full_like(mean, start_deviation)
    for _ in range(iterations):
        noise = torch.stack([torch.randn(candidates, *shape, generator=g, device=low_A.device) for g in generators])
        if mixing is not None:
            noise = (noise.flatten(2) @ mixing.T).unflatten(2, shape)
        sampled = mean[:, None] + noise * deviation[:, None]
        sampled[:, 0] = mean
        sampled = sampled.clamp(low_A, high_A)
        costs = cost(sampled)
        if not costs.isfinite().any(dim=1).all():
            raise PhylatentError("the model predicts no finite latent for any candidate, so there is nothing to plan with")
        best = costs.nan_to_num(nan=torch.inf).topk(elites, dim=1, largest=False).indices
        kept = sampled.take_along_dim(best[:, :, None, None], dim=1)
        mean, deviation = kept.mean(dim=1), kept.std(dim=1)
    return mean
