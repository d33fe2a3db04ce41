"""What a solver is, and what it is given: the seam between a planner and the ways to search."""

# P problems solved side by side, N candidates, k blocks, A values of a block

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from phylatent.errors import PhylatentError
from phylatent.planning.noise import draw

Cost = Callable[[Tensor], Tensor]
"""Candidates [P, N, k, A] → costs [P, N], for any N; differentiable where the model's rollout is."""


@dataclass(frozen=True)
class Search:
    """A search for plans [P, k, A], one problem for each generator. Actions are z-scored: 0 is the data's mean action."""

    cost: Cost
    low_A: Tensor
    high_A: Tensor
    horizon: int
    candidates: int
    elites: int
    iterations: int
    """`candidates` × `iterations` is what a search may spend: rollouts of the model."""
    generators: Sequence[torch.Generator]
    start_PkA: Tensor | None = None
    """Where it starts instead of 0."""
    start_deviation: float = 1.0
    """How far from there the first candidates are."""
    mixing: Tensor | None = None
    """[k·A, k·A], as `noise.mixing_matrix` makes one; None for white noise."""
    stride: int = 1
    """Actions in a block, one after the other among its values."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.horizon, len(self.low_A)

    def first_mean(self) -> Tensor:
        """[P, k, A], within the bounds."""
        zeros = torch.zeros(len(self.generators), *self.shape, device=self.low_A.device)
        return (zeros if self.start_PkA is None else self.start_PkA).clamp(self.low_A, self.high_A)

    def sample(self, mean_PkA: Tensor, deviation_PkA: Tensor) -> Tensor:
        """Candidates [P, N, k, A] around a mean, which is candidate 0, all within the bounds."""
        noise = draw(self.generators, self.candidates, self.shape, self.mixing)
        sampled = mean_PkA[:, None] + noise * deviation_PkA[:, None]
        sampled[:, 0] = mean_PkA
        return sampled.clamp(self.low_A, self.high_A)

    def costs(self, candidates_PNkA: Tensor) -> Tensor:
        """[P, N]; infinite where the model predicts nothing finite."""
        return finite_somewhere(self.cost(candidates_PNkA))


def finite_somewhere(costs_PN: Tensor) -> Tensor:
    """The costs, infinite where they are not finite; an error where a problem has no finite one."""
    finite = costs_PN.isfinite()
    if not finite.any(dim=1).all():
        raise PhylatentError("the model predicts no finite latent for any candidate, so there is nothing to plan with")
    return costs_PN.where(finite, torch.inf)


def pick(candidates_PNkA: Tensor, places_Pn: Tensor) -> Tensor:
    """[P, n, k, A]: of each problem the candidates at these places."""
    return candidates_PNkA.take_along_dim(places_Pn[:, :, None, None], dim=1)


@dataclass(frozen=True)
class NoSettings:
    """For a solver that needs no settings beside those of `plan`."""


@dataclass(frozen=True)
class Solver:
    """What a solver's file declares as SOLVER."""

    name: str
    """The section of its settings on the command line."""
    solve: Callable[..., Tensor]
    """(search, **settings) → plans [P, k, A]. Random numbers come from the search's generators alone."""
    Settings: type = NoSettings
    """A frozen dataclass whose fields are what `solve` takes beside the search."""
    always_warm: bool = False
    """Whether a search starts from what the last plan left, whatever `plan.warm` says."""
    unused: tuple[str, ...] = ()
    """Settings of `plan` that mean nothing to it."""
