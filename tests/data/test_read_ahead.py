"""Batches that threads read ahead are those of the sampler, in its order."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from small_collection import TASK
from training_runs import smoke, table

from phylatent.data.collect import collect
from phylatent.data.prepare import prepare
from phylatent.data.read_ahead import ReadAhead
from phylatent.data.readers import open_episodes
from phylatent.data.windows import StepSampler, Windows
from phylatent.errors import UserError
from phylatent.schema import ClipConfig, CollectConfig, PrepareConfig
from phylatent.training.run import train

SETTINGS = CollectConfig(episodes=12, steps=30, frame_size=32, workers=1)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    source = collect(TASK, SETTINGS, seed=0, path=folder / "source" / "data.h5")
    return prepare(source, TASK, PrepareConfig(workers=1), path=folder / "data.frames")


@pytest.fixture
def windows(prepared):
    return Windows(open_episodes(prepared, TASK), range(12), ClipConfig())


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_batches_in_the_same_order(windows, threads):
    sampler = StepSampler(len(windows), 4, seed=0, total_steps=9)
    ahead = ReadAhead(windows, sampler, threads)
    assert len(ahead) == 9
    for batch, indices in zip(ahead, sampler, strict=True):
        for part, expected in zip(batch, windows.__getitems__(indices), strict=True):
            assert (part == expected).all()


def test_no_more_is_read_than_is_soon_needed_and_no_thread_is_left(windows, monkeypatch):
    read: list[int] = []
    take = Windows.__getitems__
    monkeypatch.setattr(Windows, "__getitems__", lambda self, indices: (read.append(1), take(self, indices))[1])
    batches = iter(ReadAhead(windows, StepSampler(len(windows), 4, seed=0, total_steps=1000), 2))
    next(batches)
    assert len(read) <= 5
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("loader")]


def test_what_goes_wrong_in_a_thread_is_told(windows, monkeypatch):
    def broken(self, rows):
        raise UserError("the disk is gone")

    monkeypatch.setattr(type(windows.episodes), "frames", broken)
    with pytest.raises(UserError, match="the disk is gone"):
        list(ReadAhead(windows, StepSampler(len(windows), 4, seed=0, total_steps=3), 2))


def test_a_training_with_threads_is_one_without(prepared, tmp_path):
    for name, workers in (("without", 0), ("with", 2)):
        train(smoke(prepared, "train.steps=3", f"train.loader_workers={workers}"), out=tmp_path / name)
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("without", "with")]
    assert weights[0] == weights[1]
    assert np.isfinite([float(row["loss"]) for row in table(tmp_path / "with" / "train.csv")]).all()
