"""The linear map that reads the physical state off latents: what validation scores, and a cost that planning can use."""

# N frames, D latent, S what is read

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

RIDGE = 1e-6


@dataclass(frozen=True)
class LinearMap:
    mean_D: Tensor
    weights_DS: Tensor
    mean_S: Tensor

    def __call__(self, z_ND: Tensor) -> Tensor:
        return (z_ND - self.mean_D) @ self.weights_DS + self.mean_S


def fit_linear(z_ND: Tensor, s_NS: Tensor) -> LinearMap:
    """Ridge least squares with an intercept."""
    mean_z, mean_s = z_ND.mean(0), s_NS.mean(0)
    centred = z_ND - mean_z
    gram = centred.T @ centred
    ridge = RIDGE * gram.diagonal().mean().clamp(min=1e-12)
    weights = torch.linalg.solve(gram + ridge * torch.eye(len(gram), dtype=gram.dtype), centred.T @ (s_NS - mean_s))
    return LinearMap(mean_z, weights, mean_s)
