"""Long operation: 500 plans one after the other, and 50,000 training steps. Memory must stay flat after the first quarter.

`make endurance` writes what it measured to results/endurance.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

SMALLEST = (
    *("preset=smoke", "variant=lewm", "device=cpu", "model.image_size=16", "model.patch_size=16", "model.width=4"),
    *("model.heads=1", "model.projector_hidden=4", "model.predictor_heads=1", "model.predictor_head_dim=4"),
    *("model.predictor_mlp=4", "model.action_smoothed=2", "sigreg.directions=4", "clip.frames=2", "clip.context=1"),
    *("train.batch_size=2", "train.validation_batches=1", "train.readout_frames=16", "train.log_every=500"),
    *("train.validate_every=5000", "train.checkpoint_every=5000"),
)
"""The smallest training that there is."""
COLLECT = ("preset=smoke", "collect.frame_size=16", "collect.workers=1", "out=data.h5")


@dataclass(frozen=True)
class Endured:
    """Memory over something that was done very often, in megabytes of this machine's resident pages."""

    what: str
    count: int
    quarter_mb: float
    end_mb: float
    slope_mb: float
    """What a line through the last three quarters gains over them."""
    minutes: float


def endured(what: str, count: int, megabytes: list[float], seconds: float) -> Endured:
    later = np.array(megabytes[len(megabytes) // 4 :])
    slope = float(np.polyfit(np.arange(len(later)), later, 1)[0]) * len(later) if len(later) > 1 else 0.0
    return Endured(what, count, float(later[0]), float(later[-1]), round(slope, 2), round(seconds / 60, 2))


def resident(pid: int | str = "self") -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def replan(plans: int) -> Endured:
    """`Planner.act` in a control loop of one's own, with goals that change."""
    from phylatent import build, compose
    from phylatent.planning.actions import Actions
    from phylatent.planning.planner import Planner
    from phylatent.processes import one_thread
    from phylatent.schema import Normaliser, PlanConfig

    settings = PlanConfig(candidates=64, iterations=2, elites=8, receding=1, horizon=3)
    actions = Actions((-1.0, -1.0), (1.0, 1.0), Normaliser((0.0, 0.0), (0.87, 0.87)))
    planner = Planner(build(compose(preset="smoke")).world_model, settings=settings, actions=actions)
    frames = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    begun, megabytes = time.monotonic(), []
    with one_thread():
        for plan in range(plans):
            for step in range(planner.actions.stride):
                planner.act(frames[(plan + step) % 20], frames[20 + plan // 20 % 10])
            megabytes.append(resident())
    return endured("plans one after the other (Planner.act)", plans, megabytes, time.monotonic() - begun)


def _keep_to_one_core() -> None:
    """Threads that share so little work mostly wait for each other."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def train(steps: int, place: Path) -> Endured:
    """The real command, watched from outside."""
    collected = [sys.executable, "-m", "phylatent", "collect", *COLLECT]
    subprocess.run(collected, cwd=place, check=True, capture_output=True)
    line = ["train", *SMALLEST, "data=data.h5", "out=run", f"train.steps={steps}"]
    begun, megabytes = time.monotonic(), []
    with (place / "train.log").open("w") as log:
        command = [sys.executable, "-m", "phylatent", *line]
        process = subprocess.Popen(command, cwd=place, stdout=log, stderr=log, preexec_fn=_keep_to_one_core)
    while process.poll() is None:
        if (place / "run" / "train.csv").exists():  # from the first logged step on: imports are not what is measured
            try:
                megabytes.append(resident(process.pid))
            except (OSError, IndexError):
                break
        time.sleep(0.25)
    if process.wait():
        raise RuntimeError((place / "train.log").read_text()[-1000:])
    return endured("training steps (train)", steps, megabytes[:-2], time.monotonic() - begun)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=500)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--record", type=Path, help="a JSON file for the table")
    parser.add_argument("--allowed", type=float, default=8.0, help="megabytes that memory may gain")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="endurance-") as place:
        found = [replan(chosen.plans), train(chosen.steps, Path(place))]
    for row in found:
        print(
            f"{row.what}: {row.count:,} in {row.minutes} min, {row.quarter_mb:.0f} → {row.end_mb:.0f} MB, {row.slope_mb:+} MB"
        )
    if chosen.record:
        chosen.record.parent.mkdir(parents=True, exist_ok=True)
        chosen.record.write_text(json.dumps({"rows": [asdict(row) for row in found]}, indent=1) + "\n")
    return 1 if any(row.slope_mb > chosen.allowed for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
