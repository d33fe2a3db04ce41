"""Sizes are checked before memory is asked for, and a run that never began leaves nothing behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from command_line import assert_user_mistake

from phylatent import compose
from phylatent.machine import check_memory, total_memory
from phylatent.training.graph import build
from phylatent.training.memory import COPIES, FLOAT, needed_bytes

MODEL = "the model's sizes (model.*)"


@pytest.mark.parametrize("variant", ["phylatent", "pldm"])
@pytest.mark.parametrize("preset", ["smoke", "laptop", "paper"])
def test_parameters_are_counted_without_building_them(preset: str, variant: str) -> None:
    config = compose(preset=preset, variant=variant)
    parameters = sum(parameter.numel() for parameter in build(config).parameters())
    assert needed_bytes(config)[MODEL] == COPIES * FLOAT * parameters


@pytest.mark.parametrize("asked, sentence", [
    ("model.encoder=vit model.depth=100000000", "GB for the model's sizes (model.*)), and this machine has"),
    ("model.predictor_depth=100000000", "GB for the model's sizes (model.*)), and this machine has"),
    ("model.width=300000", "GB for the model's sizes (model.*)), and this machine has"),
    ("model.image_size=100000 model.patch_size=10", "GB for train.batch_size, clip.frames and model.image_size"),
    ("model.projector_hidden=99999999999999999", "the model's sizes are more than any machine has"),
    ("model.predictor_head_dim=99999999999999999999", "the model's sizes are more than any machine has"),
    ("sigreg.directions=99999999999", "GB for sigreg.directions"),
    ("train.batch_size=999999999", "GB for train.batch_size, clip.frames and model.image_size"),
    ("train.loader_workers=100000", "GB for devices and train.loader_workers"),
    ("devices=4096 train.batch_size=4096", "GB for devices and train.loader_workers"),
])  # fmt: skip
def test_more_than_the_machine_has(asked: str, sentence: str, tworooms_data: Path, tmp_path: Path, here) -> None:
    begun = time.monotonic()
    done = here("train", "preset=smoke", f"data={tworooms_data}", *asked.split(), "out=new", cwd=tmp_path)
    assert_user_mistake(done, sentence)
    assert time.monotonic() - begun < 20
    assert not (tmp_path / "new").exists()


def test_the_sentence_has_the_numbers() -> None:
    there = total_memory()
    check_memory({"a": there}, "this")
    with pytest.raises(Exception, match=r"this would take at least [\d.,]+ GB of memory \([\d.,]+ GB for a and .* for b\)"):
        check_memory({"a": there, "b": there // 2}, "this")


def test_memory_that_runs_out_nevertheless(tworooms_data: Path, tmp_path: Path, monkeypatch, here) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")

    monkeypatch.setattr("phylatent.training.run.fit", fail)
    done = here("train", "preset=smoke", f"data={tworooms_data}", "out=new", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "error: memory ran out" in done.stderr
    assert not (tmp_path / "new").exists()
