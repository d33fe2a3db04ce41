"""Prepared data sets: equal to their source, whole or not there, and read like any other data."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import assert_user_mistake
from PIL import Image
from published_files import content, episodes_of, write_published
from small_collection import SMALL, TASK
from torch.utils.data import DataLoader
from training_runs import smoke, table

from phylatent.data import prepare as preparing
from phylatent.data.collect import collect
from phylatent.data.formats import mapped
from phylatent.data.formats.prepared import FRAMES
from phylatent.data.prepare import prepare
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.windows import StepSampler, Windows, as_it_is
from phylatent.errors import Interrupted, PhylatentError, UserError
from phylatent.schema import ClipConfig, PrepareConfig
from phylatent.tasks import get_task
from phylatent.training.run import train

AS_IT_IS = PrepareConfig(workers=1)
FRAME = 32 * 32 * 3
ROWS = 5 * 13


@pytest.fixture
def in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten frames a chunk, so that 65 rows are seven chunks."""
    monkeypatch.setattr(preparing, "CHUNK_BYTES", 10 * FRAME)


def assert_same_data(prepared: Episodes, source: Episodes) -> None:
    everything = np.arange(len(source.actions))
    assert (prepared.frames(everything) == source.frames(everything)).all()
    assert prepared.fingerprint() == source.fingerprint()
    assert (prepared.frame_stride, prepared.render) == (source.frame_stride, source.render)
    assert prepared.row_columns == source.row_columns
    for name in set(source.store.columns) - {"pixels"}:
        np.testing.assert_array_equal(prepared.column(name), source.column(name))
        assert prepared.column(name).dtype == source.column(name).dtype
    for name, value in source.row(7).items():
        np.testing.assert_array_equal(prepared.row(7)[name], value)


def test_every_column_and_frame_is_the_source_s(collected, tmp_path, in_chunks):
    path = prepare(collected, TASK, AS_IT_IS, path=tmp_path / "data.frames")
    assert sorted(tmp_path.iterdir()) == [path]
    assert {file.name for file in path.iterdir()} == {"frames.bin", "columns.h5", "prepared.json"}
    assert_same_data(open_episodes(path, TASK), open_episodes(collected, TASK))
    assert open_episodes(tmp_path, TASK).path == path
    rows = np.array([[30, 2, 2], [0, 35, 7]])
    assert (open_episodes(path, TASK).frames(rows) == open_episodes(collected, TASK).frames(rows)).all()


@pytest.mark.parametrize("name", ["pusht", "cube"])
def test_published_files(tmp_path, name):
    task, source = get_task(name), write_published(tmp_path, name)
    path = prepare(source, task, PrepareConfig(workers=1, frame_size=24), path=tmp_path / "data.frames")
    prepared, published = open_episodes(path, task), open_episodes(source, task)
    assert prepared.frame_shape == (24, 24, 3)
    assert prepared.task_name == name
    assert (prepared.targets == published.targets).all()
    assert (prepared.actions == published.actions).all()
    assert prepared.row_columns == published.row_columns
    again = prepare(path, task, PrepareConfig(workers=1, frame_size=12), path=tmp_path / "smaller.frames")
    assert open_episodes(again, task).frame_shape == (12, 12, 3)


def test_aliases_are_kept_under_the_task_s_names(tmp_path):
    source = write_published(tmp_path, "tworooms")
    path = prepare(source, TASK, PrepareConfig(workers=1, frame_size=8), path=tmp_path / "data.frames")
    np.testing.assert_allclose(open_episodes(path, TASK).row(7)["state"], [7, 7.01])


def test_a_lance_table(tmp_path):
    from stable_worldmodel.data.formats.lance import LanceWriter

    with LanceWriter(tmp_path / "tworoom.lance") as writer:
        writer.write_episodes(episodes_of(content("tworooms", size=32)))
    path = prepare(tmp_path / "tworoom.lance", TASK, AS_IT_IS, path=tmp_path / "data.frames")
    prepared, source = open_episodes(path, TASK), open_episodes(tmp_path / "tworoom.lance", TASK)
    rows = np.arange(len(source.actions))
    assert (prepared.frames(rows) == source.frames(rows)).all()
    assert prepared.fingerprint() == source.fingerprint()


def test_another_size_is_scaled_as_the_simulator_scales(collected, tmp_path, in_chunks):
    path = prepare(collected, TASK, PrepareConfig(workers=1, frame_size=16), path=tmp_path / "data.frames")
    whole, small = open_episodes(collected, TASK), open_episodes(path, TASK)
    scaled = Image.fromarray(whole.frames(np.array([40]))[0]).resize((16, 16), Image.Resampling.BILINEAR)
    assert (small.frames(np.array([40]))[0] == np.asarray(scaled)).all()
    assert small.fingerprint() != whole.fingerprint()
    assert (small.targets == whole.targets).all()


def test_two_processes_write_what_one_writes(collected, tmp_path):
    settings = PrepareConfig(frame_size=24, workers=2)
    one = prepare(collected, TASK, PrepareConfig(frame_size=24, workers=1), path=tmp_path / "one.frames")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "CHUNK_BYTES", 33 * FRAME)
        two = prepare(collected, TASK, settings, path=tmp_path / "two.frames")
    assert (one / FRAMES).read_bytes() == (two / FRAMES).read_bytes()


def interrupt_after(frames: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done >= frames:
            raise KeyboardInterrupt

    return progress


def test_interrupted_it_goes_on_from_the_last_chunk(collected, tmp_path, in_chunks):
    path = tmp_path / "data.frames"
    with pytest.raises(Interrupted, match=r"30 of 65 frames are kept in .*\.parts: run the same command to go on"):
        prepare(collected, TASK, AS_IT_IS, path=path, progress=interrupt_after(30))
    assert not path.exists()
    with pytest.raises(UserError, match=r"still being prepared.* run the same prepare command"):
        open_episodes(path, TASK)
    with pytest.raises(UserError, match=r"unfinished .*frames is \[32, 32\] there and \[16, 16\] here.*delete that directory"):
        prepare(collected, TASK, PrepareConfig(frame_size=16, workers=1), path=path)
    told: list[int] = []
    prepare(collected, TASK, AS_IT_IS, path=path, progress=lambda done, total: told.append(done))
    assert told == [30, 40, 50, 60, 65]
    assert_same_data(open_episodes(path, TASK), open_episodes(collected, TASK))


SCRIPT = """
import sys
from pathlib import Path
from phylatent.data import prepare as preparing
from phylatent.schema import PrepareConfig
from phylatent.tasks import get_task

preparing.CHUNK_BYTES = 2 * 32 * 32 * 3
slow = preparing.scaled
preparing.scaled = lambda frame, size: (__import__("time").sleep(0.02), slow(frame, size))[1]
preparing.prepare(sys.argv[1], get_task("tworooms"), PrepareConfig(frame_size=16, workers=1), path=Path(sys.argv[2]))
"""


def test_killed_it_goes_on_to_the_same_contents(collected, tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "CHUNK_BYTES", 2 * FRAME)
    path, settings = tmp_path / "data.frames", PrepareConfig(frame_size=16, workers=1)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(collected), str(path)])
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("data.frames.parts/chunk-*.json"))) < 5:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not path.exists()
    (path.with_name("data.frames.parts") / ".chunk-000030.json.1.partial").write_text("{")
    prepare(collected, TASK, settings, path=path)
    straight = prepare(collected, TASK, settings, path=tmp_path / "straight.frames")
    assert (path / FRAMES).read_bytes() == (straight / FRAMES).read_bytes()
    assert sorted(tmp_path.iterdir()) == [path, straight]


def test_what_the_disk_does_not_give_back_is_written_again(collected, tmp_path, in_chunks, monkeypatch):
    path = tmp_path / "data.frames"
    check = preparing._check_written

    def damaged(job, episodes):
        with (job.whole / FRAMES).open("r+b") as handle:
            handle.seek(25 * FRAME)
            handle.write(b"\x01\x02\x03")
        check(job, episodes)

    monkeypatch.setattr(preparing, "_check_written", damaged)
    with pytest.raises(PhylatentError, match=r"rows 20 to 29 of .* are not what .*data\.h5 holds"):
        prepare(collected, TASK, AS_IT_IS, path=path)
    assert not path.exists()
    monkeypatch.setattr(preparing, "_check_written", check)
    told: list[int] = []
    prepare(collected, TASK, AS_IT_IS, path=path, progress=lambda done, total: told.append(done))
    assert told == [55, 65]
    assert_same_data(open_episodes(path, TASK), open_episodes(collected, TASK))


def test_what_is_prepared_is_not_prepared_again(collected, tmp_path, monkeypatch):
    path = prepare(collected, TASK, AS_IT_IS, path=tmp_path / "data.frames")
    before = (path / FRAMES).stat().st_mtime_ns
    monkeypatch.setattr(preparing, "_write", None)
    assert prepare(collected, TASK, AS_IT_IS, path=path) == path
    assert (path / FRAMES).stat().st_mtime_ns == before
    with pytest.raises(UserError, match=r"prepared from something else \(frames is \[32, 32\] there and \[16, 16\] here"):
        prepare(collected, TASK, PrepareConfig(frame_size=16), path=path)


def test_nothing_of_the_user_s_is_overwritten(collected, tmp_path):
    path = tmp_path / "mine.frames"
    path.mkdir()
    (path / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match=r"was not written by `phylatent prepare`; nothing was overwritten"):
        prepare(collected, TASK, AS_IT_IS, path=path)
    assert [file.name for file in path.iterdir()] == ["letter.txt"]
    with pytest.raises(UserError, match=r"ends in \.frames; got .*data\.h5"):
        prepare(collected, TASK, AS_IT_IS, path=tmp_path / "data.h5")


def test_two_at_once(collected, tmp_path):
    parts = tmp_path / "data.frames.parts"
    parts.mkdir()
    with (parts / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is preparing"):
            prepare(collected, TASK, AS_IT_IS, path=tmp_path / "data.frames")


def test_no_space_is_told_before_anything_is_written(collected, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=100_000))
    with pytest.raises(PhylatentError, match=r"will take [\d.]+ MiB, but the disk has [\d.]+ MiB left; .*prepare\.frame_size="):
        prepare(collected, TASK, AS_IT_IS, path=tmp_path / "data.frames")
    assert not list(tmp_path.glob("*.parts/whole"))


def test_a_disk_that_fills_up_keeps_what_is_done(collected, mount, in_chunks, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=10**12))
    path = mount(150) / "data.frames"
    with pytest.raises(PhylatentError, match=r"no space left on the disk while writing .* finished frames are kept"):
        prepare(collected, TASK, AS_IT_IS, path=path)
    assert not path.exists()
    assert 0 < len(list(path.parent.glob("*.parts/chunk-*.json"))) < 7


@pytest.fixture(scope="module")
def prepared(collected: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(collected, TASK, AS_IT_IS, path=tmp_path_factory.mktemp("prepared") / "data.frames")


DAMAGES = {
    "cut short": (lambda path: os.truncate(path / FRAMES, 1000), r"frames\.bin has 1000 bytes, but 65 frames of 32 × 32 are"),
    "no frames": (lambda path: (path / FRAMES).unlink(), r"it has no frames\.bin"),
    "no columns": (lambda path: (path / "columns.h5").unlink(), r"it has no columns\.h5"),
    "columns cut short": (lambda path: os.truncate(path / "columns.h5", 900), r"columns\.h5 is cut short"),
    "no record": (lambda path: (path / "prepared.json").unlink(), "not a prepared data set, or not all of one"),
    "another version": (lambda path: (path / "prepared.json").write_text('{"version": 7}'), "version 7"),
    "no shape": (lambda path: (path / "prepared.json").write_text('{"version": 1, "shape": [3]}'), r"shape \[3\]"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_set_is_told_in_one_sentence(prepared, tmp_path, name):
    damage, expected = DAMAGES[name]
    path = tmp_path / "data.frames"
    path.mkdir()
    for file in prepared.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    damage(path)
    with pytest.raises(UserError, match=expected) as error:
        open_episodes(path, TASK)
    assert "\n" not in str(error.value)


def test_spawned_loaders_and_pickles_read_the_same(prepared):
    episodes = open_episodes(prepared, TASK)
    episodes.frames(np.array([3]))
    assert len(pickle.dumps(episodes.store)) < 100_000
    windows = Windows(pickle.loads(pickle.dumps(episodes)), range(5), ClipConfig(frames=3, stride=2, context=2))
    sampler = StepSampler(len(windows), 4, seed=0, total_steps=3)
    loader = DataLoader(windows, batch_sampler=sampler, num_workers=1, collate_fn=as_it_is, multiprocessing_context="spawn")
    for batch, indices in zip(loader, sampler, strict=True):
        assert (batch.frames == windows.__getitems__(indices).frames).all()


def test_pages_are_let_go_of_and_read_again(prepared, collected, monkeypatch):
    monkeypatch.setattr(mapped, "HELD_BYTES", 5 * FRAME)
    monkeypatch.setattr(mapped, "SMALL_BYTES", 0)
    episodes, source = open_episodes(prepared, TASK), open_episodes(collected, TASK)
    for rows in (np.arange(4), np.arange(20), np.array([64, 0, 3]), np.arange(ROWS)):
        assert (episodes.frames(rows) == source.frames(rows)).all()


def test_training_on_it_is_training_on_the_source(tmp_path):
    source = collect(TASK, SMALL.__class__(episodes=12, steps=30, frame_size=32, workers=1), seed=0, path=tmp_path / "data.h5")
    path = prepare(source, TASK, AS_IT_IS, path=tmp_path / "data.frames")
    for name, data in (("source", source), ("prepared", path)):
        train(smoke(data, "train.steps=3"), out=tmp_path / name)
    losses = [[row | {"clips_per_second": ""} for row in table(tmp_path / n / "train.csv")] for n in ("source", "prepared")]
    assert losses[0] == losses[1]
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("source", "prepared")]
    assert hashlib.sha256(weights[0]).digest() == hashlib.sha256(weights[1]).digest()


def test_the_command_prepares_inspects_and_answers_at_once(here, collected, tmp_path):
    done = here("prepare", str(collected), "task=tworooms", "prepare.frame_size=16", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "data: data/data-16px.frames" in done.stdout
    again = here("prepare", str(collected), "task=tworooms", "prepare.frame_size=16", cwd=tmp_path)
    assert "is already prepared" in again.stdout
    shown = here("inspect", "data/data-16px.frames", "task=tworooms", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    facts = json.loads((tmp_path / "runs" / "inspect-data-16px" / "inspect.json").read_text())
    assert (facts["frame_size"], facts["transitions"]) == ([16, 16], ROWS)
    for arguments, sentence in (
        (["prepare", "nowhere.h5"], "there is no data file nowhere.h5"),
        (["prepare", str(collected), "task=pusht"], "another task"),
        (["prepare", str(collected), "out=data"], "ends in .frames"),
        (["prepare", "a", "b"], "prepare takes one data set; found 2"),
        (["prepare", str(collected), "prepare.frame_size=0"], "prepare.frame_size"),
        (["prepare", str(collected), "seed=3"], "prepare takes no seed"),
    ):
        assert_user_mistake(here(*arguments, cwd=tmp_path), sentence)
