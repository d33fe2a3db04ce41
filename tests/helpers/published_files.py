"""Small files laid out as the published LeWM data sets: columns, types, chunks and compression; three short episodes each.

The columns are those that users report of tworoom.h5, pusht_expert_train.h5, reacher.h5 and cube_single_expert.h5.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import hdf5plugin
import numpy as np

LENGTHS = (40, 31, 50)
ROWS = sum(LENGTHS)
SIZE = 224
Columns = dict[str, tuple[tuple[int, ...], str]]

LOOP: Columns = {
    "reward": ((), "f8"),
    "terminated": ((), "?"),
    "truncated": ((), "?"),
    "render_time": ((), "f8"),
    "id": ((), "i8"),
}
TWOROOM: Columns = {
    "action": ((2,), "f4"),
    "distance_to_target": ((), "f8"),
    "observation": ((10,), "f8"),
    "pos_agent": ((2,), "f4"),
    "pos_target": ((2,), "f4"),
    "proprio": ((2,), "f4"),
    **LOOP,
}
PUSHT: Columns = {"action": ((2,), "f4"), "proprio": ((4,), "f4"), "state": ((7,), "f4")}
REACHER: Columns = {"action": ((2,), "f8"), "observation": ((6,), "f8"), "qpos": ((2,), "f8"), "qvel": ((2,), "f8"), **LOOP}
CUBE: Columns = {
    "action": ((5,), "f4"),
    "control": ((7,), "f8"),
    "observation": ((28,), "f8"),
    "prev_qpos": ((21,), "f8"),
    "prev_qvel": ((20,), "f8"),
    "qpos": ((21,), "f8"),
    "qvel": ((20,), "f8"),
    "privileged_block_0_pos": ((3,), "f8"),
    "privileged_block_0_quat": ((4,), "f8"),
    "privileged_block_0_yaw": ((1,), "f8"),
    "privileged_target_block_pos": ((3,), "f8"),
    "privileged_target_block_yaw": ((1,), "f8"),
    "proprio_effector_pos": ((3,), "f8"),
    "proprio_gripper_contact": ((1,), "f8"),
    "success": ((), "?"),
    **LOOP,
}
# task → file name, columns, the name and type of its episode numbers, frames in a chunk
PUBLISHED = {
    "tworooms": ("tworoom.h5", TWOROOM, ("ep_idx", "i4"), 1),
    "pusht": ("pusht_expert_train.h5", PUSHT, ("episode_idx", "i8"), 16),
    "reacher": ("reacher.h5", REACHER, ("ep_idx", "i4"), 1),
    "cube": ("cube_single_expert.h5", CUBE, ("ep_idx", "i4"), 1),
}


def content(task: str, size: int = SIZE) -> dict[str, np.ndarray]:
    """Row r: frame filled with r; in every other column value k of row r is r + k/100, scaled down for actions."""
    _, described, (ids, ids_type), _ = PUBLISHED[task]
    row = np.arange(ROWS)
    offsets = np.cumsum([0, *LENGTHS[:-1]])
    columns = {
        name: (row.reshape(-1, *[1] * len(shape)) + np.arange(np.prod(shape, dtype=int)).reshape(shape) / 100).astype(kind)
        for name, (shape, kind) in described.items()
    }
    columns["action"] /= 1000
    columns["action"][offsets + np.array(LENGTHS) - 1] = np.nan
    return columns | {
        "pixels": np.broadcast_to(row.astype(np.uint8)[:, None, None, None], (ROWS, size, size, 3)),
        ids: np.repeat(np.arange(len(LENGTHS)), LENGTHS).astype(ids_type),
        "step_idx": np.concatenate([np.arange(n) for n in LENGTHS]),
        "ep_len": np.array(LENGTHS, dtype=np.int32),
        "ep_offset": offsets.astype(np.int64),
    }


def write_published(directory: Path, task: str) -> Path:
    name, _, _, chunk = PUBLISHED[task]
    with h5py.File(directory / name, "w", libver="latest") as file:
        for column, values in content(task).items():
            options = {"chunks": (chunk, *values.shape[1:]), **hdf5plugin.Blosc(cname="lz4")} if column == "pixels" else {}
            file.create_dataset(column, data=values, maxshape=(None, *values.shape[1:]), **options)
    return directory / name


def episodes_of(columns: dict[str, np.ndarray]) -> list[dict[str, list[np.ndarray]]]:
    """As stable-worldmodel's writers take them: a list of steps a column, episode by episode."""
    table = {"ep_len", "ep_offset", "ep_idx", "episode_idx", "step_idx"}
    spans = zip(columns["ep_offset"].tolist(), columns["ep_len"].tolist(), strict=True)
    return [{name: list(v[a : a + n]) for name, v in columns.items() if name not in table} for a, n in spans]
