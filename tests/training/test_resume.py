"""Runs that are killed, stopped, resumed and re-run: the same bits, or a clear refusal."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from training_runs import STEPS, assert_same_run, copy_unfinished, finish, smoke, start, table, wait_for_checkpoint

from phylatent import WorldModel, compose
from phylatent.commands.collect import collect
from phylatent.composition import load_config, resumed_config
from phylatent.errors import UserError
from phylatent.runs import checkpoints
from phylatent.training.result import read_result
from phylatent.training.run import train


@pytest.mark.slow
def test_killed_and_resumed_is_bit_identical(arguments: list[str], uninterrupted: Path, tmp_path: Path) -> None:
    directory = tmp_path / "killed"
    process = start(*arguments, f"out={directory}")
    wait_for_checkpoint(directory, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    step = int(checkpoints(directory)[-1].stem.removeprefix("step-"))
    assert 0 < step < STEPS
    assert not (directory / "model").exists()

    counted = json.loads((directory / "time.json").read_text())["seconds_of_starts"]
    resumed = finish(f"out={directory}", "resume=true")
    assert resumed.returncode == 0, resumed.stderr
    assert f"from step {step}" in resumed.stderr
    assert_same_run(directory, uninterrupted)
    result = read_result(directory)
    last = json.loads((directory / "time.json").read_text())["seconds_of_starts"]
    assert len(counted) == 1
    assert last[:-1] == counted
    assert (result.starts, result.seconds) == (2, pytest.approx(sum(last), abs=5))
    assert result.seconds > counted[0]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_saves_and_says_how_to_go_on(arguments: list[str], uninterrupted: Path, tmp_path: Path, workers: int) -> None:
    directory = tmp_path / "stopped"
    process = start(*arguments, f"out={directory}", "train.checkpoint_every=1000000", f"train.loader_workers={workers}")
    while not (directory / "train.csv").exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert f"phylatent train out={directory} resume=true" in err
    assert "Traceback" not in err
    assert len(checkpoints(directory)) == 1

    assert finish(f"out={directory}", "resume=true").returncode == 0
    assert_same_run(directory, uninterrupted)


@pytest.mark.slow
def test_ctrl_c_on_two_processes(arguments: list[str], tmp_path: Path) -> None:
    directory = tmp_path / "two"
    process = start(*arguments, f"out={directory}", "devices=2")
    wait_for_checkpoint(directory, process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert err.count("resume=true") == 1
    assert finish(f"out={directory}", "resume=true").returncode == 0
    assert (directory / "model" / "model.safetensors").exists()


@pytest.mark.slow
def test_the_saved_configuration_gives_the_same_run(uninterrupted: Path, tmp_path: Path) -> None:
    again = finish(f"config={uninterrupted / 'config.yaml'}", f"out={tmp_path / 'again'}")
    assert again.returncode == 0, again.stderr
    assert_same_run(tmp_path / "again", uninterrupted)


def test_killed_between_the_last_step_and_the_export(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    result = train(resumed_config(directory, []), out=directory, resume=True)
    assert result.steps == STEPS
    assert result.validation.keys() >= {"pred", "r2/x"}
    assert_same_run(directory, uninterrupted)


def test_seconds_are_summed_over_starts(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    (directory / "time.json").write_text('{"seconds_of_starts": [1000.0, 200.0]}')
    result = train(resumed_config(directory, []), out=directory, resume=True)
    assert result.starts == 3
    assert 1200 < result.seconds < 1300
    assert read_result(directory).seconds == result.seconds
    made = WorldModel.from_pretrained(directory / "model").config.provenance
    assert (made["seconds"], made["starts"]) == (result.seconds, 3)


def test_a_run_begun_when_no_time_was_kept_does_not_claim_one(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    (directory / "time.json").unlink()
    assert math.isnan(train(resumed_config(directory, []), out=directory, resume=True).seconds)
    assert math.isnan(read_result(directory).seconds)
    assert WorldModel.from_pretrained(directory / "model").config.provenance["seconds"] is None


def test_a_run_that_was_split_in_two_goes_on_with_its_split(tworooms_data: Path, tmp_path: Path) -> None:
    """As an earlier version left it: `split.held_out` in its configuration, and a checkpoint in the middle."""
    config = smoke(tworooms_data, "split.validation=0", "train.steps=10", "train.validate_every=5", "device=cpu")
    whole = train(config, out=tmp_path / "whole").directory
    directory = copy_unfinished(whole, tmp_path / "run")
    checkpoints(directory)[-1].unlink()
    text = (directory / "config.yaml").read_text().replace("validation: 0.0\n  test: 0.25", "held_out: 0.25")
    assert "held_out" in text
    (directory / "config.yaml").write_text(text)
    train(resumed_config(directory, []), out=directory, resume=True)
    models = [WorldModel.from_pretrained(d / "model") for d in (directory, whole)]
    assert models[0].config.split == models[1].config.split
    assert (models[0].config.split["validation"], len(models[0].config.split["test"])) == ([], 3)
    assert table(directory / "validation.csv") == table(whole / "validation.csv")
    assert all(torch.equal(tensor, models[1].state_dict()[name]) for name, tensor in models[0].state_dict().items())


def test_resuming(uninterrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run in"):
        train(compose(preset="smoke"), out=tmp_path / "nothing", resume=True)
    with pytest.raises(UserError, match="keeps its own configuration"):
        resumed_config(uninterrupted, ["train.lr=1"])
    assert train(resumed_config(uninterrupted, []), out=uninterrupted, resume=True).steps == STEPS


def test_data_that_moved_can_be_named_on_resume(uninterrupted: Path, tworooms_data: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    moved = tmp_path / "moved.h5"
    moved.write_bytes(tworooms_data.read_bytes())
    assert train(resumed_config(directory, [f"data={moved}"]), out=directory, resume=True).steps == STEPS


def test_a_run_is_not_continued_on_other_data(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    config = load_config(directory / "config.yaml")
    Path(tmp_path / "other").mkdir()
    other = collect(
        compose(preset="smoke", overrides=["collect.seed=5", "collect.workers=1"]), out=tmp_path / "other" / "data.h5"
    )
    text = (directory / "config.yaml").read_text().replace(str(config.data), str(other))
    (directory / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"is not what the run .* was trained on"):
        train(resumed_config(directory, []), out=directory, resume=True)


def test_a_checkpoint_of_another_shape(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    changed = (directory / "config.yaml").read_text().replace("width: 48", "width: 96")
    (directory / "config.yaml").write_text(changed)
    with pytest.raises(UserError, match="does not fit this run"):
        train(resumed_config(directory, []), out=directory, resume=True)


def test_a_checkpoint_cut_short(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    newest = checkpoints(directory)[-1]
    newest.write_bytes(newest.read_bytes()[:5000])
    with pytest.raises(UserError, match="not a whole phylatent checkpoint"):
        train(resumed_config(directory, []), out=directory, resume=True)
    newest.unlink()
    assert train(resumed_config(directory, []), out=directory, resume=True).steps == STEPS


def test_a_checkpoint_without_its_parts(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    torch.save({"something": 1}, checkpoints(directory)[-1])
    with pytest.raises(UserError, match="not a whole phylatent checkpoint"):
        train(resumed_config(directory, []), out=directory, resume=True)


class Malicious:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


def test_a_pickle_with_code_is_refused(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    torch.save({"state_dict": {}, "global_step": 1, "evil": Malicious(tmp_path / "mark")}, checkpoints(directory)[-1])
    with pytest.raises(UserError, match="not a whole phylatent checkpoint"):
        train(resumed_config(directory, []), out=directory, resume=True)
    assert not (tmp_path / "mark").exists()
