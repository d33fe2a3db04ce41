"""A small collection of TwoRooms, for tests to look into, stop and repeat."""

from __future__ import annotations

from pathlib import Path

import h5py

from phylatent.schema import CollectConfig
from phylatent.tasks.tworooms import TASK

__all__ = ["SMALL", "TASK", "contents"]
SMALL = CollectConfig(episodes=5, steps=12, frame_size=32, workers=1, shard_episodes=2)


def contents(path: Path) -> dict[str, bytes]:
    """Every column of a data file, to the byte."""
    with h5py.File(path) as file:
        return {name: column[:].tobytes() for name, column in file.items()}
