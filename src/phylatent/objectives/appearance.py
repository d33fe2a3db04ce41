"""A broad photometric family, for SVIC beyond the paper's offsets. Normalised pixels [B, T, 3, H, W] in, the same out.

Every frame of a batch gets changes of its own; nothing is clipped.
"""

# B batch, T time, C = 3 channels, H height, W width, g cells of a coarse grid

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from phylatent.randomness import Draws

APPLIED = 0.5
"""The chance that a frame gets a kind of change."""
BRIGHTNESS, CONTRAST, HUE, SHADING, STRIPES, NOISE = 0.4, 0.2, 0.1, 0.4, 1.0, 0.3
"""The most that `strength=1` does, in units of normalised pixels (0.1 is about 6 of 255)."""
LIGHT = ("brightness", "contrast")
"""The kinds that `light` makes stronger than the others."""
COARSEST, FINEST = 4, 8
"""Cells of a shading's grid, to a side."""
FEWEST, MOST = 2.0, 10.0
"""Stripes across a frame."""


def brighten(pixels: Tensor, offset_BT: Tensor) -> Tensor:
    return pixels + _everywhere(offset_BT)


def stretch(pixels: Tensor, gain_BT: Tensor) -> Tensor:
    """Contrast: distances from the frame's mean grow by `gain`."""
    mean = pixels.mean(dim=(-3, -2, -1), keepdim=True)
    return pixels + _everywhere(gain_BT) * (pixels - mean)


def mix_channels(pixels: Tensor, matrix_BTCC: Tensor) -> Tensor:
    """Hue and saturation: every channel gets a share of every channel."""
    return pixels + torch.einsum("btij,btjhw->btihw", matrix_BTCC, pixels)


def blur(pixels: Tensor, amount_BT: Tensor) -> Tensor:
    """From the frame itself (0) to the frame smoothed by a binomial of five pixels a side (1)."""
    rows, columns = (_smoothing(pixels.shape[axis]).to(pixels) for axis in (-2, -1))
    return pixels + _everywhere(amount_BT) * (rows @ pixels @ columns.T - pixels)


@cache
def _smoothing(size: int) -> Tensor:
    """[size, size]: multiplies a line of pixels into its smoothed self. On a CPU much quicker than a convolution."""
    here, matrix = torch.arange(size), torch.zeros(size, size)
    for offset, tap in zip(range(-2, 3), (1, 4, 6, 4, 1), strict=True):
        there = (here + offset).clamp(0, size - 1)  # beyond the edge lies the edge
        matrix.index_put_((here, there), torch.full((size,), tap / 16), accumulate=True)
    return matrix


def shade(pixels: Tensor, grid_BTCgg: Tensor) -> Tensor:
    """Low-frequency texture: a smooth field, from few values to a side, is added to every channel."""
    size = (pixels.shape[-2], pixels.shape[-1])
    field = F.interpolate(grid_BTCgg.flatten(0, 1), size=size, mode="bilinear", align_corners=True)
    return pixels + field.unflatten(0, grid_BTCgg.shape[:2])


def stripe(pixels: Tensor, wave_BT2: Tensor, phase_BT: Tensor, height_BTC: Tensor) -> Tensor:
    """A sine wave across the frame is added, as high in each channel as `height`; `wave` is its periods down and across."""
    down, across = (torch.arange(size, device=pixels.device) / size for size in pixels.shape[-2:])
    turns = wave_BT2[..., :1, None] * down[:, None] + wave_BT2[..., 1:, None] * across + phase_BT[..., None, None]
    return pixels + height_BTC[..., None, None] * torch.sin(2 * math.pi * turns)[:, :, None]


def _everywhere(values_BT: Tensor) -> Tensor:
    return values_BT[..., None, None, None]


def _brightness(pixels: Tensor, strength: float, amount_BT: Tensor, draws: Draws) -> Tensor:
    return brighten(pixels, strength * BRIGHTNESS * amount_BT)


def _contrast(pixels: Tensor, strength: float, amount_BT: Tensor, draws: Draws) -> Tensor:
    return stretch(pixels, strength * CONTRAST * amount_BT)


def _hue(pixels: Tensor, strength: float, amount_BT: Tensor, draws: Draws) -> Tensor:
    signed_BTCC = 2 * draws.uniform_rows(*pixels.shape[:2], 3, 3) - 1
    return mix_channels(pixels, strength * HUE * amount_BT[..., None, None] * signed_BTCC)


def _blur(pixels: Tensor, strength: float, amount_BT: Tensor, draws: Draws) -> Tensor:
    return blur(pixels, (strength * amount_BT.abs()).clamp(max=1))


def _shading(pixels: Tensor, strength: float, amount_BT: Tensor, draws: Draws) -> Tensor:
    cells = COARSEST + int(draws.named("cells").permutation(FINEST - COARSEST + 1)[0])
    signed_BTCgg = 2 * draws.uniform_rows(*pixels.shape[:2], 3, cells, cells) - 1
    return shade(pixels, strength * SHADING * _everywhere(amount_BT) * signed_BTCgg)


def _stripes(pixels: Tensor, strength: float, amount_BT: Tensor, draws: Draws) -> Tensor:
    many, direction, phase, *height = draws.uniform_rows(*pixels.shape[:2], 6).unbind(-1)
    length, angle = FEWEST + (MOST - FEWEST) * many, 2 * math.pi * direction
    wave_BT2 = torch.stack([length * angle.cos(), length * angle.sin()], dim=-1)
    height_BTC = amount_BT[..., None] * torch.stack(height, dim=-1)
    return stripe(pixels, wave_BT2, phase, strength * STRIPES * height_BTC)


def _noise(pixels: Tensor, strength: float, amount_BT: Tensor, draws: Draws) -> Tensor:
    return pixels + strength * NOISE * _everywhere(amount_BT) * draws.normal_rows(*pixels.shape)


FAMILY: Mapping[str, Callable[[Tensor, float, Tensor, Draws], Tensor]] = {
    "brightness": _brightness,
    "contrast": _contrast,
    "hue": _hue,
    "blur": _blur,
    "shading": _shading,
    "stripes": _stripes,
    "noise": _noise,
}
"""Kind → the change, from an amount per frame in (−1, 1), 0 where it is not applied. In the order they are made."""


def vary(pixels: Tensor, draws: Draws, *, kinds: Sequence[str], strength: float, light: float = 1.0) -> Tensor:
    """Each frame with a random part of these kinds of change, each at a random strength up to `strength`.

    Brightness and contrast go up to `light` times that: rooms differ more in their lamps than in their colours.
    """
    with torch.autocast(pixels.device.type, enabled=False):  # half precision would change pixels that are to stay
        for kind in (kind for kind in FAMILY if kind in kinds):
            own = draws.named(kind)
            uniform_BT2 = own.named("amount").uniform_rows(*pixels.shape[:2], 2)
            amount_BT = (uniform_BT2[..., 0] < APPLIED) * (2 * uniform_BT2[..., 1] - 1)
            pixels = FAMILY[kind](pixels, strength * light if kind in LIGHT else strength, amount_BT, own)
    return pixels
