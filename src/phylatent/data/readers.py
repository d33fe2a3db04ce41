"""`open_episodes`: a data file, checked once and then read as episodes, whatever format it has."""

# R rows of the file, E episodes, A action dimensions, s frame stride, d_s physical dimensions, H height, W width

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phylatent.data import checks
from phylatent.data.formats import is_data, open_store, stores
from phylatent.data.formats.prepared import PreparedStore
from phylatent.data.view import View
from phylatent.errors import UserError
from phylatent.files import check_path
from phylatent.schema import AS_PUBLISHED, Row, TaskSpec


@dataclass(frozen=True, eq=False)
class Episodes:
    """Checked episodes: small columns in memory, frames read when asked for."""

    store: View
    lengths: np.ndarray
    """int64 [E]: rows of each episode."""
    offsets: np.ndarray
    """int64 [E]: first row of each episode."""
    frame_stride: int
    """Raw steps from one row to the next."""
    task_name: str | None
    """As the file says; published files do not."""
    render: str
    """How its frames were drawn, so that what is judged on it is drawn alike."""
    frame_shape: tuple[int, int, int]
    actions: np.ndarray
    """float32 [R, s·A]: taken at the row; 0 in an episode's last row, which has none."""
    targets: np.ndarray
    """float32 [R, d_s]: the task's physical target; may hold NaN."""
    row_columns: tuple[str, ...]
    """Those of the task's columns that the file has."""

    @property
    def path(self) -> Path:
        return self.store.path

    @property
    def last_rows(self) -> np.ndarray:
        return self.offsets + self.lengths - 1

    def frames(self, rows: np.ndarray) -> np.ndarray:
        """uint8 [*rows.shape, H, W, 3]."""
        rows = np.asarray(rows, dtype=np.int64)
        assert rows.size == 0 or (rows.min() >= 0 and rows.max() < len(self.actions)), "row outside the file"
        return self.store.frames(rows.ravel()).reshape(*rows.shape, *self.frame_shape)

    def column(self, name: str) -> np.ndarray:
        if name not in self.store.columns:
            raise UserError(f"{self.path} has no column {name!r}; it has: {', '.join(sorted(self.store.columns))}")
        return self.store.read(name)

    def row(self, index: int) -> Row:
        """What the task needs to restore the state of a row."""
        assert 0 <= index < len(self.actions), "row outside the file"
        return {name: self.store.read(name, index, index + 1)[0] for name in self.row_columns}

    def fingerprint(self) -> str:
        """Tells data files apart without reading their frames."""
        digest = hashlib.sha256(repr((self.frame_stride, self.frame_shape)).encode())
        for values in (self.lengths, self.offsets, self.actions, self.targets):
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()


def open_episodes(path: str | Path, task: TaskSpec) -> Episodes:
    file = locate(Path(path), task)
    store = View(open_store(file), task)
    task_name = store.attributes.get("task")
    checks.check_task(store.path, task_name, task)
    checks.check_columns(store, task)
    checks.check_kinds(store, task)
    frame_stride = int(store.attributes.get("frame_stride", 1))
    checks.check_dimensions(store, task, frame_stride)
    checks.check_pixels(store)
    lengths = checks.whole_numbers(store, "ep_len")
    offsets = checks.whole_numbers(store, "ep_offset")
    frames_shape = store.columns["pixels"][0]
    checks.check_episode_table(store.path, lengths, offsets, rows=frames_shape[0])
    checks.check_episode_ids(store, lengths, offsets)
    store.frames(offsets[:1])  # a frame that cannot be decompressed is better known now than an hour into a training
    actions = store.read("action").astype(np.float32)
    checks.check_actions(store.path, actions, lengths, offsets)
    actions[offsets + lengths - 1] = 0.0
    return Episodes(
        store=store,
        lengths=lengths,
        offsets=offsets,
        frame_stride=frame_stride,
        task_name=task_name,
        render=str(store.attributes.get("render", AS_PUBLISHED)),
        frame_shape=(frames_shape[1], frames_shape[2], frames_shape[3]),
        actions=actions,
        targets=read_targets(store, task),
        row_columns=tuple(name for name in task.columns if name in store.columns),
    )


def read_targets(store: View, task: TaskSpec) -> np.ndarray:
    """S of tab:physical_targets, float32 [R, d_s]."""
    parts = [store.read(name) for name in task.target.columns]
    targets = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1).astype(np.float32)
    for dimension, period in task.target.modulo.items():
        targets[:, dimension] = np.mod(targets[:, dimension], period)
    return targets


def locate(path: Path, task: TaskSpec) -> Path:
    """The data file that `data=` means: itself, or the only one in a directory."""
    check_path(path)
    if is_data(path):
        return path
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a device, pipe or socket; data= takes a data file, or a directory that holds one")
    again = f"`phylatent collect task={task.file or task.name}` makes one"
    if not path.is_dir():
        _check_not_in_progress(path.with_name(path.name + ".parts"), path)
        raise UserError(f"there is no data file {path}; check data=, or collect first: {again}")
    suffixes = tuple(stores())
    files = sorted(file for suffix in suffixes for file in path.glob(f"*{suffix}") if not file.name.startswith("."))
    if not files:
        for parts in sorted(path.glob("*.parts")):
            _check_not_in_progress(parts, parts.with_suffix(""))
        for archive in sorted(path.glob("*.zst")):
            raise UserError(f"directory {path} holds an archive only; unpack it first: `phylatent import {archive}`")
        raise UserError(f"directory {path} holds no {' or '.join(suffixes)} file; check data=, or collect first: {again}")
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise UserError(f"directory {path} holds {len(files)} data files ({names}); name one of them in data=")
    return files[0]


def _check_not_in_progress(parts: Path, path: Path) -> None:
    if parts.is_dir():
        command, ongoing = ("prepare", "prepared") if path.suffix in PreparedStore.suffixes else ("collect", "collected")
        raise UserError(
            f"{path} is not complete: it is still being {ongoing}, or that was interrupted; "
            f"run the same {command} command again to go on ({parts} holds what is done)"
        )
