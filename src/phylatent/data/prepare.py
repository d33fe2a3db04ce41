"""`prepare`: any readable data set as a directory of raw frames that training reads through a memory map (formats/prepared.py).

Chunks of frames are written in any order, by any process, and marked once they are on disk; all of it waits in `<set>.parts/`
until it is whole and equal to its source. Whatever stops it, the same call goes on with it.
"""

# N frames, R rows, H height, W width

from __future__ import annotations

import hashlib
import logging
import math
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phylatent.data.collect import differences
from phylatent.data.formats import open_store
from phylatent.data.formats.checksums import column_settings, seal
from phylatent.data.formats.hdf5 import new_file
from phylatent.data.formats.prepared import ABOUT, COLUMNS, FRAMES, VERSION, PreparedStore, read_about
from phylatent.data.integrity import RECORD_DIGEST, record_digest
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.view import View
from phylatent.errors import Interrupted, PhylatentError, UserError
from phylatent.files import check_space, check_target, is_disk_full, locked, remove_partials, stored_bytes
from phylatent.processes import Tick, Work, run
from phylatent.reading import check_shape, read_json
from phylatent.records import provenance, write_json
from phylatent.schema import PrepareConfig, TaskSpec
from phylatent.simulator import scaled

log = logging.getLogger(__name__)
CHUNK_BYTES = 64 * 2**20
"""Of the source's frames: what one process holds in memory, and what is done again after a kill."""
SAMPLED_ROWS = 64
"""Frames that are read once more from the source and compared byte by byte, beside the checksum of all of them."""
Progress = Callable[[int, int], None]
"""(frames done, frames in all)"""


@dataclass(frozen=True)
class Job:
    """What is written where. It goes to other processes."""

    source: Path
    task: TaskSpec
    parts: Path
    shape: tuple[int, int, int, int]
    chunk_rows: int

    @property
    def whole(self) -> Path:
        """What becomes the prepared set."""
        return self.parts / "whole"

    @property
    def chunks(self) -> range:
        return range(-(-self.shape[0] // self.chunk_rows))

    def rows(self, chunk: int) -> np.ndarray:
        return np.arange(chunk * self.chunk_rows, min((chunk + 1) * self.chunk_rows, self.shape[0]))

    def mark(self, chunk: int) -> Path:
        """Holds the checksum of a chunk that is on disk."""
        return self.parts / f"chunk-{chunk:06d}.json"

    @property
    def missing(self) -> list[int]:
        return [chunk for chunk in self.chunks if not self.mark(chunk).exists()]

    @property
    def frame_bytes(self) -> int:
        return math.prod(self.shape[1:])

    def frames(self, view: View, rows: np.ndarray) -> np.ndarray:
        """What the prepared set holds in these rows, uint8 [N, H, W, 3]."""
        frames = view.frames(rows)
        if frames.shape[1:] == self.shape[1:]:
            return np.ascontiguousarray(frames)
        return np.stack([scaled(frame, self.shape[1]) for frame in frames])


def prepare(
    source: str | Path, task: TaskSpec, settings: PrepareConfig, *, path: Path, progress: Progress | None = None
) -> Path:
    """Prepare the data set at `source` into the directory `path` and return it; at once if it is there already."""
    path = Path(path)
    check_target(path, directory=True)
    if path.suffix not in PreparedStore.suffixes:
        raise UserError(f"a prepared data set is a directory whose name ends in {PreparedStore.suffixes[0]}; got {path}")
    episodes = open_episodes(source, task)
    rows, height, width, colours = episodes.store.columns["pixels"][0]
    if settings.frame_size is not None:
        height = width = settings.frame_size
    plan = make_plan(episodes, task, (height, width))
    parts = path.with_name(path.name + ".parts")
    if is_prepared(path, plan) and not parts.exists():
        log.info("%s is already prepared", path)
        return path
    chunk_rows = max(1, CHUNK_BYTES // math.prod(episodes.frame_shape))
    job = Job(episodes.path.absolute(), task, parts, (rows, height, width, colours), chunk_rows)
    busy = f"another process is preparing {path} right now; wait for it, or choose another out="
    with locked(parts, "lock", busy=busy, elsewhere="choose another out="):
        if not is_prepared(path, plan):
            _check_parts(job, plan)
            _check_space(job, episodes.store, path)
            _write(job, episodes, path, settings.workers, progress)
            _finish(job, episodes, plan)
            job.whole.replace(path)
        shutil.rmtree(parts, ignore_errors=True)  # another process may just have come, to find that all is done
    return path


def make_plan(episodes: Episodes, task: TaskSpec, size: tuple[int, int]) -> dict[str, Any]:
    """What decides the content: a source told by its episodes, its frames' kind and its size on disk, and the frames' size."""
    return {
        "task": task.name,
        "fingerprint": episodes.fingerprint(),
        "render": episodes.render,
        "source_frames": list(episodes.frame_shape),
        "source_bytes": stored_bytes(episodes.path),
        "frames": list(size),
    }


def is_prepared(path: Path, plan: Mapping[str, Any]) -> bool:
    """Whether `path` holds this very set, whole. Anything else of that name is the user's and never overwritten."""
    if not path.exists():
        return False
    advice = "nothing was overwritten: choose another out=, or move it away"
    try:
        found = read_about(path)["plan"]
        if not isinstance(found, dict):
            raise UserError("a plan is an object")
    except (UserError, KeyError) as error:
        raise UserError(f"{path} exists and was not written by `phylatent prepare`; {advice}") from error
    if changes := differences(found, plan):
        raise UserError(f"{path} exists and was prepared from something else ({changes}); {advice}")
    PreparedStore(path)  # an error if it is damaged
    return True


def _check_parts(job: Job, plan: Mapping[str, Any]) -> None:
    """Go on only with what was begun, and without what a killed process left half-written."""
    record = job.parts / "plan.json"
    begun = {**plan, "chunk_rows": job.chunk_rows}
    if record.exists():
        if changes := differences(read_json(record, again=f"delete {job.parts} to begin anew"), begun):
            raise UserError(
                f"{job.parts} holds an unfinished preparation of another kind ({changes}); "
                f"run the command it was begun with to finish it, or delete that directory to begin anew"
            )
    else:
        write_json(record, begun)
    for folder in (job.parts, job.whole):
        remove_partials(folder)


def _check_space(job: Job, view: View, path: Path) -> None:
    """An error unless there is room for the frames that are still to be written, and for the columns."""
    frames = sum(len(job.rows(chunk)) for chunk in job.missing) * job.frame_bytes
    columns = sum(math.prod(view.columns[name][0]) * view.columns[name][1].itemsize for name in kept_columns(view))
    advice = "choose another out=, or take smaller frames with prepare.frame_size="
    check_space(path, frames + columns, job.parts, advice=advice)


def _write(job: Job, episodes: Episodes, path: Path, workers: int, progress: Progress | None) -> None:
    total = job.shape[0]
    missing = job.missing
    done = total - sum(len(job.rows(chunk)) for chunk in missing)

    def on_chunk(rows: int = job.chunk_rows) -> None:
        nonlocal done
        done = min(total, done + rows)
        if progress is not None:
            progress(done, total)

    try:
        on_chunk(0)
        job.whole.mkdir(exist_ok=True)
        with (job.whole / FRAMES).open("ab") as handle:
            handle.truncate(total * job.frame_bytes)
        work = Work(_writer, (job,), name=f"preparing {path}", advice="finished frames are kept: run the same command to go on")
        run(work, missing, workers, on_chunk)
        _check_written(job, episodes)
    except KeyboardInterrupt:
        kept = total - sum(len(job.rows(chunk)) for chunk in job.missing)
        raise Interrupted(
            f"preparing {path} was interrupted; {kept} of {total} frames are kept in {job.parts}: run the same command to go on"
        ) from None


def _writer(job: Job, on_chunk: Tick) -> Callable[[int], None]:
    view = View(open_store(job.source), job.task)

    def write(chunk: int) -> None:
        rows = job.rows(chunk)
        frames = job.frames(view, rows)
        try:
            with (job.whole / FRAMES).open("r+b", buffering=0) as handle:
                handle.seek(int(rows[0]) * job.frame_bytes)
                rest = frames.data.cast("B")
                while rest:
                    rest = rest[handle.write(rest) :]
                os.fsync(handle.fileno())
            write_json(job.mark(chunk), {"sha256": hashlib.sha256(frames.data).hexdigest()})
        except OSError as error:
            if not is_disk_full(error):
                raise
            raise PhylatentError(
                f"no space left on the disk while writing {job.parts}; finished frames are kept: "
                f"free some space and run the same command to go on"
            ) from error
        on_chunk()

    return write


def _check_written(job: Job, episodes: Episodes) -> None:
    """An error unless the disk gives back what was read from the source; the chunk at fault is written again next time."""
    sample = set(np.linspace(0, job.shape[0] - 1, SAMPLED_ROWS).astype(int).tolist())
    with (job.whole / FRAMES).open("rb") as handle:
        for chunk in job.chunks:
            rows = job.rows(chunk)
            written = handle.read(len(rows) * job.frame_bytes)
            equal = hashlib.sha256(written).hexdigest() == _checksum(job, chunk)
            again = np.array(sorted(sample.intersection(rows.tolist())), dtype=np.int64)
            if equal and again.size:
                frames = np.frombuffer(written, np.uint8).reshape(-1, *job.shape[1:])
                equal = np.array_equal(frames[again - rows[0]], job.frames(episodes.store, again))
            if not equal:
                job.mark(chunk).unlink()
                raise PhylatentError(
                    f"rows {rows[0]} to {rows[-1]} of {job.whole / FRAMES} are not what {job.source} holds: the disk is at "
                    f"fault, or the source was changed meanwhile; run the same command to write them again"
                )


def _checksum(job: Job, chunk: int) -> str:
    mark, again = job.mark(chunk), "delete it, and the same command writes its frames again"
    found = read_json(mark, again=again)
    check_shape(mark, found, {"sha256": str}, again=again)
    return found["sha256"]


def kept_columns(view: View) -> list[str]:
    """Numbers, at most a list of them a row: further cameras and texts are left out."""
    return [name for name, (shape, dtype) in view.columns.items() if dtype.kind in "iufb" and 1 <= len(shape) <= 2]


def _finish(job: Job, episodes: Episodes, plan: Mapping[str, Any]) -> None:
    """Columns under the task's names, and the record of it all."""
    view = episodes.store
    kept = kept_columns(view)
    with new_file(job.whole / COLUMNS) as (file, sink):
        for name in kept:
            shape, dtype = view.columns[name]
            column = file.create_dataset(name, shape=shape, dtype=dtype.newbyteorder("="), **column_settings(shape, dtype))
            for first in range(0, shape[0], 2**16):
                column[first : first + 2**16] = view.read(name, first, min(first + 2**16, shape[0]))
            sink.check()
        file.attrs.update({**view.attributes, "task": job.task.name})
        seal(file)
    checksums = [_checksum(job, chunk) for chunk in job.chunks]
    record = {
        "version": VERSION,
        "shape": list(job.shape),
        "chunk_rows": job.chunk_rows,
        "sha256": checksums,
        "sha256_of_chunks": hashlib.sha256("".join(checksums).encode()).hexdigest(),
        "source": job.source.name,
        "left_out": sorted(set(view.columns) - {*kept, "pixels"}),
        "plan": dict(plan),
        "provenance": provenance(),
    }
    write_json(job.whole / ABOUT, record | {RECORD_DIGEST: record_digest(record)})
