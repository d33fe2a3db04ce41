"""Does a change move a number that it should not? Short runs of two checkouts, compared bit for bit.

    python benchmarks/same.py run CHECKOUT OUT      # collect, train, diagnose, plan and report with that checkout's code
    python benchmarks/same.py compare BEFORE AFTER  # two such directories; exit code 1 if anything differs

Weights, optimiser states, arrays, pair lists and the numbers of every record must be equal; times, versions, paths and hashes
of settings are left out. What is new in AFTER, such as another setting in a record or another row of a table, is counted;
nothing may be missing.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.numpy import load_file

TASKS = ("tworooms", "pusht", "reacher", "cube")
VARIANTS = {
    "lewm": [],
    "phylatent": [],
    "smwm": [],
    "phylatent-plus": ["model.encoder=conv", "train.predictor_steps=4"],
}
APART = {
    *("provenance", "key", "created", "command", "python", "platform", "packages", "commit", "directory", "path", "data"),
    *(
        "seconds",
        "planning_seconds",
        "training_seconds",
        "clips_per_second",
        "seconds_of_starts",
        "peak_memory_gb",
        "workers",
        "sha256",
    ),
}
"""Names of what may differ between two runs of the same code."""
RENAMED = {"terms": "objectives"}
"""Names of before → names of now, for two checkouts that differ in nothing else."""


def run(checkout: Path, out: Path) -> None:
    home = out.resolve()
    place = {"PYTHONPATH": str(checkout.resolve() / "src"), "PHYLATENT_HOME": str(home), "OMP_NUM_THREADS": "1"}

    def phylatent(*arguments: str) -> None:
        print("phylatent", *arguments, flush=True)
        command = [sys.executable, "-m", "phylatent", *arguments]
        subprocess.run(command, check=True, cwd=checkout, env=os.environ | place, stdout=subprocess.DEVNULL)

    for task in TASKS:
        phylatent("collect", f"task={task}", "preset=smoke", "collect.workers=1", "collect.episodes=24", "collect.steps=45")
        for variant, settings in VARIANTS.items():
            directory = home / "runs" / f"{task}-smoke-{variant}-seed0"
            if not (directory / "model").is_dir():
                phylatent(
                    "train", f"task={task}", "preset=smoke", f"variant={variant}", "seed=0", f"out={directory}", *settings
                )
        runs = {variant: str(home / "runs" / f"{task}-smoke-{variant}-seed0") for variant in VARIANTS}
        others = [directory for variant, directory in runs.items() if variant != "smwm"]
        for judged in (others, [runs["smwm"]]):  # smwm's clips are longer, so it has a sample of its own
            phylatent("diagnose", *judged, "diagnose.workers=1")
            phylatent("diagnose", *judged, "diagnose.workers=1", "protocol=ordering")
            phylatent("plan", *judged, "plan.workers=1", "protocol=paper,strict")
        phylatent("report", *runs.values(), f"out={home / 'report' / task}")


def compare(before: Path, after: Path) -> int:
    different, new, files = [], 0, 0
    for path in sorted(p.relative_to(before) for p in before.rglob("*") if p.is_file()):
        read = _reader(path)
        if read is None:
            continue
        files += 1
        if not (after / path).is_file():
            different.append(f"{path}: missing")
            continue
        first, second = dict(_leaves(read(before / path))), dict(_leaves(read(after / path)))
        new += len(second.keys() - first.keys())
        different += [f"{path}: {name} is missing" for name in first.keys() - second.keys()]
        different += [
            f"{path}: {name}: {_short(first[name])} → {_short(second[name])}"
            for name in first.keys() & second.keys()
            if not _equal(first[name], second[name])
        ]
    print("\n".join(different))
    print(f"{files} files compared, {len(different)} differences, {new} new entries")
    return 1 if different or not files else 0


def _reader(path: Path) -> Any:
    if path.name.endswith(".h5.json") or path.name in ("time.json", "run.json"):
        return None
    return {
        ".safetensors": load_file,
        ".ckpt": lambda file: torch.load(file, map_location="cpu", weights_only=True),
        ".npz": lambda file: dict(np.load(file)),
        ".json": lambda file: json.loads(file.read_text()),
        ".yaml": lambda file: yaml.safe_load(file.read_text()),
        ".csv": lambda file: list(csv.DictReader(file.open(newline=""))),
    }.get(path.suffix)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in APART:
                yield from _leaves(inner, f"{name}/{RENAMED.get(key, key)}")
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{name}/{index}")
    else:
        yield name, value


def _equal(first: Any, second: Any) -> bool:
    first, second = (v.numpy() if isinstance(v, torch.Tensor) else v for v in (first, second))
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
    return first == second or (first != first and second != second)


def _short(value: Any) -> str:
    return str(value).replace("\n", " ")[:60]


if __name__ == "__main__":
    action, first, second = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    sys.exit({"run": run, "compare": compare}[action](first, second))
