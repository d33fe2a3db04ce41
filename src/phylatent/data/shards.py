"""From the simulator to HDF5: one episode, a shard of whole episodes, and all shards as one file."""

# R rows, A action dimensions, s frame stride, H height, W width

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np

from phylatent.data.formats.checksums import column_settings, filters, seal
from phylatent.data.formats.hdf5 import new_file
from phylatent.errors import UserError
from phylatent.files import is_disk_full
from phylatent.records import provenance
from phylatent.schema import AS_PUBLISHED, Row, TaskSpec
from phylatent.simulator import Simulator

# On TwoRooms frames lz4hc reads as fast as lz4 (128 frames of 64 px in 1.5 ms; zstd: 6 ms) at little more than zstd's size.
COMPRESSION = hdf5plugin.Blosc(cname="lz4hc", clevel=5, shuffle=hdf5plugin.Blosc.NOSHUFFLE)


@dataclass(frozen=True)
class Plan:
    """What a collection will hold. Episodes are functions of the plan and their index, whoever collects them."""

    task: str
    env_id: str
    env_kwargs: dict[str, Any]
    seed: int
    episodes: int
    steps: int
    frame_size: int
    frame_stride: int
    shard_episodes: int
    render: str = AS_PUBLISHED

    @property
    def rows(self) -> int:
        """Rows of one episode: a state before each stored block of actions, and the last."""
        return self.steps // self.frame_stride + 1

    @property
    def shards(self) -> int:
        return -(-self.episodes // self.shard_episodes)

    def members(self, shard: int) -> range:
        return range(shard * self.shard_episodes, min((shard + 1) * self.shard_episodes, self.episodes))

    def content(self) -> dict[str, Any]:
        """The part that decides what the rows hold."""
        content = {name: value for name, value in asdict(self).items() if name != "shard_episodes"}
        if self.render == AS_PUBLISHED:  # files from before there was a choice do not name it
            del content["render"]
        return content


def record_episode(simulator: Simulator, task: TaskSpec, plan: Plan, episode: int) -> Row:
    """Columns of one episode, [R, …]: a row holds frame and state, and the actions taken from there to the next row."""
    assert task.behaviour is not None
    start, policy = np.random.SeedSequence([plan.seed, episode]).spawn(2)
    simulator.reset(int(start.generate_state(1)[0]))
    act = task.behaviour(simulator, np.random.default_rng(policy))
    frames, states, actions = [], [], []
    for step in range(plan.steps):
        # The policy may choose a new goal as it acts: the row holds the goal that the action went for.
        action = np.asarray(act(), dtype=np.float32)
        if step % plan.frame_stride == 0:
            frames.append(simulator.frame())
            states.append(simulator.columns())
        actions.append(action)
        simulator.step(action)
    frames.append(simulator.frame())
    states.append(simulator.columns())
    blocks = np.stack(actions).reshape(plan.rows - 1, -1)
    return {
        "pixels": np.stack(frames),
        "action": np.concatenate([blocks, np.full_like(blocks[:1], np.nan)]),
        **{name: np.stack([state[name] for state in states]) for name in task.columns},
        "ep_idx": np.full(plan.rows, episode, dtype=np.int32),
        "step_idx": np.arange(plan.rows, dtype=np.int32) * plan.frame_stride,
    }


def shard_path(parts: Path, shard: int) -> Path:
    return parts / f"shard-{shard:05d}.h5"


def write_shard(
    simulator: Simulator, task: TaskSpec, plan: Plan, parts: Path, shard: int, on_episode: Callable[[], None]
) -> None:
    members = plan.members(shard)
    with new_file(shard_path(parts, shard)) as (file, sink):
        for position, episode in enumerate(members):
            for name, values in record_episode(simulator, task, plan, episode).items():
                if position == 0:
                    _create(file, name, (plan.rows * len(members), *values.shape[1:]), values.dtype)
                file[name][position * plan.rows : (position + 1) * plan.rows] = values
            sink.check()
            on_episode()


def merge_shards(plan: Plan, parts: Path, path: Path) -> None:
    """All shards as one file, which has its name only once it is whole. Memory: one shard's small columns."""
    with new_file(path) as (file, sink):
        start = 0
        for shard in range(plan.shards):
            with _opened(shard_path(parts, shard)) as source:
                rows = plan.rows * len(plan.members(shard))
                _check_columns(source, {} if shard == 0 else file, rows)
                for name, part in source.items():
                    if shard == 0:
                        _create(file, name, (plan.rows * plan.episodes, *part.shape[1:]), part.dtype)
                    if name == "pixels":
                        _copy_chunks(part, file[name], start)
                    else:
                        file[name][start : start + rows] = part[:]
            start += rows
            sink.check()
        lengths = np.full(plan.episodes, plan.rows, dtype=np.int32)
        offsets = np.arange(plan.episodes, dtype=np.int64) * plan.rows
        for name, values in (("ep_len", lengths), ("ep_offset", offsets)):
            _create(file, name, values.shape, values.dtype)
            file[name][:] = values
        file.attrs.update(
            task=plan.task,
            env_id=plan.env_id,
            frame_stride=plan.frame_stride,
            seed=plan.seed,
            render=plan.render,
            plan=json.dumps(plan.content()),
            provenance=json.dumps(provenance()),
        )
        seal(file)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """A shard of this collection; what does not look like one, or cannot be read, is the shard's fault."""
    if not path.is_file():
        raise UserError(f"{path} is not a file; delete it, and run the same command to collect its episodes again")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError, MemoryError) as error:
        if is_disk_full(error):
            raise
        said = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise UserError(
            f"{path} is damaged ({said}); delete it, and run the same command to collect its episodes again"
        ) from error


def _check_columns(source: h5py.File, others: Mapping[str, Any], rows: int) -> None:
    """An error unless a shard has the columns of the others, and as many rows as its episodes."""
    if others and source.keys() != others.keys():
        raise ValueError(f"its columns are {', '.join(source)}, those of another shard {', '.join(others)}")
    for name, part in source.items():
        if not isinstance(part, h5py.Dataset) or part.shape[:1] != (rows,):
            raise ValueError(f"column {name} does not have {rows} rows")


def _create(file: h5py.File, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """With checksums. A frame is read alone, so it is a chunk of its own; the other columns are small and read whole."""
    frames = {"chunks": (1, *shape[1:]), "fletcher32": True, **COMPRESSION}
    settings = frames if name == "pixels" else column_settings(shape, np.dtype(dtype))
    file.create_dataset(name, shape=shape, dtype=dtype, **settings)


def _copy_chunks(source: h5py.Dataset, target: h5py.Dataset, start: int) -> None:
    """Frames as they are compressed, with their checksums: nothing is decoded."""
    rest = (0,) * (source.ndim - 1)
    alike = filters(source) == filters(target)  # shards of a version without checksums are not
    for row in range(len(source)):
        if not alike:
            target[start + row] = source[row]
            continue
        skipped_filters, chunk = source.id.read_direct_chunk((row, *rest))
        target.id.write_direct_chunk((start + row, *rest), chunk, skipped_filters)
