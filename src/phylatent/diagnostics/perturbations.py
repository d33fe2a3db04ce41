"""Appearance-only changes A(o) of eq:invariance_augmentation: the state stays, the image does not. uint8 in, uint8 out."""

# N frames, H height, W width

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from phylatent.randomness import derive_seed
from phylatent.schema import PERTURBATIONS, SEVERITIES

DIMMING, LIFT = 0.08, 0.035
TINT = np.array([0.16, -0.12, 0.05], dtype=np.float32)
OVERLAY = np.array([0.08, -0.03, 0.06], dtype=np.float32)
CELLS = 12
"""The checker's cells are 1/12 of the frame."""


def brightness(frames_NHW3: np.ndarray, *, strength: float) -> np.ndarray:
    return _finish(_unit(frames_NHW3) * (1 - DIMMING * strength) + LIFT * strength)


def colour(frames_NHW3: np.ndarray, *, strength: float) -> np.ndarray:
    return _finish(_unit(frames_NHW3) * (1 + TINT * strength))


def texture(frames_NHW3: np.ndarray, *, strength: float) -> np.ndarray:
    height, width = frames_NHW3.shape[1:3]
    return _finish(_unit(frames_NHW3) + strength * OVERLAY * _checker(height, width)[:, :, None])


def noise(frames_NHW3: np.ndarray, *, sigma: float, seeds: Sequence[int]) -> np.ndarray:
    """Every frame has a seed of its own, so that its noise does not depend on its company."""
    assert len(seeds) == len(frames_NHW3), "a seed for each frame"
    shape = frames_NHW3.shape[1:]
    drawn = [np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) for seed in seeds]
    return _finish(_unit(frames_NHW3) + sigma * np.stack(drawn)) if drawn else frames_NHW3.copy()


def perturb(
    frames_NHW3: np.ndarray,
    kind: str,
    *,
    severity: float,
    seed: int,
    rows: np.ndarray,
    strengths: Mapping[str, float] = SEVERITIES,
) -> np.ndarray:
    """eq:invariance_augmentation: `kind` at the task's strength (for `noise` the standard deviation itself) times `severity`.

    Noise depends on (seed, row) alone.
    """
    strength = severity * strengths[kind]
    if kind == "noise":
        return noise(frames_NHW3, sigma=strength, seeds=[derive_seed(seed, "diagnose", "noise", row) for row in rows])
    shifts: dict[str, Callable[..., np.ndarray]] = {"brightness": brightness, "colour": colour, "texture": texture}
    assert kind in PERTURBATIONS, f"unknown perturbation {kind}"
    return shifts[kind](frames_NHW3, strength=strength)


def _checker(height: int, width: int) -> np.ndarray:
    """float32 [H, W]: 1 on every other cell."""
    rows, columns = np.arange(height) * CELLS // height, np.arange(width) * CELLS // width
    return ((rows[:, None] + columns[None]) % 2 == 0).astype(np.float32)


def _unit(frames: np.ndarray) -> np.ndarray:
    assert frames.dtype == np.uint8, "frames are uint8"
    return frames.astype(np.float32) / 255


def _finish(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values * 255), 0, 255).astype(np.uint8)
