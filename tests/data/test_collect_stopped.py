"""Collections that are interrupted, killed, or run out of disk: they go on to the same contents, and nothing half is whole."""

from __future__ import annotations

import errno
import fcntl
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
from small_collection import SMALL, TASK, contents

from phylatent.data.collect import collect
from phylatent.data.formats import hdf5
from phylatent.data.readers import open_episodes
from phylatent.errors import Interrupted, PhylatentError, UserError
from phylatent.schema import CollectConfig
from phylatent.simulator import Simulator


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
