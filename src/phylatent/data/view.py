"""A data file as the task sees it: columns under the task's names, a table of episodes, frames as uint8 [N, H, W, 3].

Published files differ in all three. What can be told apart without doubt is translated here, and noted; the rest is refused.
"""

# N frames, R rows of the file, E episodes, H height, W width

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phylatent.data.formats import Store
from phylatent.errors import UserError
from phylatent.schema import TaskSpec

EPISODE_IDS = ("ep_idx", "episode_idx")
SAMPLED_FRAMES = 64


@dataclass(frozen=True)
class Layout:
    """How a file's frames become uint8 [N, H, W, 3]."""

    channels_first: bool = False
    scale: float | None = None
    """What floating-point values are multiplied by; None for bytes."""

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0], shape[2], shape[3], shape[1]) if self.channels_first else shape

    def convert(self, frames: np.ndarray, rows: np.ndarray, path: Path) -> np.ndarray:
        if self.channels_first:
            frames = np.ascontiguousarray(frames.transpose(0, 2, 3, 1))
        if self.scale is None:
            return frames
        scaled = np.rint(frames * self.scale)
        bad = ~((scaled >= 0) & (scaled <= 255)).reshape(len(scaled), -1).all(axis=1)
        if bad.any():
            raise UserError(
                f"the frame in row {int(rows[bad.argmax()])} of {path} has values outside 0 to {255 / self.scale:g}, or NaN, "
                f"unlike the frames before it; write column 'pixels' as uint8"
            )
        return scaled.astype(np.uint8)


class View:
    """A store under the names of a task, with whatever it lacks derived from what it has."""

    def __init__(self, store: Store, task: TaskSpec) -> None:
        self.path = store.path
        self.attributes = store.attributes
        self.at_hand = store.at_hand
        self.columns = dict(store.columns)
        self.notes: tuple[str, ...] = ()
        """What is not read as it is written, in words."""
        self._store = store
        self._names: dict[str, str] = {}
        self._derived: dict[str, np.ndarray] = {}
        self._layout = Layout()
        self._take_names(task)
        self._derive_episodes()
        self._read_layout()

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows [start, stop) of a column, in this machine's byte order."""
        if name in self._derived:
            return self._derived[name][start:stop]
        values = self._store.read(self._names.get(name, name), start, stop)
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def frames(self, rows: np.ndarray) -> np.ndarray:
        return self._layout.convert(self._store.frames(rows), rows, self.path)

    def _note(self, text: str) -> None:
        self.notes = (*self.notes, text)

    def _take_names(self, task: TaskSpec) -> None:
        for name in dict.fromkeys(("action", *task.target.columns, *task.columns)):
            found = name if name in self.columns else find_column(name, task.aliases.get(name, ()), self.columns)
            if found is not None and found != name:
                self._names[name] = found
                self.columns[name] = self.columns[found]
                self._note(f"{name} is read from column {found!r}")

    def _derive_episodes(self) -> None:
        ids = next((name for name in EPISODE_IDS if name in self.columns), None)
        if ids is None or "ep_len" in self.columns or "ep_offset" in self.columns:
            return
        steps = self.read("step_idx") if "step_idx" in self.columns else None
        self._derived = dict(zip(("ep_len", "ep_offset"), find_episodes(self.path, self.read(ids), steps), strict=True))
        self.columns |= {name: (values.shape, values.dtype) for name, values in self._derived.items()}
        self._note(f"ep_len and ep_offset are derived from column {ids!r}")

    def _read_layout(self) -> None:
        if "pixels" not in self.columns:
            return
        shape, dtype = self.columns["pixels"]
        first = len(shape) == 4 and shape[1] == 3 and shape[3] != 3
        scale = float_scale(self._store) if dtype.kind == "f" and len(shape) == 4 and shape[0] else None
        self._layout = Layout(first, scale)
        self.columns["pixels"] = (self._layout.shape(shape), dtype if scale is None else np.dtype(np.uint8))
        if first:
            self._note("pixels are stored with their channels first")
        if scale is not None:
            self._note(f"pixels are stored as {dtype} from 0 to {255 / scale:g}")


def find_column(name: str, aliases: Iterable[str], columns: Iterable[str]) -> str | None:
    """The column that holds `name` under one of its other names; `/`, `.` and `_` are the same to the writers in use."""
    found = {_plain(column): column for column in columns}
    return next((found[_plain(other)] for other in (name, *aliases) if _plain(other) in found), None)


def _plain(name: str) -> str:
    return name.replace("/", "_").replace(".", "_")


def find_episodes(path: Path, ids: np.ndarray, steps: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and offsets int64 [E] of the runs of one id; where ids come back, `step_idx` must tell that a run is whole."""
    if ids.ndim != 1 or (steps is not None and steps.shape != ids.shape):
        raise UserError(f"the episode and step numbers of {path} have several values a row, or differ in length; expected one")
    if not ids.size:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    ends = ids[1:] != ids[:-1]
    if steps is not None:
        ends |= steps[1:] <= steps[:-1]
    offsets = np.concatenate([[0], np.flatnonzero(ends) + 1])
    lengths = np.diff(np.append(offsets, len(ids)))
    begins = np.zeros(len(offsets)) if steps is None else steps[offsets]
    _, first = np.unique(ids[offsets], return_index=True)
    returned = np.setdiff1d(np.arange(len(offsets)), first)
    if (steps is None and returned.size) or (begins[returned] != begins[0]).any():
        again = int(offsets[returned[0]])
        raise UserError(
            f"{path} has no ep_len and ep_offset, and they cannot be derived: episode {ids[again]} goes on in row {again} "
            f"after rows of another one; write the rows of an episode one after another"
        )
    return lengths, offsets


def float_scale(store: Store) -> float:
    """255 for frames from 0 to 1, 1 for frames from 0 to 255, told by an even sample of them."""
    shape, dtype = store.columns["pixels"]
    rows = np.unique(np.linspace(0, shape[0] - 1, SAMPLED_FRAMES).astype(np.int64))
    frames = store.frames(rows).reshape(len(rows), -1)
    unknown = np.isnan(frames).any(axis=1)
    low, high = (0.0, 0.0) if unknown.all() else (float(np.nanmin(frames)), float(np.nanmax(frames)))
    if unknown.any() or low < 0 or high > 255:
        found = f"NaN in row {int(rows[unknown.argmax()])}" if unknown.any() else f"values from {low:g} to {high:g}"
        raise UserError(
            f"column 'pixels' of {store.path} holds {dtype} values with {found}; frames must be uint8 from 0 to 255, or "
            f"floating-point from 0 to 1 or 0 to 255: undo their normalisation, and write the column again"
        )
    return 255.0 if high <= 1 else 1.0
