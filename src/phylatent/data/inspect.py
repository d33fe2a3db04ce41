"""What a data file holds, before anyone trains on it: the columns of tab:dataset_statistics, and what may be wrong."""

# R rows, E episodes, A action dimensions, s frame stride

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import episode_rows
from phylatent.files import atomic, stored_bytes
from phylatent.schema import Row, TaskSpec

SAMPLED_FRAMES = 256
LAGS = (1, 5)


def inspect_data(path: str | Path, task: TaskSpec, clip_steps: int = 25) -> dict[str, Any]:
    """JSON-able facts about a data file. A fact that the file does not tell is None."""
    episodes = open_episodes(path, task)
    transitions = int(episodes.lengths.sum())
    return {
        "path": str(episodes.path),
        "task": task.name,
        "transitions": transitions,
        "episodes": len(episodes.lengths),
        "steps_per_episode": transitions / len(episodes.lengths),
        "gib": stored_bytes(episodes.path) / 2**30,
        "frame_size": list(episodes.frame_shape[:2]),
        "frame_stride": episodes.frame_stride,
        "columns": {name: describe_column(episodes, name) for name in sorted(episodes.store.columns)},
        "action_autocorrelation": {str(lag): action_autocorrelation(episodes, task, lag) for lag in LAGS},
        "reached_goal": reached_goal(episodes, task),
        "moving_windows": changing_windows(episodes, task, task.moving_dims, task.moving_tolerance, clip_steps),
        "turning_windows": changing_windows(episodes, task, task.turning_dims, task.turning_tolerance, clip_steps),
        "clip_steps": clip_steps,
        "fingerprint": episodes.fingerprint(),
        "notes": list(episodes.store.notes),
    }


def describe_column(episodes: Episodes, name: str) -> dict[str, Any]:
    """Type, shape and range; for frames the range of an even sample of them."""
    shape, dtype = episodes.store.columns[name]
    facts: dict[str, Any] = {"dtype": str(dtype), "shape": list(shape), "min": None, "max": None, "nan": None}
    if dtype.kind not in "iufb":
        return facts
    if name == "pixels":
        rows = np.linspace(0, shape[0] - 1, min(shape[0], SAMPLED_FRAMES)).astype(np.int64)
        values = episodes.frames(rows)
    else:
        values = episodes.column(name)
    known = values[~np.isnan(values)]
    facts["nan"] = values.size - known.size
    # JSON has no infinity: as a string it is still seen.
    low, high = (float(known.min()), float(known.max())) if known.size else (None, None)
    facts["min"], facts["max"] = (x if x is None or np.isfinite(x) else str(x) for x in (low, high))
    return facts


def action_autocorrelation(episodes: Episodes, task: TaskSpec, lag: int) -> list[float | None]:
    """Per action dimension, over all pairs of actions `lag` raw steps apart in one episode. White noise gives 0."""
    everyone = range(len(episodes.lengths))
    actions = episodes.actions[episode_rows(episodes, everyone, drop_last=True)].reshape(-1, task.action_dim)
    actions = actions.astype(np.float64)
    owner = np.repeat(everyone, (episodes.lengths - 1) * episodes.frame_stride)
    together = owner[:-lag] == owner[lag:]
    centred = actions - actions.mean(axis=0)
    products = (centred[:-lag] * centred[lag:])[together]
    variance = (centred**2).mean(axis=0)
    if not len(products):
        return [None] * task.action_dim
    return [float(p / v) if v > 0 else None for p, v in zip(products.mean(axis=0), variance, strict=True)]


def reached_goal(episodes: Episodes, task: TaskSpec) -> float | None:
    """Share of episodes in which some state meets the goal that was in force one row before it."""
    if "paper" not in task.rules or not task.columns or episodes.row_columns != task.columns:
        return None
    columns = {name: episodes.column(name) for name in task.columns}
    goals = goal_columns(task, {name: values[0] for name, values in columns.items()})
    if not goals or not goals <= columns.keys():
        return None
    solved = task.rules["paper"].solved

    def row(index: int, goal: int) -> Row:
        return {name: values[goal if name in goals else index] for name, values in columns.items()}

    def reaches(first: int, last: int) -> bool:
        return any(solved(row(t + 1, goal=t)) for t in range(first, last))

    reached = [reaches(int(a), int(b)) for a, b in zip(episodes.offsets, episodes.last_rows, strict=True)]
    return float(np.mean(reached))


def goal_columns(task: TaskSpec, row: Row) -> set[str]:
    """The columns that hold a row's goal: those that `with_goal` sets. A file need not have them."""
    if task.with_goal is None:
        return set()
    return {name for name, value in task.with_goal(row, row).items() if value is not row.get(name)}


def changing_windows(
    episodes: Episodes, task: TaskSpec, dimensions: Sequence[int], tolerance: float, clip_steps: int
) -> float | None:
    """Share of windows of `clip_steps` raw steps in which some target dimension leaves its value at the window's start.

    A dataset in which the task's object hardly ever moves teaches nothing about moving it.
    """
    span = max(1, clip_steps // episodes.frame_stride)
    counts = (episodes.lengths - span).clip(0)
    if not dimensions or not counts.sum():
        return None
    starts = np.concatenate([np.arange(n) + offset for n, offset in zip(counts, episodes.offsets, strict=True)])
    changed = np.zeros(len(starts), dtype=bool)
    periods = {**task.target.modulo, **task.target.angles}
    for dimension in dimensions:
        values = episodes.targets[:, dimension].astype(np.float64)
        period = periods.get(dimension)
        for later in range(1, span + 1):
            change = np.abs(values[starts + later] - values[starts])
            if period is not None:
                change = np.minimum(change % period, -change % period)
            changed |= change > tolerance
    return float(changed.mean())


def contact_sheet(episodes: Episodes, path: Path, *, shown: int = 6, frames_each: int = 8, gap: int = 2) -> Path:
    """A PNG of sample frames: an episode a line, time from left to right."""
    ids = np.unique(np.linspace(0, len(episodes.lengths) - 1, shown).astype(np.int64))
    height, width, _ = episodes.frame_shape
    sheet = np.full((len(ids) * (height + gap) - gap, frames_each * (width + gap) - gap, 3), 127, dtype=np.uint8)
    for line, episode in enumerate(ids):
        rows = np.linspace(episodes.offsets[episode], episodes.last_rows[episode], frames_each).astype(np.int64)
        for column, frame in enumerate(episodes.frames(rows)):
            top, left = line * (height + gap), column * (width + gap)
            sheet[top : top + height, left : left + width] = frame
    with atomic(path) as temporary:
        Image.fromarray(sheet).save(temporary, format="PNG")
    return path
