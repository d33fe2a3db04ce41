"""The predictor's own steps after the joint training: only it learns, on any number of processes, from any checkpoint on."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from training_runs import finish, smoke

from phylatent import WorldModel, distributed
from phylatent.composition import load_config
from phylatent.errors import Interrupted, UserError
from phylatent.objectives.rollout import Rollout
from phylatent.training import run
from phylatent.training.module import TrainingModule
from phylatent.training.predictor_steps import ClipsWithoutFrames, PredictorModule, predictor_windows
from phylatent.training.storage import CsvTables

STEPS = ["train.steps=10", "train.validate_every=10", "train.predictor_steps=40", "train.lr=1e-3", "device=cpu"]
FROZEN = ("encoder.", "projector.")


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return WorldModel.from_pretrained(directory / "model").state_dict()


@pytest.fixture(scope="module")
def trained(tworooms_data: Path, tmp_path_factory: pytest.TempPathFactory) -> run.TrainResult:
    return run.train(smoke(tworooms_data, *STEPS), out=tmp_path_factory.mktemp("runs") / "whole")


def test_the_predictor_learns_and_the_encoder_stays(trained: run.TrainResult, tworooms_data: Path, tmp_path: Path) -> None:
    before = run.train(smoke(tworooms_data, *STEPS, "train.predictor_steps=0"), out=tmp_path / "before")
    old, new = weights(before.directory), weights(trained.directory)
    for name, tensor in old.items():
        if name.startswith(FROZEN):
            assert torch.equal(tensor, new[name]), name
    assert any(not torch.equal(tensor, new[name]) for name, tensor in old.items() if name.startswith("predictor."))
    assert trained.validation["pred"] < 0.9 * before.validation["pred"]
    assert trained.validation["sigreg"] == before.validation["sigreg"]
    assert trained.steps == before.steps == 10
    assert trained.validation_before_predictor_steps == before.validation, "the stage is reported with and without"
    assert run.read_result(trained.directory) == trained
    assert before.validation_before_predictor_steps is None
    assert json.loads((trained.directory / "result.json").read_text())["predictor_steps"] == 40


def test_they_are_in_the_same_tables(trained: run.TrainResult) -> None:
    train, validation = (CsvTables.read(trained.directory / name) for name in ("train.csv", "validation.csv"))
    assert [int(row["step"]) for row in train] == list(range(1, 51))
    assert [int(row["step"]) for row in validation] == [10, 20, 30, 40, 50]
    assert all(row["pred"] and row["lr"] and not row["loss"] for row in train[10:]), "the sum is one of fewer objectives there"
    assert all(not row["sigreg"] for row in train[10:])
    assert float(validation[-1]["pred"]) == trained.validation["pred"]


@pytest.mark.parametrize("after", [0, 25])
def test_stopped_within_them_it_goes_on_to_the_same_weights(
    trained: run.TrainResult, tworooms_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Before their first checkpoint, and in the midst of them: every step is saved as `train.checkpoint_every` says."""
    out, step = tmp_path / "stopped", PredictorModule.training_step

    def stopping(self, batch, index):
        if self.global_step == after:
            signal.raise_signal(signal.SIGINT)
        return step(self, batch, index)

    with monkeypatch.context() as patched:
        patched.setattr(PredictorModule, "training_step", stopping)
        with pytest.raises(
            Interrupted, match=rf"stopped after predictor step {after + 1}, .*phylatent train out=.*resume=true"
        ):
            run.train(smoke(tworooms_data, *STEPS), out=out)
    assert not (out / "result.json").exists()
    again = run.train(load_config(out / "config.yaml"), out=out, resume=True)
    assert again.validation_before_predictor_steps == trained.validation_before_predictor_steps
    assert again.validation == trained.validation
    assert [row["pred"] for row in CsvTables.read(out / "train.csv")] == [
        row["pred"] for row in CsvTables.read(trained.directory / "train.csv")
    ]
    resumed = weights(out)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in weights(trained.directory).items())


def test_a_stop_at_the_last_joint_step_is_one(
    trained: run.TrainResult, tworooms_data: Path, tmp_path: Path, monkeypatch
) -> None:
    """The predictor's own steps come after it."""
    out, step = tmp_path / "stopped", TrainingModule.training_step

    def stopping(self, batch, index):
        if self.global_step == 9:
            signal.raise_signal(signal.SIGINT)
        return step(self, batch, index)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingModule, "training_step", stopping)
        with pytest.raises(Interrupted, match="stopped after step 10, which is saved"):
            run.train(smoke(tworooms_data, *STEPS), out=out)
    assert run.train(load_config(out / "config.yaml"), out=out, resume=True).validation == trained.validation


def test_without_an_objective_for_it(tworooms_data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="an objective that teaches the predictor"):
        run.train(smoke(tworooms_data, *STEPS, "objectives=[sigreg]"), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def gradients(data: Path) -> dict[str, torch.Tensor]:
    """Of the first step of the predictor, averaged over processes as DDP does it."""
    prepared = run.prepare(smoke(data, "train.predictor_steps=1", "device=cpu"))
    module = PredictorModule(prepared.graph, predictor_windows(prepared.windows, prepared.config), prepared.config, offset=0)
    module.on_fit_start()
    own = distributed.own_rows(module.batch_size // distributed.world_size())
    batch = ClipsWithoutFrames(module.windows).__getitems__(range(module.batch_size)[own])
    module.training_step(batch, 0).backward()
    named = {name: p.grad for name, p in prepared.graph.named_parameters() if p.grad is not None}
    return {name: distributed.mean_across(gradient) for name, gradient in named.items()}


def worker(rank: int, data: Path, place: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{place / 'rendezvous'}", rank=rank, world_size=2)
    torch.save(gradients(data), place / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_are_one_batch(tworooms_data: Path, tmp_path: Path) -> None:
    mp.spawn(worker, args=(tworooms_data, tmp_path), nprocs=2)
    expected = gradients(tworooms_data)
    largest = max(value.abs().max() for value in expected.values())
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert (found[name] - value).abs().max() <= 1e-4 * value.abs().max() + 1e-6 * largest, name


def test_two_processes_train_and_refine(trained: run.TrainResult, tworooms_data: Path, tmp_path: Path) -> None:
    done = finish(f"data={tworooms_data}", "preset=smoke", *STEPS, "devices=2", f"out={tmp_path / 'two'}")
    assert done.returncode == 0, done.stderr
    assert "the predictor alone, on the latents of the training frames, to step 40" in " ".join(done.stderr.split())
    assert done.stderr.count("predictor step 40/40, validation:") == 1
    assert run.read_result(tmp_path / "two").validation["pred"] == pytest.approx(trained.validation["pred"], rel=0.05)


ROLLOUT = ["objectives=[pred,sigreg,psg,rollout]", "train.predictor_blocks=5", "train.predictor_steps=8", "device=cpu"]


def test_rollout_sees_longer_clips_and_the_others_do_not(tworooms_data: Path, tmp_path: Path, monkeypatch) -> None:
    seen = []
    forward = Rollout.forward

    def recorded(self, seq, *rest):
        loss = forward(self, seq, *rest)
        if self.training and seq.open_loop is not None:
            lengths = (seq.z_BTD, seq.c_BHD, seq.open_loop.z_BLD, seq.open_loop.c_BkD)
            seen.append(tuple(values.shape[1] for values in lengths))
        return loss

    monkeypatch.setattr(Rollout, "forward", recorded)
    run.train(smoke(tworooms_data, *ROLLOUT, "train.steps=2"), out=tmp_path / "run")
    assert [shapes[:2] for shapes in seen] == [(4, 3)] * 8
    assert [shapes[2:] for shapes in seen] == [(k + 1, k) for k in (1, 2, 3, 4, 5, 5, 5, 5)]


def test_a_run_with_rollout_is_one_to_load(tworooms_data: Path, tmp_path: Path) -> None:
    done = run.train(smoke(tworooms_data, *ROLLOUT, "train.steps=2", "train.balance=shares"), out=tmp_path / "run")
    assert WorldModel.from_pretrained(done.directory / "model").config.clip.context == 3
    assert done.validation.keys() >= {"rollout", "share/zhat/rollout"}


@pytest.mark.parametrize(
    "overrides, message",
    [
        (["objectives=[pred,sigreg]"], r"predictor_blocks=5 is for the objective rollout.*objectives=\[pred,sigreg,rollout\]"),
        (["train.predictor_blocks=2"], r"predictor_blocks is 2; it must be at least clip\.context = 3"),
        (["train.predictor_blocks=50"], "no episode is long enough for one clip"),
    ],
)
def test_blocks_that_cannot_be(tworooms_data: Path, tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run.train(smoke(tworooms_data, *ROLLOUT, *overrides), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
