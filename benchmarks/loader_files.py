"""The files that benchmarks/loader.py reads: real frames of each task at 224 px, laid out in every way that is compared.

They are made once and kept: under `build/` (not in git), or in the directory that is given.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np

from phylatent import compose
from phylatent.commands.collect import collect
from phylatent.data.prepare import prepare
from phylatent.files import atomic, whole_directory
from phylatent.schema import PrepareConfig

SIZE = 224
FRAMES_OF_A_CHUNK = {"tworooms": 1, "pusht": 16, "reacher": 1, "cube": 1}
"""In the published files, which are all compressed with Blosc (docs/data.md, tests/helpers/published_files.py)."""
EPISODES = {"tworooms": 40, "pusht": 40, "reacher": 20, "cube": 20}
"""Of 101 rows each. MuJoCo's frames take long to draw."""
LANCE_TASK = "pusht"
"""The one task whose data is published as a Lance table, too."""


@dataclass(frozen=True)
class Files:
    task: str
    published: Path
    """HDF5, compressed, in the published files' chunks."""
    written: Path
    """HDF5 as stable-worldmodel 0.1.1 writes it itself: a frame a chunk, not compressed."""
    prepared: Path
    lance: Path | None
    lance_prepared: Path | None


def default_directory() -> Path:
    home = os.environ.get("PHYLATENT_HOME")
    return (Path(home) if home else Path(__file__).parents[1]) / "build" / "loader"


def make_files(task: str, directory: Path) -> Files:
    """What is there is kept."""
    config = compose(
        task=task,
        preset="paper",
        overrides=[f"collect.episodes={EPISODES[task]}", "collect.steps=100", "collect.shard_episodes=2"],
    )
    assert config.collect.frame_size == SIZE
    source = collect(config, out=directory / f"{task}.h5")
    published, written = directory / f"{task}-published.h5", directory / f"{task}-written.h5"
    lance = directory / f"{task}.lance" if task == LANCE_TASK else None
    if not published.exists():
        _write_published(source, published, FRAMES_OF_A_CHUNK[task])
    if not written.exists():
        _write_as_stable_worldmodel(source, written)
    if lance is not None and not lance.exists():
        _write_lance(source, lance)
    spec, settings = config.spec, PrepareConfig(workers=1)
    return Files(
        task=task,
        published=published,
        written=written,
        prepared=prepare(published, spec, settings, path=directory / f"{task}.frames"),
        lance=lance,
        lance_prepared=None if lance is None else prepare(lance, spec, settings, path=directory / f"{task}-lance.frames"),
    )


def _write_published(source: Path, path: Path, frames_of_a_chunk: int) -> None:
    with h5py.File(source) as given, atomic(path) as temporary, h5py.File(temporary, "w", libver="latest") as file:
        for name, column in given.items():
            values = column[:]
            options = {"chunks": (frames_of_a_chunk, *values.shape[1:]), **hdf5plugin.Blosc(cname="lz4")}
            shape = (None, *values.shape[1:])
            file.create_dataset(name, data=values, maxshape=shape, **(options if name == "pixels" else {}))


def _write_as_stable_worldmodel(source: Path, path: Path) -> None:
    from stable_worldmodel.data.formats.hdf5 import HDF5Writer

    with atomic(path) as temporary, HDF5Writer(temporary, mode="overwrite") as writer:
        for episode in _episodes(source):
            writer.write_episode(episode)


def _write_lance(source: Path, path: Path) -> None:
    from stable_worldmodel.data.formats.lance import LanceWriter

    with whole_directory(path.with_suffix(".writing")) as folder:
        with LanceWriter(folder / path.name) as writer:
            writer.write_episodes(_episodes(source))
        shutil.move(folder / path.name, path)
    shutil.rmtree(path.with_suffix(".writing"))


def _episodes(source: Path) -> list[dict[str, list[np.ndarray]]]:
    """As stable-worldmodel's writers take them: a list of steps a column."""
    own = {"ep_len", "ep_offset", "ep_idx", "step_idx"}
    with h5py.File(source) as file:
        columns = {name: file[name][:] for name in file if name not in own}
        spans = zip(file["ep_offset"][:].tolist(), file["ep_len"][:].tolist(), strict=True)
        return [{name: list(values[a : a + n]) for name, values in columns.items()} for a, n in spans]
