"""How a training step grows: seconds on one thread and memory, by clips and by the size of frames. Parts of `scale.py`."""

from __future__ import annotations

from collections.abc import Iterable

from harness import Row
from step import alone

BATCHES, SIDES = (8, 16, 32, 64, 128), (32, 64, 96, 128)


def batch() -> list[Row]:
    return step_rows((f"step, {clips} clips", f"train.batch_size={clips}") for clips in BATCHES)


def frames() -> list[Row]:
    return step_rows((f"step, frames of {side} px", f"model.image_size={side}") for side in SIDES)


def step_rows(settings: Iterable[tuple[str, str]]) -> list[Row]:
    rows = []
    for what, changed in settings:
        found = alone("ours", "laptop", "phylatent", [changed])
        rows.append(Row(what, "s", found["seconds"], repetitions=3, more={"memory_gb": round(found["memory_gb"], 2)}))
    return rows


PARTS = {"batch": batch, "frames": frames}
