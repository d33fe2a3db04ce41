"""The normalised mean-squared distance that SVIC and FRA share."""

# D the last axis

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from phylatent.objectives.objective import EPSILON
from phylatent.schema.checks import check

MEAN, SUM = REDUCTIONS = ("mean", "sum")


def normalized_mse(x: Tensor, y: Tensor, *, reduction: str = MEAN) -> Tensor:
    """d_N of eq:normalized_mse: the mean over *all* elements, so it equals the mean of (2 − 2 cos) / D.

    `sum` sums over the last axis, and equals the mean of 2 − 2 cos: the same whatever the latent's size.
    """
    x, y = F.normalize(x.float(), dim=-1, eps=EPSILON), F.normalize(y.float(), dim=-1, eps=EPSILON)
    squared = (x - y).square()
    return squared.sum(dim=-1).mean() if reduction == SUM else squared.mean()


def check_reduction(section: str, reduction: str) -> None:
    allowed = ", ".join(REDUCTIONS)
    check(reduction in REDUCTIONS, f"{section}.reduction is {reduction!r}; it must be one of {allowed}")
