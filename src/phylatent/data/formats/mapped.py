"""Frames that lie in a file as they are, one after another: read through a memory map, each with one copy."""

# N frames

from __future__ import annotations

import math
import mmap
from pathlib import Path

import numpy as np

# Pages that were looked at count as this process's memory, although the system may take them back whenever it needs room. They
# are let go of now and then, so that training on a million frames shows the memory of training on ten thousand.
HELD_BYTES = 256 * 2**20
SMALL_BYTES = 2 * HELD_BYTES
"""A file up to this size stays mapped: to map its pages anew takes as long as to copy them."""
# The system maps this much around a page that is asked for, so that a small frame brings in far more than itself.
AROUND_BYTES = 64 * 2**10


class MappedFrames:
    """It is not to be pickled: every process makes its own."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype, offset: int = 0) -> None:
        with path.open("rb") as handle:
            self._map = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        self._frames = np.frombuffer(self._map, dtype, math.prod(shape), offset).reshape(shape)
        self._taken = 0

    def take(self, rows: np.ndarray) -> np.ndarray:
        """A copy [N, …] of the given rows, in their order, which may repeat."""
        frames = np.take(self._frames, rows, axis=0)
        self._taken += frames.nbytes + AROUND_BYTES * len(rows)
        if self._taken > HELD_BYTES and len(self._map) > SMALL_BYTES:
            self._taken = 0
            if hasattr(mmap, "MADV_DONTNEED"):
                self._map.madvise(mmap.MADV_DONTNEED)
        return frames
