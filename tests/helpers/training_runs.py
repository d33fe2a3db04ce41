"""What tests of training share: runs of the smoke preset, started, awaited, read and compared."""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from pathlib import Path

import torch

from phylatent import compose
from phylatent.runs import checkpoints

STEPS = 60


def smoke(data: Path, *overrides: str, variant: str = "phylatent"):
    return compose(preset="smoke", variant=variant, overrides=[f"data={data}", *overrides])


# Every objective there is in one graph, the paper's and the sibling methods'.
WEIGHTS = {
    **{"pred": 1.0, "sigreg": 0.09, "svic": 0.03, "psg": 0.2, "fra": 0.08, "casc": 0.02, "ld": 0.01},
    **{"contrast": 0.1, "covariance": 12.0, "inverse": 0.1, "rollout": 0.3, "smoothness": 0.2, "subspaces": 0.09},
    **{"variance": 18.0, "variance_time": 0.7},
}
EVERY_TERM = [f"objectives=[{','.join(WEIGHTS)}]", *(f"{name}.weight={weight}" for name, weight in WEIGHTS.items())]
EVERY_TERM += ["subspaces.count=8", "subspaces.directions=4"]


def start(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "phylatent", "train", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def finish(*arguments: str) -> subprocess.CompletedProcess:
    process = start(*arguments)
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def wait_for_checkpoint(directory: Path, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while len(checkpoints(directory)) < 2:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as handle:
        return list(csv.DictReader(handle))


def assert_same_run(directory: Path, other: Path) -> None:
    weights = [(d / "model" / "model.safetensors").read_bytes() for d in (directory, other)]
    assert weights[0] == weights[1]
    mine, theirs = (torch.load(checkpoints(d)[-1], weights_only=True) for d in (directory, other))
    assert mine["global_step"] == theirs["global_step"] == STEPS
    assert all(torch.equal(tensor, theirs["state_dict"][name]) for name, tensor in mine["state_dict"].items())
    for file in ("train.csv", "validation.csv"):
        mine, theirs = table(directory / file), table(other / file)
        for row in (*mine, *theirs):
            row.pop("clips_per_second", None)
        assert mine == theirs, file


def copy_unfinished(run: Path, target: Path) -> Path:
    for path in run.rglob("*"):
        if path.is_file() and path.name != "result.json":
            (target / path.relative_to(run)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(run)).write_bytes(path.read_bytes())
    return target
