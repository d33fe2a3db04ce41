"""How many clips a second a training sees, against another checkout of phylatent: the same command in turns, on all cores.

    python benchmarks/clips.py CHECKOUT [repetitions]     # minutes; writes benchmarks/results/clips.json

Each is what a user of that checkout gets by `phylatent train preset=laptop`, its settings included; the first steps, which warm
up, and validation are left out.
"""

from __future__ import annotations

import csv
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import Row, compared, in_turns, write

HERE = Path(__file__).resolve().parents[1]
STEPS, WARM = 60, 20
TASK = ["task=tworooms", "preset=laptop"]
ASKED = {"phylatent": 2.5}


def phylatent(checkout: Path, home: Path, *arguments: str) -> None:
    place = {"PYTHONPATH": str(checkout / "src"), "PHYLATENT_HOME": str(home)}
    command = [sys.executable, "-W", "ignore", "-m", "phylatent", *arguments]
    subprocess.run(command, check=True, cwd=checkout, env=os.environ | place, capture_output=True)


def measure(other: Path, home: Path, repetitions: int) -> Iterator[Row]:
    phylatent(HERE, home, "collect", *TASK, "collect.episodes=60")
    numbers = itertools.count()

    def clips(checkout: Path, variant: str) -> float:
        run = home / "runs" / f"{next(numbers)}"
        settings = [f"train.steps={STEPS}", "train.log_every=1", "train.predictor_steps=0", "train.readout_frames=16"]
        phylatent(checkout, home, "train", *TASK, f"variant={variant}", *settings, "train.validation_batches=1", f"out={run}")
        with (run / "train.csv").open() as handle:
            return statistics.median(float(row["clips_per_second"]) for row in list(csv.DictReader(handle))[WARM:])

    for variant in ("lewm", "phylatent", "phylatent-plus"):
        pairs = in_turns(lambda v=variant: clips(HERE, v), lambda v=variant: clips(other, v), repetitions)
        peer = {"unit": "clips/s", "peer_name": "before", "more_is_better": True}
        yield compared(f"laptop, {variant}", pairs, **peer, asked=ASKED.get(variant))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        checkout, *rest = sys.argv[1:]
        write("clips", measure(Path(checkout).resolve(), Path(folder), int(rest[0]) if rest else 3))
