"""How time and memory grow with what a training or a plan is given, one part a function.

    python benchmarks/scale.py [PART ...]     # minutes; all parts by default

`data`: loading and memory of a training on 10 thousand to a million prepared frames; the million takes 3 GB of disk meanwhile.
`batch`, `frames`: a training step by clips and by the size of frames (scale_training.py).
`candidates`, `horizon`, `episodes`: a search (scale_planning.py).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import numpy as np
import psutil
import scale_planning
import scale_training
import torch
from harness import Row, write

from phylatent import compose
from phylatent.data.formats.prepared import ABOUT, COLUMNS, FRAMES, VERSION
from phylatent.randomness import Draws
from phylatent.training.run import prepare

FRAMES_OF_DATA = (10_000, 100_000, 1_000_000)
SIZE, EPISODE, WRITTEN_AT_ONCE = 32, 100, 10_000
STEPS, BATCH = 400, 64
"""400 batches of 64 clips are 102,400 frames, 315 MB."""


COLUMNS_MB, SLACK_MB = 32, 300
"""What is kept in memory of every row (4 actions and targets, 8 bytes of order, 8 of a clip's first row); mapped pages held."""


def write_synthetic(path: Path, frames: int) -> Path:
    """A prepared set of noise in the columns of TwoRooms: its bytes are not of interest, only how many they are."""
    rng = np.random.default_rng(0)
    path.mkdir()
    with (path / FRAMES).open("wb") as file:
        for _ in range(frames // WRITTEN_AT_ONCE):
            file.write(rng.bytes(WRITTEN_AT_ONCE * SIZE * SIZE * 3))
    episodes = frames // EPISODE
    with h5py.File(path / COLUMNS, "w") as file:
        file["action"] = rng.uniform(-1, 1, (frames, 2)).astype(np.float32)
        for name in ("proprio", "state", "goal_state"):
            file[name] = rng.uniform(0, 224, (frames, 2)).astype(np.float32)
        file["ep_len"] = np.full(episodes, EPISODE, dtype=np.int32)
        file["ep_offset"] = np.arange(episodes, dtype=np.int64) * EPISODE
        file.attrs["task"] = "tworooms"
    (path / ABOUT).write_text(json.dumps({"version": VERSION, "shape": [frames, SIZE, SIZE, 3]}))
    return path


def train_on(path: Path) -> dict[str, float]:
    """A tiny model trained for a while; what its process took by then. Called in a process of its own."""
    settings = [f"data={path}", f"train.batch_size={BATCH}", "device=cpu"]
    torch.set_num_threads(1)
    run = prepare(compose(task="tworooms", preset="smoke", variant="lewm", overrides=settings))
    optimiser = torch.optim.AdamW(run.graph.parameters())
    loading, stepping = [], []
    for number in range(STEPS):
        chosen = np.random.default_rng(number).integers(len(run.windows), size=BATCH).tolist()
        begun = time.perf_counter()
        batch = run.windows.__getitems__(chosen)
        loaded = time.perf_counter()
        optimiser.zero_grad()
        run.graph(*batch, Draws(0, f"scale/{number}", torch.device("cpu"))).total.backward()
        optimiser.step()
        loading.append(loaded - begun)
        stepping.append(time.perf_counter() - loaded)
    memory = psutil.Process().memory_info()
    return {
        "own_gb": (memory.rss - memory.shared) / 1e9,
        "resident_gb": memory.rss / 1e9,
        "milliseconds_of_loading": 1e3 * statistics.median(loading),
        "milliseconds_of_a_step": 1e3 * statistics.median(stepping),
    }


def data() -> list[Row]:
    """Own memory is what the system cannot take back; resident memory counts mapped pages of the file as well."""
    rows: list[Row] = []
    measured: list[dict[str, float]] = []
    for frames in FRAMES_OF_DATA:
        with tempfile.TemporaryDirectory(dir=Path(__file__).parent.parent, prefix=".scale-") as folder:
            path = write_synthetic(Path(folder) / "noise.frames", frames)
            command = [sys.executable, "-W", "ignore", __file__, "--train-on", str(path)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        measured.append(found)
        for what, key, unit in (
            ("own memory", "own_gb", "GB"),
            ("resident memory", "resident_gb", "GB"),
            ("loading a batch", "milliseconds_of_loading", "ms"),
        ):
            rows.append(Row(f"{what}, training on {frames:,} prepared frames", unit, found[key], repetitions=STEPS, more=found))
    for what, key in (("own", "own_gb"), ("resident", "resident_gb")):
        growth = 1e3 * (measured[-1][key] - measured[0][key])
        name = f"{what} memory, a million frames more than ten thousand (actions, targets and order: {COLUMNS_MB} MB)"
        rows.append(Row(name, "MB", growth, asked=COLUMNS_MB + SLACK_MB, at_most=True))
    return rows


PARTS: dict[str, Callable[[], list[Row]]] = {"data": data, **scale_training.PARTS, **scale_planning.PARTS}
"""Name → what it measures."""


def main(parts: Sequence[str]) -> None:
    for name in parts:
        if name not in PARTS:
            sys.exit(f"error: there is no part {name!r}; parts are: {', '.join(PARTS)}")
    write("scale", (row for name in parts or PARTS for row in PARTS[name]()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train-on"]:
        print(json.dumps(train_on(Path(sys.argv[2]))))
    else:
        main(sys.argv[1:])
