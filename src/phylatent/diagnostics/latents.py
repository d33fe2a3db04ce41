"""The latents of the model under judgement: how they are asked for, and whether they mean anything at all."""

# N frames or starts, b branches of a start, k blocks, D latent, A raw action values of a block, H height, W width

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from phylatent.errors import PhylatentError, UserError
from phylatent.models.latent import Array, LatentModel

AT_ONCE = 128
"""Frames or starts a model is given at once: bounds the memory."""
CONSTANT, REPEATABLE = 1e-5, 1e-2

Reader = Callable[[np.ndarray], np.ndarray]
"""Rows [n] → their frames, uint8 [n, H, W, 3]."""


@dataclass(frozen=True)
class Health:
    status: str = "ok"
    """ok, not finite, constant, or not repeatable."""
    sentence: str = "latents are finite, vary between frames and repeat"


class Unfit(PhylatentError):
    """The latents cannot be judged: there is no rate, and above all none of 0 %."""

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence)
        self.health = Health(status, sentence)


@dataclass(frozen=True, eq=False)
class JudgedModel:
    """A model under judgement: given frames batch by batch, its latents checked before anything is counted by them."""

    model: LatentModel

    def encode(self, read: Reader, rows_N: np.ndarray) -> np.ndarray:
        """float32 [N, D] of frames that are read batch by batch."""
        return np.concatenate([_latents(self._encode(read, batch), (len(batch),)) for batch in _batches(rows_N)])

    def predict(self, read: Reader, rows_N: np.ndarray, windows_NbkA: np.ndarray) -> np.ndarray:
        """float32 [N, b, k, D]: each start encoded once, then rolled out under each of its b windows of raw action blocks."""
        parts = []
        for rows, windows in zip(_batches(rows_N), _batches(windows_NbkA), strict=True):
            z = self._encode(read, rows)
            branches = [np.ascontiguousarray(windows[:, branch], dtype=np.float32) for branch in range(windows.shape[1])]
            rolled = [_latents(self.model.rollout(z, torch.from_numpy(kA)), kA.shape[:2], "rollout") for kA in branches]
            parts.append(np.stack(rolled, axis=1))
        return np.concatenate(parts)

    def check_health(self, read: Reader, rows_N: np.ndarray, windows_NbkA: np.ndarray) -> Health:
        """Raises `Unfit` unless latents are finite, vary, repeat, and can be rolled out. The windows start at the first rows.

        The second encoding meets the frames in another order: a latent must not depend on the rest of its batch either.
        """
        z_ND = self.encode(read, rows_N).astype(np.float64)
        spread = float(np.sqrt(z_ND.var(axis=0).sum()))
        if spread <= CONSTANT * float(np.sqrt(np.square(z_ND).sum(axis=1).mean())):
            raise Unfit("constant", f"all of {len(z_ND)} different frames have the same latent, so nothing is counted")
        again_ND = self.encode(read, rows_N[::-1])[::-1]
        change = float(np.sqrt(np.square(again_ND - z_ND).sum(axis=1).mean()))
        if change > REPEATABLE * spread:
            raise Unfit(
                "not repeatable",
                f"the same frames encoded twice differ by {change / spread:.0%} of the latents' spread, so nothing is counted; "
                "is there noise in the encoder, or does it normalise over the batch?",
            )
        if not len(windows_NbkA):
            return Health()
        futures = [self.predict(read, rows_N[: len(windows_NbkA)], windows_NbkA).astype(np.float64) for _ in range(2)]
        change = float(np.sqrt(np.square(futures[1] - futures[0]).sum(axis=-1).mean()))
        if change > REPEATABLE * spread:
            raise Unfit(
                "not repeatable",
                f"the same futures predicted twice differ by {change / spread:.0%} of the latents' spread, so nothing is "
                "counted; is there noise in the rollout?",
            )
        return Health()

    def _encode(self, read: Reader, rows: np.ndarray) -> Array:
        return self.model.encode(torch.from_numpy(np.ascontiguousarray(read(rows))))


@contextlib.contextmanager
def judged(model: LatentModel) -> Iterator[JudgedModel]:
    """No gradients, and every module in eval mode; afterwards each is in the mode it was in."""
    held = [model, *getattr(model, "__dict__", {}).values()]
    modules = [part for root in held if isinstance(root, nn.Module) for part in root.modules()]
    modes = [(part, part.training) for part in modules]
    try:
        for part in modules:
            part.training = False
        with torch.no_grad():
            yield JudgedModel(model)
    finally:
        for part, training in modes:
            part.training = training


def _batches(values: np.ndarray) -> list[np.ndarray]:
    return [values[first : first + AT_ONCE] for first in range(0, len(values), AT_ONCE)]


def _latents(found: Array, expected: tuple[int, ...], name: str = "encode") -> np.ndarray:
    values = found.detach().float().cpu().numpy() if isinstance(found, Tensor) else np.asarray(found, dtype=np.float32)
    if values.ndim != len(expected) + 1 or values.shape[:-1] != expected:
        wanted = ", ".join(map(str, expected))
        raise UserError(f"the model's {name} returned {list(values.shape)}; expected [{wanted}, latent dimensions]")
    if not np.isfinite(values).all():
        raise Unfit("not finite", f"the model's {name} returned NaN or infinity, so nothing is counted")
    return values
