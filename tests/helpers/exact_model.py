"""A TwoRooms model that is exact by construction and sees pixels only: diagnostics and planning must find no fault with it."""

# N frames or starts, k blocks, A raw action values of a block (steps × 2), S frame size

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

WORLD = 224.0
"""The environment's own pixels: states are in these, whatever the frame's size."""
SPEED = 5.0
DOT = 7.0
SHIFTS = 30


class ExactTwoRooms:
    """Latent: the agent's (x, y), z-scored. Rollout: the environment's dynamics in free space; it knows no walls.

    `shift` delays its actions by that many blocks: a model whose predictions lag behind the simulator.
    """

    def __init__(self, *, mean: float = 112.0, std: float = 50.0, shift: int = 0) -> None:
        self.mean, self.std, self.shift = mean, std, shift

    def encode(self, frames_NSS3: Tensor) -> Tensor:
        return (read_positions(frames_NSS3) - self.mean) / self.std

    def rollout(self, z_N2: Tensor, blocks_NkA: Tensor) -> Tensor:
        steps = blocks_NkA.unflatten(-1, (-1, 2)).clamp(-1, 1).sum(dim=2)
        if self.shift:
            steps = torch.cat([torch.zeros_like(steps[:, : self.shift]), steps[:, : -self.shift]], dim=1)
        return z_N2[:, None] + SPEED * steps.cumsum(dim=1) / self.std


def read_positions(frames_NSS3: Tensor) -> Tensor:
    """(x, y) of the red dot, float32 [N, 2].

    Red minus the other channels is the dot's own Gaussian on white floor and black wall alike. Mean shift under a window of the
    same shape finds its centre: an even offset, as a tint leaves one, only slows it down.
    """
    size = frames_NSS3.shape[1]
    pixels = frames_NSS3.float()
    red_NSS = pixels[..., 0] - pixels[..., 1:].mean(dim=-1)
    red_NSS = (red_NSS - red_NSS.flatten(1).median(dim=1).values[:, None, None]).clamp(min=0)
    places_S = (torch.arange(size) + 0.5) * WORLD / size - 0.5
    smooth = F.avg_pool2d(red_NSS[:, None], 3, stride=1, padding=1)[:, 0]
    brightest = smooth.flatten(1).argmax(dim=1)
    x, y = places_S[brightest % size], places_S[brightest // size]
    for _ in range(SHIFTS):
        across = torch.exp(-((places_S - x[:, None]) ** 2) / (2 * DOT**2))
        down = torch.exp(-((places_S - y[:, None]) ** 2) / (2 * DOT**2))
        weights_NSS = red_NSS * down[:, :, None] * across[:, None, :]
        total = weights_NSS.sum(dim=(1, 2)).clamp(min=1e-6)
        x = (weights_NSS.sum(dim=1) * places_S).sum(dim=1) / total
        y = (weights_NSS.sum(dim=2) * places_S).sum(dim=1) / total
    return torch.stack([x, y], dim=1)
