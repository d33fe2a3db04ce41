"""How candidates vary over a plan: white noise, mixed so that its values vary together."""

# P problems, N candidates, k blocks, A values of a block, T steps of a plan

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor


def draw(generators: Sequence[torch.Generator], count: int, shape: tuple[int, int], mixing: Tensor | None = None) -> Tensor:
    """[P, N, k, A], each problem's from its own generator: what else is searched beside it does not matter."""
    white = torch.stack([torch.randn(count, *shape, generator=g, device=g.device) for g in generators])
    return white if mixing is None else (white.flatten(2) @ mixing.T).unflatten(2, shape)


def mixing_matrix(covariance: np.ndarray) -> Tensor:
    """White noise times this has that covariance; rows have norm 1, so that every value keeps its deviation."""
    values, vectors = np.linalg.eigh(covariance)
    mixing = vectors * np.sqrt(np.maximum(values, 1e-6))
    mixing /= np.linalg.norm(mixing, axis=1, keepdims=True)
    return torch.tensor(mixing, dtype=torch.float32)


@cache
def coloured(steps: int, dims: int, beta: float) -> Tensor:
    """[T·dims, T·dims]: mixes white noise into noise whose power falls as frequency^−beta over a plan's steps.

    0 leaves it white; 2 is as smooth as a random walk. Dimensions of an action vary apart from each other. The spectrum is of
    twice the plan's length, so that the plan's end is not tied to its beginning; its constant part is as strong as its slowest
    wave.
    """
    waves = np.arange(steps + 1)
    power = np.maximum(waves, 1.0) ** -beta
    power[1:-1] *= 2  # a wave inside the band stands for a positive and a negative frequency
    lags = np.arange(steps)[:, None] - np.arange(steps)
    covariance = (power * np.cos(np.pi * lags[..., None] * waves / steps)).sum(-1) / power.sum()
    return torch.kron(mixing_matrix(covariance), torch.eye(dims))
