"""Training as its user meets it: real data, what a run leaves behind, and what it refuses."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path

import h5py
import pytest
import torch
from safetensors.torch import load_file
from training_runs import STEPS, finish, smoke, start, table, wait_for_checkpoint

from phylatent import WorldModel, compose
from phylatent.commands.collect import collect
from phylatent.composition.layers import available
from phylatent.data.readers import open_episodes
from phylatent.errors import PhylatentError, UserError
from phylatent.machine import has_compiler
from phylatent.runs import checkpoints
from phylatent.schema import TrainConfig
from phylatent.tasks import get_task
from phylatent.training.graph import TrainingGraph
from phylatent.training.module import rate_factor
from phylatent.training.run import train


def test_what_a_run_leaves_behind(uninterrupted: Path, tworooms_data: Path) -> None:
    rows = table(uninterrupted / "train.csv")
    assert len(rows) == STEPS
    assert set(rows[0]) == {"step", "loss", "lr", "clips_per_second", *compose().objectives}
    validated = table(uninterrupted / "validation.csv")
    assert [row["step"] for row in validated] == ["20", "40", "60"]
    shares = {f"share/{place}/{term}" for place in ("z", "zhat") for term in compose().objectives}
    readout = {"effective_rank", "r2/x", "r2/y", "error/x", "error/y"}
    assert set(validated[0]) == {"step", "loss", *compose().objectives, *readout, *shares}
    assert list((uninterrupted / "tensorboard").glob("events.*"))
    assert len(checkpoints(uninterrupted)) == 2

    model = WorldModel.from_pretrained(uninterrupted / "model")
    config = model.config
    assert config.task == "tworooms"
    assert config.provenance["step"] == STEPS
    assert config.provenance["data"]["fingerprint"] == open_episodes(tworooms_data, get_task("tworooms")).fingerprint()
    assert [len(config.split[side]) for side in ("train", "validation", "test")] == [6, 3, 3]
    assert sorted(config.split["train"] + config.split["validation"] + config.split["test"]) == list(range(12))
    assert max(config.action.std) < 1
    assert str(tworooms_data.parent) not in (uninterrupted / "model" / "config.json").read_text()
    assert not any(name.startswith(("terms", "psg")) for name in load_file(uninterrupted / "model" / "model.safetensors"))


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="torch.compile wants a C++ compiler on a CPU")
def test_a_compiled_encoder_trains_to_the_same_losses(tworooms_data: Path, tmp_path: Path) -> None:
    rows = {}
    for compiled in ("true", "false"):
        directory = tmp_path / compiled
        train(smoke(tworooms_data, "train.steps=3", "model.encoder=conv", f"train.compile={compiled}"), out=directory)
        rows[compiled] = table(directory / "train.csv")
        names = set(load_file(directory / "model" / "model.safetensors"))
        assert not any("_orig_mod" in name for name in names)
    for ours, plain in zip(rows["true"], rows["false"], strict=True):
        for name in compose().objectives:
            assert float(ours[name]) == pytest.approx(float(plain[name]), rel=1e-3, abs=1e-6), name


def test_compiling_wants_a_compiler(tworooms_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler"):
        train(smoke(tworooms_data, "train.compile=true"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("variant", available("variants"))
def test_every_variant_trains_two_steps(variant: str, tworooms_data: Path, tmp_path: Path) -> None:
    config = smoke(tworooms_data, "train.steps=2", variant=variant)
    result = train(config, out=tmp_path / "run")
    assert result.steps == 2
    rows = table(tmp_path / "run" / "train.csv")
    assert set(rows[0]) - {"step", "loss", "lr", "clips_per_second"} == set(config.objectives)
    assert all(torch.tensor(float(value)).isfinite() for row in rows for value in row.values())


def test_the_paper_preset_takes_real_steps_at_224_px(tmp_path: Path) -> None:
    overrides = ["collect.episodes=3", "collect.steps=20", "collect.workers=1", "train.loader_workers=0"]
    small = ["train.steps=2", "train.batch_size=2", "train.validation_batches=1", "train.readout_frames=16"]
    config = compose(preset="paper", overrides=[*overrides, *small, f"data={tmp_path / 'paper.h5'}"])
    data = collect(config)
    assert open_episodes(data, get_task("tworooms")).frame_shape == (224, 224, 3)
    # In a process of its own: it takes a gigabyte.
    done = finish("preset=paper", *overrides, *small, f"data={data}", f"out={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 2
    assert json.loads((tmp_path / "run" / "model" / "config.json").read_text())["model"]["depth"] == 12


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
    hold = {"schedule": "hold", "warmup": 0.1, "cooldown": 0.4}
    assert [rate(step, **hold) for step in (0, 9, 10, 60, 80, 100, 120)] == pytest.approx([0.1, 1.0, 1.0, 1.0, 0.5, 0.0, 0.0])


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


@pytest.mark.slow
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
