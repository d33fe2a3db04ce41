"""What a data file must hold before anything is trained on it. Each check ends in one sentence about what is wrong."""

# R rows of the file, E episodes, A action dimensions, s frame stride, H height, W width

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from phylatent.errors import UserError
from phylatent.schema import TaskSpec

AGAIN = "collect or download it again"


class Columns(Protocol):
    """The part of a store that the checks look at."""

    path: Path
    columns: dict[str, tuple[tuple[int, ...], np.dtype]]

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray: ...


def check_task(path: Path, found: str | None, task: TaskSpec) -> None:
    if found is not None and found != task.name:
        raise UserError(
            f"{path} holds data of another task: {found!r}, but task={task.name} was asked for; change data= or task="
        )


def check_columns(store: Columns, task: TaskSpec) -> None:
    """Every column that is used is there and as long as the others."""
    needed = ("ep_len", "ep_offset", "pixels", "action", *task.target.columns)
    missing = [name for name in needed if name not in store.columns]
    if missing:
        raise UserError(
            f"{store.path} has no column {missing[0]!r}, which task {task.name!r} needs; "
            f"it has: {', '.join(sorted(store.columns)) or 'no columns at all'}"
        )
    used = {"pixels", "action", *task.target.columns, *task.columns}
    rows = {name: _rows(store.columns[name][0]) for name in sorted(used) if name in store.columns}
    longest = max(rows, key=lambda name: rows[name])
    for name, count in rows.items():
        if count < rows[longest]:
            raise UserError(
                f"column {name!r} of {store.path} has {count} rows, but {longest!r} has {rows[longest]}: "
                f"the file is incomplete; {AGAIN}"
            )


def _rows(shape: tuple[int, ...]) -> int:
    return shape[0] if shape else 0


def check_dimensions(store: Columns, task: TaskSpec, frame_stride: int) -> None:
    action = store.columns["action"][0]
    expected = frame_stride * task.action_dim
    if len(action) != 2 or action[1] != expected:
        raise UserError(
            f"column 'action' of {store.path} has shape {list(action)}, but task {task.name!r} at frame stride "
            f"{frame_stride} takes [rows, {expected}]; this looks like data of another task: change data= or task="
        )
    target = sum(int(np.prod(store.columns[name][0][1:])) for name in task.target.columns)
    if target != task.target.dim:
        raise UserError(
            f"the physical target ({', '.join(task.target.columns)}) of {store.path} has {target} dimensions, but task "
            f"{task.name!r} has {task.target.dim}; this looks like data of another task: change data= or task="
        )


def check_kinds(store: Columns, task: TaskSpec) -> None:
    """Actions are floating-point numbers, physical values numbers."""
    dtype = store.columns["action"][1]
    if dtype.kind != "f":
        raise UserError(
            f"column 'action' of {store.path} holds {dtype} values; actions must be floating-point numbers "
            f"(whole ones have lost their fractions, or are of another action space); {AGAIN}"
        )
    for name in (*task.target.columns, *(name for name in task.columns if name in store.columns)):
        dtype = store.columns[name][1]
        if dtype.kind not in "fiub":
            raise UserError(f"column {name!r} of {store.path} holds {dtype} values; it must hold numbers: {AGAIN}")


def check_pixels(store: Columns) -> None:
    shape, dtype = store.columns["pixels"]
    if dtype != np.uint8:
        raise UserError(f"column 'pixels' of {store.path} holds {dtype} values; frames must be uint8 from 0 to 255")
    if len(shape) != 4 or shape[3] != 3:
        raise UserError(
            f"column 'pixels' of {store.path} has shape {list(shape)}; frames must be [rows, height, width, 3], three colours: "
            f"write the column again, without an alpha channel, and grey as three equal colours"
        )


def whole_numbers(store: Columns, name: str) -> np.ndarray:
    """A column of `ep_len`'s kind as int64. Some writers store them as floating-point numbers."""
    values = store.read(name)
    if values.dtype.kind not in "iuf" or not (np.isfinite(values) & (values == np.rint(values))).all():
        raise UserError(f"column {name!r} of {store.path} holds {values.dtype} values that are not whole numbers; {AGAIN}")
    return values.astype(np.int64)


def check_episode_table(path: Path, lengths: np.ndarray, offsets: np.ndarray, rows: int) -> None:
    if lengths.ndim != 1 or lengths.shape != offsets.shape:
        raise UserError(
            f"ep_len and ep_offset of {path} have shapes {list(lengths.shape)} and {list(offsets.shape)}; "
            f"they must be two lists of one length; {AGAIN}"
        )
    if lengths.size == 0:
        raise UserError(f"{path} holds no complete episode; {AGAIN}")
    if (lengths < 1).any():
        episode = int((lengths < 1).argmax())
        raise UserError(f"episode {episode} of {path} has length {lengths[episode]}; it must be at least 1; {AGAIN}")
    outside = (offsets < 0) | (offsets + lengths > rows)
    if outside.any():
        episode = int(outside.argmax())
        first, last = int(offsets[episode]), int(offsets[episode] + lengths[episode] - 1)
        raise UserError(f"episode {episode} of {path} is rows {first} to {last}, but the file has {rows} rows; {AGAIN}")
    order = np.argsort(offsets, kind="stable")
    overlaps = offsets[order][:-1] + lengths[order][:-1] > offsets[order][1:]
    if overlaps.any():
        at = int(overlaps.argmax())
        raise UserError(f"episodes {order[at]} and {order[at + 1]} of {path} overlap (see ep_offset); {AGAIN}")
    if lengths.max() < 2:
        raise UserError(f"{path} holds no complete episode: each is a single row, without an action; {AGAIN}")


def check_episode_ids(store: Columns, lengths: np.ndarray, offsets: np.ndarray) -> None:
    """Where rows say which episode they are of, an episode's rows agree."""
    for name in ("ep_idx", "episode_idx"):
        if name not in store.columns:
            continue
        ids = store.read(name).reshape(-1)
        start = np.repeat(offsets, lengths)
        rows = start + np.arange(len(start)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        if rows.max(initial=-1) >= len(ids):
            raise UserError(f"column {name!r} of {store.path} has {len(ids)} rows, too few for its episodes; {AGAIN}")
        wrong = ids[rows] != ids[start]
        if wrong.any():
            row, first = int(rows[wrong.argmax()]), int(start[wrong.argmax()])
            raise UserError(
                f"rows {first} and {row} of {store.path} are of one episode by ep_offset and ep_len, but of episodes "
                f"{ids[first]} and {ids[row]} by {name!r}; {AGAIN}"
            )


def check_actions(path: Path, actions: np.ndarray, lengths: np.ndarray, offsets: np.ndarray) -> None:
    """No NaN in an action that was taken. The last row of an episode has none, whatever it holds."""
    bad_rows = np.flatnonzero(~np.isfinite(actions).all(axis=1))
    order = np.argsort(offsets)
    owner = order[np.searchsorted(offsets[order], bad_rows, side="right").clip(1) - 1]
    step = bad_rows - offsets[owner]
    used = (step >= 0) & (step < lengths[owner] - 1)
    if used.any():
        row, episode = int(bad_rows[used][0]), int(owner[used][0])
        raise UserError(
            f"the action in row {row} of {path} (episode {episode}, step {int(step[used][0])}) is "
            f"{actions[row].tolist()}; only an episode's last row may be without a finite action; {AGAIN}"
        )
