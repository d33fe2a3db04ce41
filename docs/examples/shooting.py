"""Random shooting, a whole solver: all candidates at once around the start, and the best of them.

phylatent plan RUN solver=docs/examples/shooting.py shooting.reach=1.5 out=runs/shooting
"""

from dataclasses import dataclass, replace

import torch

from phylatent.planning.solver import Search, Solver, pick


@dataclass(frozen=True)
class Settings:
    reach: float = 1.0
    """How far candidates are from the start, in deviations of the data's actions."""


def shooting(search: Search, *, reach: float) -> torch.Tensor:
    mean = search.first_mean()
    at_once = replace(search, candidates=search.candidates * search.iterations)
    sampled = at_once.sample(mean, torch.full_like(mean, reach))
    return pick(sampled, at_once.costs(sampled).argmin(dim=1, keepdim=True))[:, 0]


SOLVER = Solver("shooting", shooting, Settings, unused=("elites", "warm_deviation"))
