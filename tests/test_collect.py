from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest

from phylatent.data import hdf5
from phylatent.data.collect import collect
from phylatent.data.readers import open_episodes
from phylatent.errors import Interrupted, PhylatentError, UserError
from phylatent.schema import CollectConfig
from phylatent.simulator import Simulator
from phylatent.tasks import get_task

TASK = get_task("tworooms")
SMALL = CollectConfig(episodes=5, steps=12, frame_size=32, workers=1, shard_episodes=2)


@pytest.fixture(scope="module")
def collected(tmp_path_factory) -> Path:
    return collect(TASK, SMALL, seed=0, path=tmp_path_factory.mktemp("collected") / "data.h5")


def contents(path: Path) -> dict[str, bytes]:
    with h5py.File(path) as file:
        return {name: column[:].tobytes() for name, column in file.items()}


def test_rows_and_columns(collected):
    with h5py.File(collected) as file:
        assert set(file) == {"pixels", "action", *TASK.columns, "ep_idx", "step_idx", "ep_len", "ep_offset"}
        assert file["pixels"].shape == (65, 32, 32, 3)
        assert file["pixels"].chunks == (1, 32, 32, 3)
        assert file["ep_len"][:].tolist() == [13] * 5
        assert file["ep_offset"][:].tolist() == [0, 13, 26, 39, 52]
        assert (file["ep_idx"][:] == np.repeat(np.arange(5), 13)).all()
        assert (file["step_idx"][:] == np.tile(np.arange(13), 5)).all()
        assert (np.isnan(file["action"][:]).all(axis=1) == (file["step_idx"][:] == 12)).all()
        said = [file.attrs[name] for name in ("task", "env_id", "frame_stride", "seed")]
        assert said == ["tworooms", "swm/TwoRoom-v1", 1, 0]
        assert json.loads(file.attrs["provenance"])["packages"]["stable-worldmodel"]
    assert list(collected.parent.iterdir()) == [collected]


def test_a_restored_row_draws_its_frame_to_the_pixel(collected):
    episodes = open_episodes(collected, TASK)
    simulator = Simulator(TASK, 32)
    simulator.reset(123)
    for row in range(0, 65, 7):
        simulator.restore(episodes.row(row))
        assert (simulator.frame() == episodes.frames(np.array(row))).all()


def test_replaying_the_actions_gives_the_recorded_states(collected):
    episodes = open_episodes(collected, TASK)
    simulator = Simulator(TASK, 32)
    simulator.reset(123)
    for offset in episodes.offsets:
        simulator.restore(episodes.row(offset))
        for row in range(offset, offset + 12):
            simulator.step(episodes.actions[row])
            assert (simulator.columns()["state"] == episodes.row(row + 1)["state"]).all()


def new_goal_every_step(simulator: Simulator, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    steps = iter(range(1000))

    def act() -> np.ndarray:
        step = next(steps)
        simulator.env._set_goal_state(np.array([20 + step, 50], dtype=np.float32))
        return np.array([0.01 * step, 0], dtype=np.float32)

    return act


def test_a_row_holds_the_goal_that_its_action_went_for(tmp_path):
    task = replace(TASK, behaviour=new_goal_every_step)
    path = collect(task, replace(SMALL, episodes=1, steps=4), seed=0, path=tmp_path / "data.h5")
    with h5py.File(path) as file:
        assert file["goal_state"][:, 0].tolist() == [20, 21, 22, 23, 23]
        assert file["action"][:4, 0].tolist() == pytest.approx([0, 0.01, 0.02, 0.03])


def test_contents_do_not_depend_on_processes_or_shards(collected, tmp_path):
    calls: list[tuple[int, int]] = []
    path = collect(
        TASK,
        replace(SMALL, workers=2, shard_episodes=1),
        seed=0,
        path=tmp_path / "data.h5",
        progress=lambda done, total: calls.append((done, total)),
    )
    assert contents(path) == contents(collected)
    assert calls == [(done, 5) for done in range(6)]


def test_every_episode_is_another(collected):
    with h5py.File(collected) as file:
        assert len(np.unique(file["state"][::13], axis=0)) == 5
        assert len(np.unique(file["action"][:].reshape(5, 13, 2)[:, :12, 0], axis=0)) == 5


def test_another_seed_is_another_collection(collected, tmp_path):
    other = collect(TASK, replace(SMALL, episodes=2), seed=1, path=tmp_path / "data.h5")
    with h5py.File(other) as a, h5py.File(collected) as b:
        assert not np.isin(a["state"][:], b["state"][:]).any()


def test_a_longer_collection_begins_with_the_shorter_one(collected, tmp_path):
    longer = collect(TASK, replace(SMALL, episodes=6, shard_episodes=3), seed=0, path=tmp_path / "data.h5")
    with h5py.File(longer) as a, h5py.File(collected) as b:
        assert (a["pixels"][:65] == b["pixels"][:]).all()


def test_stored_blocks_are_the_same_episodes_at_block_spacing(collected, tmp_path):
    path = collect(TASK, replace(SMALL, frame_stride=4), seed=0, path=tmp_path / "data.h5")
    blocks, rows = open_episodes(path, TASK), open_episodes(collected, TASK)
    assert blocks.frame_stride == 4
    assert blocks.lengths.tolist() == [4] * 5
    kept = (rows.offsets[:, None] + np.arange(0, 13, 4)).ravel()
    assert (blocks.frames(np.arange(20)) == rows.frames(kept)).all()
    assert (blocks.targets == rows.targets[kept]).all()
    assert blocks.column("step_idx").tolist() == [0, 4, 8, 12] * 5
    for episode in range(5):
        taken = rows.actions[rows.offsets[episode] :][:12]
        assert (blocks.actions[blocks.offsets[episode] :][:3] == taken.reshape(3, 8)).all()


def test_stable_worldmodel_reads_it(collected):
    from stable_worldmodel.data.formats.hdf5 import HDF5Dataset

    rows = open_episodes(collected, TASK)
    dataset = HDF5Dataset(path=collected, frameskip=3, num_steps=4)
    assert dataset.lengths.tolist() == [13] * 5
    for index in (0, len(dataset) - 2):
        episode, start = dataset.clip_indices[index]
        first = rows.offsets[episode] + start
        clip = dataset[index]
        assert (clip["pixels"].permute(0, 2, 3, 1).numpy() == rows.frames(first + 3 * np.arange(4))).all()
        assert (clip["proprio"].numpy() == rows.targets[first + 3 * np.arange(4)]).all()
        assert (clip["action"].numpy()[:3] == rows.actions[first : first + 9].reshape(3, 6)).all()


def test_a_finished_collection_is_left_alone(collected):
    before = (collected.stat().st_mtime_ns, collected.stat().st_ino)
    assert collect(TASK, replace(SMALL, workers=2, shard_episodes=3), seed=0, path=collected) == collected
    assert (collected.stat().st_mtime_ns, collected.stat().st_ino) == before


def test_what_a_crash_after_completion_left_is_cleared_away(collected):
    parts = collected.with_name("data.h5.parts")
    parts.mkdir()
    (parts / "shard-00000.h5").touch()
    collect(TASK, SMALL, seed=0, path=collected)
    assert not parts.exists()


def test_an_existing_file_is_never_overwritten(collected, tmp_path):
    with pytest.raises(UserError, match=r"another collection \(seed is 0 there and 1 here, steps is 12 there and 24 here"):
        collect(TASK, replace(SMALL, steps=24), seed=1, path=collected)
    foreign = tmp_path / "data.h5"
    foreign.write_text("mine")
    with pytest.raises(UserError, match="exists and was not written by"):
        collect(TASK, SMALL, seed=0, path=foreign)
    assert foreign.read_text() == "mine"


def interrupt_after(episodes: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done == episodes:
            raise KeyboardInterrupt

    return progress


def test_another_plan_does_not_go_on_with_what_was_begun(tmp_path):
    path = tmp_path / "data.h5"
    with pytest.raises(Interrupted, match=r"2 of 5 episodes are kept .* run the same command"):
        collect(TASK, SMALL, seed=0, path=path, progress=interrupt_after(3))
    with pytest.raises(UserError, match=r"frame_size is 32 there and 16 here.*delete that directory"):
        collect(TASK, replace(SMALL, frame_size=16), seed=0, path=path)
    assert not path.exists()


def test_two_collectors_of_one_file(tmp_path):
    parts = tmp_path / "data.h5.parts"
    parts.mkdir()
    with (parts / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is collecting"):
            collect(TASK, SMALL, seed=0, path=tmp_path / "data.h5")


@pytest.mark.parametrize(
    "task, seed, expected", [(replace(TASK, behaviour=None), 0, "without a behaviour policy"), (TASK, -1, "seed is -1")]
)
def test_what_cannot_be_collected(tmp_path, task, seed, expected):
    with pytest.raises(UserError, match=expected):
        collect(task, SMALL, seed=seed, path=tmp_path / "data.h5")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write to"):
        collect(TASK, SMALL, seed=0, path=tmp_path / "file" / "data.h5")


SCRIPT = """
import sys
from pathlib import Path
from phylatent.data.collect import collect
from phylatent.errors import PhylatentError
from phylatent.schema import CollectConfig
from phylatent.tasks import get_task

if __name__ == "__main__":
    settings = CollectConfig(episodes=40, steps=15, frame_size=32, workers=2, shard_episodes=2)
    try:
        collect(get_task("tworooms"), settings, seed=0, path=Path(sys.argv[1]))
    except PhylatentError as error:
        sys.exit(f"{type(error).__name__}: {error}")
"""


def start_and_signal(script: Path, path: Path, kind: signal.Signals, *, whole_group: bool) -> tuple[int, str]:
    """Run a real collection until it has finished some more shards, then signal it."""
    parts = path.with_name(path.name + ".parts")
    before = len(list(parts.glob("shard-*.h5")))
    command = [sys.executable, "-W", "ignore", str(script), str(path)]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that a shell runs in the background ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while len(list(parts.glob("shard-*.h5"))) <= before:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 2
    (os.killpg if whole_group else os.kill)(process.pid, kind)
    _, errors = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive, "workers outlived their parent"
    return process.returncode, errors


def test_interrupted_and_killed_collections_go_on_to_the_same_contents(tmp_path):
    settings = CollectConfig(episodes=40, steps=15, frame_size=32, workers=1, shard_episodes=2)
    script, path = tmp_path / "script.py", tmp_path / "data.h5"
    script.write_text(SCRIPT)

    code, errors = start_and_signal(script, path, signal.SIGINT, whole_group=True)
    assert code == 1
    assert "Interrupted: collecting" in errors
    assert "run the same command to go on" in errors
    assert "Traceback" not in errors

    code, _ = start_and_signal(script, path, signal.SIGKILL, whole_group=False)
    assert code == -signal.SIGKILL
    assert not path.exists()
    with pytest.raises(UserError, match="run the same collect command"):
        open_episodes(path, TASK)

    parts = path.with_name("data.h5.parts")
    (parts / ".shard-00019.h5.1.partial").write_bytes(b"half a shard")
    (tmp_path / ".data.h5.1.partial").write_bytes(b"half a file")
    kept = len(list(parts.glob("shard-*.h5")))
    calls: list[int] = []
    collect(TASK, settings, seed=0, path=path, progress=lambda done, total: calls.append(done))
    assert calls[0] == 2 * kept > 0
    assert sorted(tmp_path.iterdir()) == [path, script]
    straight = collect(TASK, settings, seed=0, path=tmp_path / "straight.h5")
    assert contents(path) == contents(straight)


def failing(simulator: Simulator, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    raise ValueError("the arm is tangled")


class EndsItsProcess:
    def __reduce__(self):
        return os._exit, (3,)


def test_what_a_policy_raises_is_told_in_a_sentence(tmp_path):
    with pytest.raises(PhylatentError, match=r"^collecting tworooms failed: ValueError: the arm is tangled$"):
        collect(replace(TASK, behaviour=failing), SMALL, seed=0, path=tmp_path / "data.h5")


def test_a_worker_s_error_reaches_the_user_with_its_cause(tmp_path):
    with pytest.raises(UserError, match="without its environment") as error:
        collect(replace(TASK, restore=None), replace(SMALL, workers=2), seed=0, path=tmp_path / "data.h5")
    assert "in _serve" in str(error.value.__cause__)


def test_a_worker_that_dies_is_noticed(tmp_path):
    task = replace(TASK, presets={"any": EndsItsProcess()})
    with pytest.raises(PhylatentError, match=r"ended by itself \(exit code 3\)"):
        collect(task, replace(SMALL, workers=2), seed=0, path=tmp_path / "data.h5")


def check_after_full_disk(path: Path, collected: Path) -> None:
    """No file of that name, and no shard that is not what it should be."""
    parts = path.with_name("data.h5.parts")
    assert sorted(path.parent.iterdir()) == [parts]
    assert {item.name for item in parts.iterdir()} <= {"lock", "plan.json", *(f"shard-0000{i}.h5" for i in range(3))}
    for shard in parts.glob("shard-*.h5"):
        with h5py.File(shard) as part, h5py.File(collected) as whole:
            assert (part["pixels"][:] == whole["pixels"][26 * int(shard.stem[-1]) :][: len(part["pixels"])]).all()


@pytest.mark.parametrize("limit", [9_000, 16_000])
def test_a_full_disk_leaves_nothing_that_looks_whole(collected, tmp_path, monkeypatch, limit):
    """A shard of two episodes has some 15 kB: the smaller limit stops a shard, the larger the whole file."""

    class Limited(hdf5.Sink):
        def write(self, data):
            if self.tell() + len(data) > limit and self.failure is None:
                self.failure = OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    monkeypatch.setattr(hdf5, "Sink", Limited)
    with pytest.raises(PhylatentError, match="no space left on the disk"):
        collect(TASK, SMALL, seed=0, path=tmp_path / "data.h5")
    check_after_full_disk(tmp_path / "data.h5", collected)
    kept = len(list(tmp_path.glob("*.parts/*.h5")))
    assert kept == (0 if limit == 9_000 else 3)


@pytest.mark.parametrize("kilobytes", [8, 12, 36, 60])
def test_a_disk_that_really_is_full(collected, mount, kilobytes):
    """HDF5 itself crashes the process here, at most of these sizes."""
    path = mount(kilobytes) / "data.h5"
    with pytest.raises(PhylatentError, match="no space left on the disk"):
        collect(TASK, SMALL, seed=0, path=path)
    check_after_full_disk(path, collected)
