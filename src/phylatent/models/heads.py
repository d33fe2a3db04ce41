"""The training-only heads of tab:auxiliary_architectures. None of them is ever exported."""

# B batch, T time, D latent

from __future__ import annotations

import torch
from torch import Tensor, nn


class StateHead(nn.Sequential):
    """H_s: latent → physical target."""

    def __init__(self, width: int, target_dim: int) -> None:
        super().__init__(nn.LayerNorm(width), nn.Linear(width, 512), nn.GELU(), nn.Linear(512, target_dim))


class ProjectionHead(nn.Sequential):
    """φ: latent → the 128-dimensional space in which FRA's first branch compares futures."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.LayerNorm(width), nn.Linear(width, 128), nn.GELU(), nn.Linear(128, 128))


class ActionQuery(nn.Module):
    """Ψ, eq:action_query_module: one query from the mean context action, the latent sequence as keys and values."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.attention = nn.MultiheadAttention(width, num_heads=4, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x_BTD: Tensor, c_BTD: Tensor) -> Tensor:
        query_B1D = self.query(c_BTD.mean(1, keepdim=True))  # eq:mean_action_embedding
        mixed_B1D, _ = self.attention(query_B1D, self.key(x_BTD), self.value(x_BTD), need_weights=False)
        return self.norm(mixed_B1D.squeeze(1))


class Denoiser(nn.Module):
    """D_ω: noisy future, predicted future, action embedding and noise scale → the noise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inputs = 3 * width + 1
        self.net = nn.Sequential(
            nn.LayerNorm(inputs),
            nn.Linear(inputs, 768),
            nn.GELU(),
            nn.Linear(768, 768),
            nn.GELU(),
            nn.Linear(768, width),
        )

    def forward(self, noisy_BTD: Tensor, predicted_BTD: Tensor, c_BTD: Tensor, sigma_BT1: Tensor) -> Tensor:
        return self.net(torch.cat([noisy_BTD, predicted_BTD, c_BTD, sigma_BT1], dim=-1))
