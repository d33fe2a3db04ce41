"""A small decoder from latents to pictures, trained after the fact: it shows what a latent holds, and is no part of any model.

The model stays as it is: the decoder sees latents that were computed before, and no gradient reaches what made them.
"""

# N frames, D latent, S side of a picture

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phylatent.randomness import derive_seed, seeded_init

SIDES = (16, 32, 64)
"""Pictures are this large at most: more would take minutes, and a latent says where things are, not their edges."""
HIDDEN, CHANNELS, BATCH, RATE, WARMUP = 512, 16, 64, 2e-3, 0.05
DOUBLINGS = 2
"""From the grid that the linear layers fill to the picture: most of the work is in the layers that know of no place, because
that is what a latent is, and a step on one core takes a twentieth of a second."""


def picture_side(height: int, width: int) -> int:
    """The side of decoded pictures for frames of this size."""
    return max([side for side in SIDES if side <= min(height, width)], default=SIDES[0])


def shrink(frames: np.ndarray, side: int) -> Tensor:
    """uint8 frames [N, H, W, 3] → pictures in [0, 1], [N, 3, S, S]."""
    pixels = torch.from_numpy(frames).movedim(-1, 1).float() / 255
    if pixels.shape[-2:] == (side, side):
        return pixels
    return F.interpolate(pixels, size=(side, side), mode="bilinear", antialias=True, align_corners=False).clamp(0, 1)


class Decoder(nn.Module):
    """Latents [N, D] → pictures [N, 3, S, S]: the mean picture, and what a latent adds to it."""

    latent_mean: Tensor
    latent_scale: Tensor
    mean_picture: Tensor

    def __init__(self, latent_mean: Tensor, latent_scale: Tensor, mean_picture: Tensor, seed: int = 0) -> None:
        super().__init__()
        self.register_buffer("latent_mean", latent_mean)
        self.register_buffer("latent_scale", latent_scale)
        self.register_buffer("mean_picture", mean_picture)
        self.grid = mean_picture.shape[-1] // 2**DOUBLINGS
        with seeded_init(seed, "decoder"):
            self.start = nn.Sequential(
                nn.Linear(len(latent_mean), HIDDEN),
                nn.GELU(),
                nn.Linear(HIDDEN, HIDDEN),
                nn.GELU(),
                nn.Linear(HIDDEN, CHANNELS * self.grid**2),
                nn.GELU(),
            )
            layers: list[nn.Module] = []
            for width in [CHANNELS] * (DOUBLINGS - 1) + [3]:
                layers += [nn.Conv2d(CHANNELS, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.GELU()]
            self.grow = nn.Sequential(*layers[:-1])
        last = layers[-3]
        assert isinstance(last, nn.Conv2d)
        nn.init.zeros_(last.weight)  # it begins as the mean picture
        assert last.bias is not None
        nn.init.zeros_(last.bias)

    def forward(self, latents_ND: Tensor) -> Tensor:
        grid = self.start((latents_ND - self.latent_mean) * self.latent_scale)
        return self.mean_picture + self.grow(grid.unflatten(1, (-1, self.grid, self.grid)))

    @torch.no_grad()
    def pictures(self, latents_ND: Tensor) -> Tensor:
        """In [0, 1], some at a time."""
        return torch.cat([self(part).clamp(0, 1) for part in latents_ND.split(4 * BATCH)])


def train_decoder(
    latents_ND: Tensor, pictures_N3SS: Tensor, *, steps: int, seed: int = 0, tick: Callable[[int, int], None] = lambda *_: None
) -> Decoder:
    """A decoder of these latents, by the mean squared error of pixels; `tick` is told (steps done, in all).

    `pictures_N3SS` may be uint8, which takes a quarter of the memory. The same arguments give the same decoder.
    """
    scale = 1 / latents_ND.std(0).clamp(min=1e-6)
    sums = [_pixels(part).sum(0) for part in pictures_N3SS.split(BATCH)]  # all of them as floats would fill the memory
    mean_picture = torch.stack(sums).sum(0) / len(pictures_N3SS)
    decoder = Decoder(latents_ND.mean(0), scale, mean_picture, seed)
    decoder.to(memory_format=torch.channels_last)
    optimiser = torch.optim.Adam(decoder.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, steps))
    draws = np.random.default_rng(derive_seed("decoder", seed))
    for step in range(steps):
        chosen = torch.from_numpy(draws.integers(len(latents_ND), size=BATCH))
        loss = F.mse_loss(decoder(latents_ND[chosen]), _pixels(pictures_N3SS[chosen]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        tick(step + 1, steps)
    return decoder.eval()


def _rate(step: int, steps: int) -> float:
    warmup = max(1, round(WARMUP * steps))
    return (step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _pixels(pictures: Tensor) -> Tensor:
    return pictures.float() / 255 if pictures.dtype == torch.uint8 else pictures


def psnr(squared_error: float) -> float:
    """Peak signal-to-noise ratio in dB of pixels in [0, 1], from their mean squared error; NaN where there is none at all."""
    return -10 * math.log10(squared_error) if squared_error > 0 else math.nan
