"""Clips a second that a loader delivers: ours against stable-worldmodel's readers, and our share of a training step.

    python benchmarks/loader.py [DIRECTORY]     # minutes once its files are there; drawing Cube's frames takes minutes, too

The same clips for both sides, four frames five steps apart, in batches of 32, and the frames are compared before anything is
timed. Both sides read the same file, except where ours is the prepared one that was made from it. The peer keeps every column
but the frames in memory (`keys_to_cache`), as we do. What it reads twice may be in its chunk cache of 256 MB: of these small
files that is a quarter to a half, of the published ones nothing, so the comparison is in its favour.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Row, compared, in_turns, seconds, write
from loader_files import EPISODES, Files, default_directory, make_files
from torch.utils.data import DataLoader

from phylatent import compose
from phylatent.commands.collect import collect
from phylatent.data.prepare import prepare
from phylatent.data.read_ahead import ReadAhead
from phylatent.data.readers import open_episodes
from phylatent.data.windows import Windows, as_it_is
from phylatent.machine import cores
from phylatent.models.world_model import WorldModel, WorldModelConfig
from phylatent.randomness import Draws
from phylatent.schema import ClipConfig
from phylatent.tasks import get_task
from phylatent.training.run import prepare as prepare_run

CLIP = ClipConfig()
BATCH, BATCHES, REPETITIONS, WORKERS = 32, 8, 7, 2
FLOAT_BATCHES = 24
STEPS, PAPER_BATCH = 5, 4
"""A paper-size step of 32 clips takes too long here; loading takes the same time a clip whatever the batch."""
PEER_HDF5, PEER_LANCE = "stable-worldmodel's HDF5 reader", "stable-worldmodel's Lance reader"
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
Pairs = list[tuple[float, float]]


def keep_memory(worker: int = 0) -> None:
    """Memory that is freed stays with the process, on both sides and in their workers.

    Fresh pages are expensive on some virtual machines, and would be much of what is measured.
    """
    with contextlib.suppress(OSError, AttributeError):  # glibc's own
        ctypes.CDLL(None).mallopt(M_MMAP_MAX, 0)
        ctypes.CDLL(None).mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


class Clips:
    """Lists of clips, by episode and step; the n-th is a function of n, so that both sides get the same."""

    def __init__(self, peer: Any, windows: Windows) -> None:
        self.peer, self.windows = peer, windows
        self._first = np.array([int(peer.offsets[episode]) + start for episode, start in peer.clip_indices])

    def drawn(self, number: int, batches: int) -> tuple[list[list[int]], list[list[int]]]:
        """(indices of ours, indices of the peer's), [batches][BATCH] each."""
        chosen = np.random.default_rng(number).integers(len(self._first), size=(batches, BATCH))
        ours = np.searchsorted(self.windows.starts, self._first[chosen])
        assert (self.windows.starts[ours] == self._first[chosen]).all()
        return ours.tolist(), chosen.tolist()


class Batches:
    """A batch sampler whose batches can be changed from pass to pass while its loader's processes live on."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class UsualTransform:
    """What users of stable-worldmodel give a data set: each clip to float, normalised, and scaled to the model's size."""

    def __init__(self, size: int = 224) -> None:
        from torchvision.transforms import v2

        self.steps = v2.Compose(
            [v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD), v2.Resize((size, size))]
        )

    def __call__(self, clip: dict[str, Any]) -> dict[str, Any]:
        return {**clip, "pixels": self.steps(clip["pixels"])}


def peer_data(path: Path, task: str, **settings: Any) -> Any:
    """stable-worldmodel's data set with the columns that a training takes."""
    columns = list(dict.fromkeys(["action", *get_task(task).target.columns]))
    given = {"frameskip": CLIP.stride, "num_steps": CLIP.frames, "keys_to_load": ["pixels", *columns], **settings}
    if path.suffix == ".lance":
        from stable_worldmodel.data.formats.lance import LanceDataset

        return LanceDataset(path=path, **given)
    from stable_worldmodel.data.formats.hdf5 import HDF5Dataset

    return HDF5Dataset(path=path, keys_to_cache=columns, **given)


def our_data(path: Path, task: str) -> Windows:
    episodes = open_episodes(path, get_task(task))
    return Windows(episodes, range(len(episodes.lengths)), CLIP)


def loader(data: Any, workers: int = 0) -> tuple[DataLoader[Any] | ReadAhead, Batches]:
    """Ours as a training makes it: with threads where frames are at hand, with processes otherwise."""
    batches = Batches()
    if workers and isinstance(data, Windows) and data.episodes.store.at_hand:
        return ReadAhead(data, batches, workers), batches
    settings: dict[str, Any] = {"collate_fn": as_it_is} if isinstance(data, Windows) else {}
    if workers:
        settings |= {"multiprocessing_context": "spawn", "persistent_workers": True, "worker_init_fn": keep_memory}
    return DataLoader(data, batch_sampler=batches, num_workers=workers, **settings), batches


def check_same_frames(clips: Clips, tolerance: int = 0) -> None:
    ours, theirs = clips.drawn(0, 1)
    mine = clips.windows.__getitems__(ours[0]).frames
    expected = torch.stack([clips.peer[index]["pixels"] for index in theirs[0]]).permute(0, 1, 3, 4, 2)
    difference = int((mine.int() - expected.int()).abs().max())
    assert difference <= tolerance, f"frames differ by {difference}: the comparison would be of different things"


def raw_clips(ours: Path, theirs: Path, task: str, tolerance: int = 0) -> Pairs:
    """Clips a second (ours, the peer's), as they are stored, in this very process."""
    clips = Clips(peer_data(theirs, task), our_data(ours, task))
    check_same_frames(clips, tolerance)
    return rates(clips, workers=0, batches=BATCHES, ours=lambda batch: None, peer=lambda batch: None)


def rates(clips: Clips, *, workers: int, batches: int, ours: Callable[[Any], None], peer: Callable[[Any], None]) -> Pairs:
    """Clips a second of each repetition; `ours` and `peer` are what is still to be done with a delivered batch."""

    def side(which: int, use: Callable[[Any], None]) -> Callable[[], float]:
        data, chosen = loader((clips.windows, clips.peer)[which], workers)
        numbers = itertools.count()

        def consume() -> None:
            for batch in data:
                use(batch)

        def once() -> float:
            chosen.batches = clips.drawn(next(numbers), batches)[which]
            return batches * BATCH / seconds(consume)

        return once

    mine, theirs = side(0, ours), side(1, peer)
    mine(), theirs()
    return in_turns(mine, theirs, REPETITIONS)


def geometric_mean(of_tasks: Sequence[Pairs]) -> Pairs:
    """One pair a repetition: its ratio is the geometric mean of the tasks' ratios."""
    means = np.exp(np.log(np.array(of_tasks)).mean(axis=0))
    return [(float(mine), float(theirs)) for mine, theirs in means]


def raw_rows(files: Sequence[Files]) -> list[Row]:
    def measured(what: str, pick: Callable[[Files], tuple[Path, Path]], asked: float | None, each: bool) -> list[Row]:
        pairs = {one.task: raw_clips(*pick(one), one.task) for one in files}
        named = {"unit": "clips/s", "peer_name": PEER_HDF5, "more_is_better": True}
        rows = [compared(f"raw clips, {what}, {task}", pairs[task], **named) for task in pairs] if each else []
        over = "geometric mean over the tasks"
        return [*rows, compared(f"raw clips, {what}, {over}", geometric_mean(list(pairs.values())), asked=asked, **named)]

    as_written = "of a file as stable-worldmodel 0.1.1 writes it"
    return [
        *measured("prepared", lambda one: (one.prepared, one.published), 12, True),
        *measured("HDF5 in place", lambda one: (one.published, one.published), 3, True),
        *measured(f"prepared, {as_written}", lambda one: (one.prepared, one.written), None, False),
        *measured(f"HDF5 in place, {as_written}", lambda one: (one.written, one.written), None, False),
    ]


def lance_rows(files: Sequence[Files]) -> list[Row]:
    rows = []
    for one in files:
        if one.lance is None or one.lance_prepared is None:
            continue
        for what, ours in (("prepared", one.lance_prepared), ("Lance in place", one.lance)):
            # Both decode the JPEGs with libjpeg-turbo, not with the same settings.
            pairs = raw_clips(ours, one.lance, one.task, tolerance=4)
            name = f"raw clips, {what}, {one.task}"
            rows.append(compared(name, pairs, unit="clips/s", peer_name=PEER_LANCE, more_is_better=True))
    return rows


def float_rows(files: Sequence[Files]) -> list[Row]:
    """Normalised float batches from two processes: ours travel as bytes and are normalised as a whole, where they are used."""
    model = WorldModel(WorldModelConfig(action_dim=2))
    pairs = []
    for one in files:
        clips = Clips(peer_data(one.published, one.task, transform=UsualTransform()), our_data(one.prepared, one.task))
        check_same_floats(clips, model)
        pairs.append(
            rates(
                clips,
                workers=WORKERS,
                batches=FLOAT_BATCHES,
                ours=lambda batch: touch(model.normalise_frames(batch.frames)),
                peer=lambda batch: touch(batch["pixels"]),
            )
        )
    name = f"normalised float batches, prepared, {WORKERS} workers, geometric mean over the tasks"
    peer_name = f"{PEER_HDF5} with the usual transform"
    return [compared(name, geometric_mean(pairs), unit="clips/s", peer_name=peer_name, more_is_better=True, asked=8)]


def touch(pixels: torch.Tensor) -> None:
    """A model would read them; one value of each frame is enough to have them there."""
    pixels.flatten(0, 1)[:, 0, 0, 0].sum()


def check_same_floats(clips: Clips, model: WorldModel) -> None:
    ours, theirs = clips.drawn(0, 1)
    mine = model.normalise_frames(clips.windows.__getitems__(ours[0][:4]).frames)
    expected = torch.stack([clips.peer[index]["pixels"] for index in theirs[0][:4]])
    torch.testing.assert_close(mine, expected, rtol=0, atol=1e-5)


def share_rows(files: Sequence[Files], directory: Path) -> list[Row]:
    """How much of a training step is waiting for its clips, where nothing is read ahead: workers can only make it less."""
    tworooms = next(one for one in files if one.task == "tworooms")
    small = compose(task="tworooms", preset="laptop", overrides=[f"collect.episodes={EPISODES['tworooms']}"])
    laptop = collect(small, out=directory / "tworooms-laptop.h5")
    prepared = prepare(laptop, small.spec, small.prepare, path=directory / "tworooms-laptop.frames")
    cases = (
        ("laptop, HDF5 in place", "laptop", laptop, 32),
        ("laptop, prepared", "laptop", prepared, 32),
        (f"paper at batch {PAPER_BATCH}, HDF5 in place", "paper", tworooms.published, PAPER_BATCH),
        (f"paper at batch {PAPER_BATCH}, prepared", "paper", tworooms.prepared, PAPER_BATCH),
    )
    return [share_of_a_step(what, preset, data, batch) for what, preset, data, batch in cases]


def share_of_a_step(what: str, preset: str, data: Path, batch_size: int) -> Row:
    settings = [f"data={data}", f"train.batch_size={batch_size}", "device=cpu"]
    run = prepare_run(compose(task="tworooms", preset=preset, variant="phylatent", overrides=settings))
    graph, windows = run.graph.train(), run.windows
    optimiser = torch.optim.AdamW(graph.parameters())
    shares, waits = [], []
    for number in range(STEPS + 1):
        chosen = np.random.default_rng(number).integers(len(windows), size=batch_size).tolist()
        begun = time.perf_counter()
        batch = windows.__getitems__(chosen)
        loaded = time.perf_counter()
        optimiser.zero_grad()
        graph(*batch, Draws(0, f"benchmark/{number}", torch.device("cpu"))).total.backward()
        optimiser.step()
        done = time.perf_counter()
        if number:  # the first one sets things up
            shares.append(100 * (loaded - begun) / (done - begun))
            waits.append(1e3 * (loaded - begun))
    return Row(
        what=f"loader's share of a step, {what}",
        unit="%",
        ours=statistics.median(shares),
        asked=5,
        at_most=True,
        repetitions=STEPS,
        more={"milliseconds_of_loading": statistics.median(waits), "smallest": min(shares), "largest": max(shares)},
    )


def main(directory: Path) -> None:
    keep_memory()
    files = [make_files(task, directory) for task in EPISODES]
    # With two threads the peer's collation took 1 to 9 ms a clip of processor time on a machine that others used, too; with one
    # it is steady, and at its fastest. Ours has nothing to collate.
    torch.set_num_threads(1)
    rows = [*raw_rows(files), *lance_rows(files)]
    # Who normalises whole batches does so with all cores, as a training has them; the peer's two processes have one each.
    torch.set_num_threads(cores())
    write("loader", [*rows, *float_rows(files), *share_rows(files, directory)])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default_directory())
