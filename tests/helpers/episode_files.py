"""Data files in the published layout whose every value tells its row, written without a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np


def columns(lengths: Sequence[int], *, size: int = 8, stride: int = 1, action_dim: int = 2) -> dict[str, np.ndarray]:
    """Row r: frame filled with r mod 251, action (r + 0.01 k)/1000 for its k-th value, position (r, −r)."""
    rows = int(np.sum(lengths))
    row = np.arange(rows)
    action = (row[:, None] + 0.01 * np.arange(stride * action_dim)).astype(np.float32) / 1000
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    action[offsets + np.asarray(lengths) - 1] = np.nan
    position = np.stack([row, -row], axis=1).astype(np.float32)
    return {
        "pixels": np.broadcast_to((row % 251).astype(np.uint8)[:, None, None, None], (rows, size, size, 3)).copy(),
        "action": action,
        "proprio": position,
        "state": position.copy(),
        "goal_state": position + 1000,
        "episode_idx": np.repeat(np.arange(len(lengths)), lengths),
        "step_idx": np.concatenate([np.arange(n) for n in lengths]),
        "ep_len": np.asarray(lengths, dtype=np.int32),
        "ep_offset": offsets.astype(np.int64),
    }


def write_file(
    path: Path,
    lengths: Sequence[int] = (12, 9, 15),
    *,
    replace: dict[str, np.ndarray | None] | None = None,
    attributes: dict[str, Any] | None = None,
    **settings: int,
) -> Path:
    """`replace` gives a column other values, or takes it away (None)."""
    with h5py.File(path, "w") as file:
        for name, values in {**columns(lengths, **settings), **(replace or {})}.items():
            if values is None:
                continue
            compressed = name == "pixels" and values.ndim > 1
            options = {"chunks": (1, *values.shape[1:]), **hdf5plugin.Blosc()} if compressed else {}
            file.create_dataset(name, data=values, **options)
        file.attrs.update(attributes or {})
    return path
