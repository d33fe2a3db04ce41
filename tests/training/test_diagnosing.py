"""Small diagnoses while training: they are logged, and training does not notice them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from training_runs import finish, smoke, table

from phylatent.errors import UserError
from phylatent.runs import checkpoints
from phylatent.training.run import train

RATES = {"diagnose/invariance", "diagnose/identifiability", "diagnose/counterfactual"}
SETTINGS = ["train.steps=6", "train.validate_every=3", "split.validation=0.3", "diagnose.branches=4", "diagnose.states=20"]


def test_diagnosing_leaves_the_training_as_it_was(tworooms_data: Path, tmp_path: Path) -> None:
    for name, more in (("plain", []), ("diagnosed", ["diagnose.every=2"])):
        train(smoke(tworooms_data, *SETTINGS, *more), out=tmp_path / name)
    plain, diagnosed = (torch.load(checkpoints(tmp_path / name)[-1], weights_only=True) for name in ("plain", "diagnosed"))
    assert all(torch.equal(tensor, diagnosed["state_dict"][name]) for name, tensor in plain["state_dict"].items())
    assert torch.equal(
        plain["optimizer_states"][0]["state"][0]["exp_avg"], diagnosed["optimizer_states"][0]["state"][0]["exp_avg"]
    )

    rows = {int(row["step"]): row for row in table(tmp_path / "diagnosed" / "validation.csv")}
    assert list(rows) == [2, 3, 4, 6]
    assert all(math.isnan(float(rows[3][name])) for name in RATES)
    assert all(0 <= float(rows[step][name]) <= 1 for step in (2, 4, 6) for name in RATES)
    before = {int(row["step"]): row for row in table(tmp_path / "plain" / "validation.csv")}
    for step in (3, 6):
        assert {name: value for name, value in rows[step].items() if name not in RATES} == before[step]
    for name in ("plain", "diagnosed"):
        assert list((tmp_path / name / "tensorboard").glob("events.*"))


@pytest.mark.slow
def test_two_processes_diagnose_once(tworooms_data: Path, tmp_path: Path) -> None:
    settings = ["preset=smoke", f"data={tworooms_data}", *SETTINGS, "diagnose.every=3", "device=cpu", "devices=2"]
    done = finish(*settings, f"out={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    rows = table(tmp_path / "run" / "validation.csv")
    assert [row["step"] for row in rows] == ["3", "6"]
    assert all(0 <= float(row[name]) <= 1 for row in rows for name in RATES)


def test_too_few_validation_episodes_are_told_before_the_directory_is_touched(tworooms_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="1 held-out episodes"):
        train(smoke(tworooms_data, "diagnose.every=2", "split.validation=0.05"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
