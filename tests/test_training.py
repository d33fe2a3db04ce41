"""Training as its user meets it: real data, real processes, killed, stopped, resumed, and refused."""

from __future__ import annotations

import csv
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest
import torch
from safetensors.torch import load_file

from phylatent import WorldModel, compose
from phylatent.collection import collect
from phylatent.composition import available, load_config
from phylatent.data.readers import open_episodes
from phylatent.errors import PhylatentError, UserError
from phylatent.objectives import TERMS
from phylatent.schema import TrainConfig
from phylatent.tasks import get_task
from phylatent.training.callbacks import checkpoints
from phylatent.training.graph import TrainingGraph
from phylatent.training.module import rate_factor
from phylatent.training.run import resumed_config, train

STEPS = 60


def smoke(data: Path, *overrides: str, variant: str = "phylatent"):
    return compose(preset="smoke", variant=variant, overrides=[f"data={data}", *overrides])


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


@pytest.fixture(scope="module")
def arguments(tworooms_data: Path) -> list[str]:
    return ["preset=smoke", f"data={tworooms_data}", f"train.steps={STEPS}", "train.validate_every=20", "device=cpu"]


@pytest.fixture(scope="module")
def uninterrupted(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "whole"
    done = finish(*arguments, f"out={directory}")
    assert done.returncode == 0, done.stderr
    return directory


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


def test_killed_and_resumed_is_bit_identical(arguments: list[str], uninterrupted: Path, tmp_path: Path) -> None:
    directory = tmp_path / "killed"
    process = start(*arguments, f"out={directory}")
    wait_for_checkpoint(directory, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    step = int(checkpoints(directory)[-1].stem.removeprefix("step-"))
    assert 0 < step < STEPS
    assert not (directory / "model").exists()

    resumed = finish(f"out={directory}", "resume=true")
    assert resumed.returncode == 0, resumed.stderr
    assert f"from step {step}" in resumed.stderr
    assert_same_run(directory, uninterrupted)


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


def test_what_a_run_leaves_behind(uninterrupted: Path, tworooms_data: Path) -> None:
    rows = table(uninterrupted / "train.csv")
    assert len(rows) == STEPS
    assert set(rows[0]) == {"step", "loss", "lr", "clips_per_second", *TERMS}
    validated = table(uninterrupted / "validation.csv")
    assert [row["step"] for row in validated] == ["20", "40", "60"]
    assert set(validated[0]) == {"step", "loss", *TERMS, "effective_rank", "r2/x", "r2/y"}
    assert list((uninterrupted / "tensorboard").glob("events.*"))
    assert len(checkpoints(uninterrupted)) == 2

    model = WorldModel.from_pretrained(uninterrupted / "model")
    config = model.config
    assert config.task == "tworooms"
    assert config.provenance["step"] == STEPS
    assert config.provenance["data"]["fingerprint"] == open_episodes(tworooms_data, get_task("tworooms")).fingerprint()
    assert len(config.split["held_out"]) == 1
    assert not set(config.split["held_out"]) & set(config.split["train"])
    assert max(config.action.std) < 1
    assert str(tworooms_data.parent) not in (uninterrupted / "model" / "config.json").read_text()
    assert not any(name.startswith(("terms", "psg")) for name in load_file(uninterrupted / "model" / "model.safetensors"))


def test_the_saved_configuration_gives_the_same_run(uninterrupted: Path, tmp_path: Path) -> None:
    again = finish(f"config={uninterrupted / 'config.yaml'}", f"out={tmp_path / 'again'}")
    assert again.returncode == 0, again.stderr
    assert_same_run(tmp_path / "again", uninterrupted)


@pytest.mark.parametrize("variant", available("variants"))
def test_every_variant_trains_two_steps(variant: str, tworooms_data: Path, tmp_path: Path) -> None:
    config = smoke(tworooms_data, "train.steps=2", variant=variant)
    result = train(config, out=tmp_path / "run")
    assert result.steps == 2
    rows = table(tmp_path / "run" / "train.csv")
    assert set(rows[0]) - {"step", "loss", "lr", "clips_per_second"} == set(config.terms)
    assert all(torch.tensor(float(value)).isfinite() for row in rows for value in row.values())


def test_the_paper_preset_takes_real_steps_at_224_px(tmp_path: Path) -> None:
    overrides = ["collect.episodes=2", "collect.steps=20", "collect.workers=1", "train.loader_workers=0"]
    small = ["train.steps=2", "train.batch_size=2", "train.validation_batches=1", "train.readout_frames=16"]
    config = compose(preset="paper", overrides=[*overrides, *small, f"data={tmp_path / 'paper.h5'}"])
    data = collect(config)
    assert open_episodes(data, get_task("tworooms")).frame_shape == (224, 224, 3)
    result = train(config, out=tmp_path / "run")
    assert result.steps == 2
    assert WorldModel.from_pretrained(tmp_path / "run" / "model").config.model.depth == 12


def test_the_clips_of_a_loader_process_are_the_same(tworooms_data: Path, tmp_path: Path) -> None:
    runs = []
    for workers in (0, 1):
        directory = tmp_path / str(workers)
        train(smoke(tworooms_data, "train.steps=3", f"train.loader_workers={workers}"), out=directory)
        runs.append((directory / "model" / "model.safetensors").read_bytes())
    assert runs[0] == runs[1]


def test_the_schedule_is_as_long_as_it_says() -> None:
    def rate(step: int, **settings: object) -> float:
        return rate_factor(step, TrainConfig(**settings), total_steps=100)

    cosine = {"schedule": "cosine", "warmup": 0.1}
    assert [rate(step, **cosine) for step in (0, 9)] == pytest.approx([0.1, 1.0])
    assert [rate(step, **cosine) for step in (10, 55, 100)] == pytest.approx([1.0, 0.5, 0.0])
    assert rate(100, **cosine, schedule_steps=1000) == pytest.approx(1.0)
    assert rate(550, **cosine, schedule_steps=1000) == pytest.approx(0.5)
    assert [rate(step) for step in (0, 50, 99)] == [1.0, 1.0, 1.0]


def test_a_loss_that_turns_nan_names_term_and_checkpoint(tworooms_data: Path, tmp_path: Path, monkeypatch) -> None:
    forward = TrainingGraph.forward
    calls = []

    def poisoned(self, *args):
        losses = forward(self, *args)
        calls.append(self.training)
        if sum(calls) == 8:
            losses.terms["fra"].data.fill_(float("nan"))
        return losses

    monkeypatch.setattr(TrainingGraph, "forward", poisoned)
    with pytest.raises(PhylatentError, match=r"the loss of fra is not finite at step 7.*step-00000005\.ckpt"):
        train(smoke(tworooms_data), out=tmp_path / "run")
    assert not (tmp_path / "run" / "model").exists()


def test_a_directory_in_use_is_left_alone(tworooms_data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="holds a run and will not be overwritten"):
        train(smoke(tworooms_data), out=uninterrupted)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        train(smoke(tworooms_data), out=tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*") if path.is_file()}


def test_a_directory_where_another_process_trains(arguments: list[str], tmp_path: Path) -> None:
    directory = tmp_path / "busy"
    process = start(*arguments, f"out={directory}", "train.steps=100000")
    try:
        wait_for_checkpoint(directory, process)
        refused = finish(f"out={directory}", "resume=true")
        assert refused.returncode == 2
        assert "another process is training in" in refused.stderr
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def copy_unfinished(run: Path, target: Path) -> Path:
    for path in run.rglob("*"):
        if path.is_file() and path.name != "result.json":
            (target / path.relative_to(run)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(run)).write_bytes(path.read_bytes())
    return target


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


def test_killed_between_the_last_step_and_the_export(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    result = train(resumed_config(directory, []), out=directory, resume=True)
    assert result.steps == STEPS
    assert result.validation.keys() >= {"pred", "r2/x"}
    assert_same_run(directory, uninterrupted)


def test_resuming(uninterrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run in"):
        train(compose(preset="smoke"), out=tmp_path / "nothing", resume=True)
    with pytest.raises(UserError, match="keeps its own configuration"):
        resumed_config(uninterrupted, ["train.lr=1"])
    assert train(resumed_config(uninterrupted, []), out=uninterrupted, resume=True).steps == STEPS


def test_a_checkpoint_without_its_parts(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    torch.save({"something": 1}, checkpoints(directory)[-1])
    with pytest.raises(UserError, match="not a whole phylatent checkpoint"):
        train(resumed_config(directory, []), out=directory, resume=True)


def test_data_that_moved_can_be_named_on_resume(uninterrupted: Path, tworooms_data: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    moved = tmp_path / "moved.h5"
    moved.write_bytes(tworooms_data.read_bytes())
    assert train(resumed_config(directory, [f"data={moved}"]), out=directory, resume=True).steps == STEPS


@pytest.mark.parametrize("kilobytes", [200, 11_500])
def test_no_space_left_on_the_disk(tworooms_data: Path, mount, kilobytes: int) -> None:
    """A real disk that fills up: at the first checkpoint, and at the second."""
    directory = mount(kilobytes) / "run"
    with pytest.raises(PhylatentError, match="no space left on the disk"):
        train(smoke(tworooms_data), out=directory)
    assert not list(directory.rglob("*.partial"))
    for path in checkpoints(directory):
        torch.load(path, weights_only=True)
    assert not (directory / "model").exists()


def test_checkpoints_by_time(tworooms_data: Path, tmp_path: Path) -> None:
    config = smoke(tworooms_data, "train.steps=3", "train.checkpoint_every=1000", "train.checkpoint_minutes=0")
    train(config, out=tmp_path / "run")
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-00000002.ckpt", "step-00000003.ckpt"]


def test_weights_that_are_not_finite_are_not_saved(tworooms_data: Path, tmp_path: Path, monkeypatch) -> None:
    """A finite loss can have a gradient that is not."""
    forward = TrainingGraph.forward

    def poisoned(self, *args):
        losses = forward(self, *args)
        if self.training and len(checkpoints(tmp_path / "run")) == 2 and checkpoints(tmp_path / "run")[-1].stem.endswith("7"):
            losses.total.register_hook(lambda gradient: gradient * float("nan"))
        return losses

    monkeypatch.setattr(TrainingGraph, "forward", poisoned)
    with pytest.raises(PhylatentError, match=r"not finite.*step-00000007\.ckpt"):
        train(smoke(tworooms_data, "train.checkpoint_every=1", "train.checkpoint_minutes=1000"), out=tmp_path / "run")


def test_a_target_that_never_varies(tworooms_data: Path, tmp_path: Path) -> None:
    """It has no R², and the result can still be written and read."""
    constant = tmp_path / "constant.h5"
    constant.write_bytes(tworooms_data.read_bytes())
    with h5py.File(constant, "r+") as file:
        file["proprio"][:, 1] = 3.0
    result = train(smoke(constant, "train.steps=2"), out=tmp_path / "run")
    assert math.isnan(result.validation["r2/y"])
    again = train(smoke(constant, "train.steps=2"), out=tmp_path / "run", resume=True)
    assert math.isnan(again.validation["r2/y"])
    assert again.validation["pred"] == result.validation["pred"]
