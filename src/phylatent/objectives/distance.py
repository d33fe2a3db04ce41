"""The normalised mean-squared distance that SVIC and FRA share."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from phylatent.objectives.term import EPSILON


def normalized_mse(x: Tensor, y: Tensor) -> Tensor:
    """d_N of eq:normalized_mse: the mean over *all* elements, so it equals the mean of (2 − 2 cos) / D."""
    x, y = F.normalize(x.float(), dim=-1, eps=EPSILON), F.normalize(y.float(), dim=-1, eps=EPSILON)
    return (x - y).square().mean()
