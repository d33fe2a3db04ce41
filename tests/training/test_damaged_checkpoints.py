"""Checkpoints and the small files of a run that are cut, forged or not finite: one sentence, before Lightning sees them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import assert_user_mistake
from training_runs import STEPS, copy_unfinished, smoke

from phylatent.composition import resumed_config
from phylatent.errors import PhylatentError, UserError
from phylatent.runs import JOINT, PREDICTOR, checkpoints
from phylatent.training import callbacks
from phylatent.training.checkpoint import newest_good
from phylatent.training.run import train

GO_ON = "delete it to go on from the one before it"
WEIGHT = "graph.world_model.encoder.pos_embed"
FIT = ("loops", "fit_loop")
STEP = (*FIT, "epoch_loop.automatic_optimization.optim_progress", "optimizer", "step", "total", "completed")
FIRST = ("optimizer_states", 0, "state", 0)


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(checkpoint: Any) -> None:
        for key in path[:-1]:
            checkpoint = checkpoint[key]
        checkpoint[path[-1]] = value

    return change


def drop(*path: Any) -> Callable[[Any], None]:
    def change(checkpoint: Any) -> None:
        for key in path[:-1]:
            checkpoint = checkpoint[key]
        del checkpoint[path[-1]]

    return change


DAMAGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "no optimiser": (drop("optimizer_states"), "not a whole phylatent checkpoint: it has no optimizer_states"),
    "empty optimiser": (put("optimizer_states", value=[]), "it has not one optimiser with one group"),
    "optimiser of text": (put("optimizer_states", value="x"), "optimizer_states is 'x', expected a list"),
    "no schedule": (drop("lr_schedulers"), "it has no lr_schedulers"),
    "no version": (drop("pytorch-lightning_version"), "it has no pytorch-lightning_version"),
    "a version of nothing": (
        put("pytorch-lightning_version", value="x"),
        "pytorch-lightning_version is 'x', expected a version",
    ),
    "an old version": (put("pytorch-lightning_version", value="0.5.0"), "expected a version"),
    "no loops": (drop("loops"), "it has no loops"),
    "loops of nothing": (put("loops", value=None), "loops is null, expected an object"),
    "no fit loop": (drop(*FIT), "loops has no fit_loop"),
    "no progress": (drop(*FIT, "epoch_loop.batch_progress", "total"), "has no total"),
    "far ahead": (put("global_step", value=10**9), "it is at step 1,000,000,000 of a run that ends at 60"),
    "one ahead": (put("global_step", value=STEPS + 1), "it is at step 61 of a run that ends at 60"),
    "before the start": (put("global_step", value=-1), "global_step is -1, expected a whole number from 0 on"),
    "step of text": (put("global_step", value="x"), "global_step is 'x', expected a whole number"),
    "another step": (put("global_step", value=3), f"it is at step 3, its optimiser at {STEPS} and its schedule at {STEPS}"),
    "steps counted": (put(*STEP, value=10**9), f"it is at step {STEPS}, its optimiser at 1000000000"),
    "batches counted": (put(*FIT, "epoch_loop.batch_progress", "current", "ready", value=10**9), "is 1,000,000,000 after 60"),
    "weights of nothing": (put("state_dict", value=None), "state_dict is null, expected an object"),
    "a weight of text": (put("state_dict", WEIGHT, value="x"), f"state_dict.{WEIGHT} is 'x', expected a tensor"),
    "a weight by number": (put("state_dict", 5, value=torch.zeros(1)), "only the checkpoint has 5"),
    "a weight without prefix": (
        put("state_dict", WEIGHT.removeprefix("graph."), value=torch.zeros(1)),
        "does not fit this run",
    ),
    "no weight": (drop("state_dict", WEIGHT), "only the run's configuration has world_model.encoder.pos_embed"),
    "whole weights": (put("state_dict", WEIGHT, value=torch.zeros(1, 5, 48, dtype=torch.int64)), "is int64 in the checkpoint"),
    "a sparse weight": (put("state_dict", WEIGHT, value=torch.zeros(1, 5, 48).to_sparse()), "expected a tensor"),
    "a mean's shape": (put(*FIRST, "exp_avg", value=torch.zeros(7)), "exp_avg of its optimiser's parameter 0 is [7], expected"),
    "a mean of text": (put(*FIRST, "exp_avg", value="x"), "exp_avg is 'x', expected a tensor"),
    "no mean": (drop(*FIRST, "exp_avg_sq"), "optimizer_states[0].state.0 has no exp_avg_sq"),
    "a parameter too many": (
        put("optimizer_states", 0, "state", 10**6, value={}),
        "optimizer_states[0].state.1000000 has no step",
    ),
    "rate of text": (put("optimizer_states", 0, "param_groups", 0, "lr", value="x"), "lr is 'x', expected a finite number"),
    "parameters": (put("optimizer_states", 0, "param_groups", 0, "params", value=[0]), "its optimiser is not one of"),
    "a schedule's method": (put("lr_schedulers", 0, "step", value=3), "its schedule has a step"),
    "callbacks": (put("callbacks", value=[1]), "callbacks is a list, expected an object"),
    "NaN weights": (put("state_dict", WEIGHT, value=torch.full((1, 5, 48), math.nan)), "not finite (world_model.encoder.pos"),
    "infinite mean": (
        lambda checkpoint: checkpoint["optimizer_states"][0]["state"][0]["exp_avg"].fill_(math.inf),
        "not finite (exp_avg of the optimiser's parameter 0), so it is no good one",
    ),
}


@pytest.fixture(scope="module")
def unfinished(uninterrupted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_unfinished(uninterrupted, tmp_path_factory.mktemp("damaged") / "run")


@pytest.mark.parametrize("damage, sentence", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_checkpoint_that_is_damaged(damage: Callable[[Any], None], sentence: str, unfinished: Path, here) -> None:
    """The same run for all: whatever is refused is refused before anything is written."""
    newest = checkpoints(unfinished)[-1]
    whole = newest.read_bytes()
    checkpoint = torch.load(newest, weights_only=True)
    damage(checkpoint)
    torch.save(checkpoint, newest)
    done = here("train", f"out={unfinished}", "resume=true", cwd=unfinished.parent)
    newest.write_bytes(whole)
    assert_user_mistake(done, sentence)
    assert newest.name in done.stderr
    assert GO_ON in done.stderr or "does not fit this run" in done.stderr


def test_what_is_no_checkpoint_at_all(unfinished: Path, here) -> None:
    newest = checkpoints(unfinished)[-1]
    whole = newest.read_bytes()
    for content in ([1], torch.zeros(3), "x"):
        torch.save(content, newest)
        done = here("train", f"out={unfinished}", "resume=true", cwd=unfinished.parent)
        assert_user_mistake(done, "it is not a whole phylatent checkpoint but a")
    for raw in (b"", b"x", whole[:1000], whole[:5000], whole[:-500], whole[: len(whole) // 2]):
        newest.write_bytes(raw)
        assert_user_mistake(here("train", f"out={unfinished}", "resume=true", cwd=unfinished.parent), GO_ON)
    newest.write_bytes(whole)


def test_the_last_good_checkpoint_is_a_good_one(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    older, newer = checkpoints(directory)
    assert newest_good(directory, PREDICTOR, JOINT) == newer
    checkpoint = torch.load(newer, weights_only=True)
    checkpoint["state_dict"][WEIGHT].fill_(math.nan)
    torch.save(checkpoint, newer)
    assert newest_good(directory, JOINT) == older
    older.write_bytes(older.read_bytes()[:5000])
    assert newest_good(directory, JOINT) is None


def test_a_run_goes_on_from_the_one_before(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    newest = checkpoints(directory)[-1]
    checkpoint = torch.load(newest, weights_only=True)
    checkpoint["state_dict"][WEIGHT][0, 0, 0] = math.inf
    torch.save(checkpoint, newest)
    with pytest.raises(UserError, match=f"not finite.*{GO_ON}"):
        train(resumed_config(directory, []), out=directory, resume=True)
    newest.unlink()
    assert train(resumed_config(directory, []), out=directory, resume=True).steps == STEPS


@pytest.mark.parametrize("what", ["optimiser", "buffer"])
def test_what_is_not_finite_beside_the_weights_is_not_saved(
    what: str, tworooms_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = callbacks.Checkpoints.on_train_batch_end

    def poisoned(self, trainer, module, *rest):
        if trainer.global_step == 3:
            if what == "optimiser":
                next(iter(trainer.optimizers[0].state.values()))["exp_avg"].fill_(math.nan)
            else:
                dict(module.graph.named_buffers())["world_model.projector.net.1.running_var"].fill_(math.inf)
        decide(self, trainer, module, *rest)

    monkeypatch.setattr(callbacks.Checkpoints, "on_train_batch_end", poisoned)
    named = "exp_avg of the optimiser's" if what == "optimiser" else r"projector\.net\.1\.running_var"
    with pytest.raises(PhylatentError, match=rf"{named}.* is not finite after step 3.*Last good .*step-00000002\.ckpt"):
        train(smoke(tworooms_data, "train.steps=5", "train.checkpoint_every=1"), out=tmp_path / "run")
    assert checkpoints(tmp_path / "run")[-1].stem.endswith("2")


DEEP = '{"a":' * 100_000
SMALL: list[tuple[str, bytes, str]] = [
    *((name, b'{"a": ', "it is not JSON") for name in ("run.json", "time.json")),
    *((name, DEEP.encode(), "nested too deeply") for name in ("run.json", "time.json")),
    *((name, b"null", "it holds a NoneType, not a JSON object") for name in ("run.json", "time.json")),
    *((name, b"\xff\xfe", "it is not text") for name in ("run.json", "time.json", "train.csv", "validation.csv")),
    ("run.json", b"{}", "it has no data"),
    ("run.json", b'{"data": null}', "data is null, expected an object"),
    ("run.json", b'{"data": {"name": 3, "episodes": 12, "fingerprint": "a"}}', "data.name is 3, expected a text"),
    ("run.json", b'{"data": {"name": "a", "episodes": 12}}', "data has no fingerprint"),
    ("time.json", b"{}", "it has no seconds_of_starts"),
    ("time.json", b'{"seconds_of_starts": 3}', "seconds_of_starts is 3, expected a list"),
    ("time.json", b'{"seconds_of_starts": ["x"]}', "seconds_of_starts[0] is 'x', expected a finite number"),
    ("time.json", b'{"seconds_of_starts": [Infinity]}', "seconds_of_starts[0] is inf, expected a finite number"),
    ("train.csv", b"loss\n1.0\n", "line 2 has no step"),
    ("validation.csv", b"loss\n1.0\n", "line 2 has no step"),
    ("validation.csv", b"step,loss\n10,x\n", "loss in line 2 is 'x', expected a number"),
    ("train.csv", b"step,loss\n10\n20,1.0\n", "line 2 has not as many cells"),
]


@pytest.mark.parametrize("name, content, sentence", SMALL, ids=[f"{name}: {sentence}" for name, _, sentence in SMALL])
def test_small_files_that_are_damaged(name: str, content: bytes, sentence: str, unfinished: Path, here) -> None:
    whole = (unfinished / name).read_bytes()
    (unfinished / name).write_bytes(content)
    done = here("train", f"out={unfinished}", "resume=true", cwd=unfinished.parent)
    (unfinished / name).write_bytes(whole)
    assert_user_mistake(done, sentence)
    assert f"{name} is damaged" in done.stderr


def test_a_table_that_a_kill_cut_is_no_hindrance(uninterrupted: Path, tmp_path: Path) -> None:
    directory = copy_unfinished(uninterrupted, tmp_path / "run")
    checkpoints(directory)[-1].unlink()
    with (directory / "train.csv").open("a") as handle:
        handle.write("61,0.5")
    assert train(resumed_config(directory, []), out=directory, resume=True).steps == STEPS
    mine, theirs = ((d / "train.csv").read_text().splitlines() for d in (directory, uninterrupted))
    assert [line.split(",")[:2] for line in mine] == [line.split(",")[:2] for line in theirs]


RESULTS = [
    ("{", "it is not JSON"),
    (DEEP, "nested too deeply"),
    ("[]", "it holds a list, not a JSON object"),
    ("{}", "it has no steps"),
    ({"steps": "x"}, "steps is 'x', expected a whole number from 0 on"),
    ({"seconds": "x"}, "seconds is 'x', expected a finite number"),
    ({"starts": None}, "starts is null, expected a whole number"),
    ({"validation": None}, "validation is null, expected an object"),
    ({"validation": [1]}, "validation is a list, expected an object"),
    ({"validation": {"pred": "x"}}, "validation.pred is 'x', expected a finite number"),
    ({"validation_before_predictor_steps": 3}, "validation_before_predictor_steps is 3, expected an object"),
]


@pytest.mark.parametrize("content, sentence", RESULTS, ids=[sentence for _, sentence in RESULTS])
def test_a_result_that_is_damaged(content: str | dict, sentence: str, uninterrupted: Path, tmp_path: Path, here) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_bytes((uninterrupted / "config.yaml").read_bytes())
    if isinstance(content, dict):
        content = json.dumps(json.loads((uninterrupted / "result.json").read_text()) | content)
    (tmp_path / "run" / "result.json").write_text(content)
    done = here("train", "out=run", "resume=true", cwd=tmp_path)
    assert_user_mistake(done, sentence)
    assert "result.json is damaged" in done.stderr
