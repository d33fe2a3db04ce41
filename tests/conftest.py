"""What the tests share: real TwoRooms data collected once, and small graphs."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Some virtual machines announce bf16 instructions that they do not have, and oneDNN dies of believing them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import pytest
import torch
from own_tasks import WriteTask, writer
from training_runs import STEPS, finish

from phylatent import tasks
from phylatent.machine import peak_memory_gb
from phylatent.simulator import Simulator
from phylatent.tasks.tworooms import TASK

pytest_plugins = ["command_line", "lewm_checkpoints", "own_packages"]

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
if WORKER and hasattr(os, "sched_setaffinity"):
    # `make test` runs two processes side by side. Each keeps to one core, and so does what it starts: threads of two trainings
    # that wait for each other on the same cores crawl.
    CORES = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {CORES[int(WORKER.removeprefix("gw")) % len(CORES)]})
torch.set_num_threads(1 if WORKER else 2)

MEMORY_GB = 2.5
"""What a worker of `make test` should stay below: two of them, and what they start, then fit a small machine."""
PEAKS: dict[str, float] = {}


@pytest.fixture(scope="session", autouse=True)
def _state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Files that tests name are not remembered in the user's own state directory."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the most slow tests come first: two workers then end together, and not one after the other."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells its peak."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["peak_memory_gb"] = peak_memory_gb()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    PEAKS[node.gateway.id] = getattr(node, "workeroutput", {}).get("peak_memory_gb", 0.0)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for worker, peak in sorted(PEAKS.items()):
        too_much = f", more than the {MEMORY_GB} GB it should" if peak > MEMORY_GB else ""
        terminalreporter.write_line(f"{worker} took up to {peak:.2f} GB{too_much}")


@pytest.fixture(scope="module", autouse=True)
def _memory_is_given_back() -> Iterator[None]:
    """After each file: what the C library keeps of one file's large model would add up with the next one's."""
    yield
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture(scope="session")
def tworooms_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve short episodes of the real simulator at 32 px: the smoke preset's data."""
    from phylatent.commands.collect import collect
    from phylatent.composition import compose

    config = compose(preset="smoke", overrides=["collect.workers=1"])
    return collect(config, out=tmp_path_factory.mktemp("data") / "tworooms-smoke.h5")


@pytest.fixture(scope="module")
def simulators() -> list[Simulator]:
    """Four of TwoRooms, for episodes side by side."""
    made = [Simulator(TASK, 64) for _ in range(4)]
    for simulator in made:
        simulator.reset(seed=0)
    return made


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """mount(kilobytes) → an empty disk of that size, to be filled."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(kilobytes: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(disk)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("mounting a disk is not permitted here")
        return disk

    yield mount
    subprocess.run(["umount", "-l", str(disk)], capture_output=True)


@pytest.fixture(scope="session")
def arguments(tworooms_data: Path) -> list[str]:
    return ["preset=smoke", f"data={tworooms_data}", f"train.steps={STEPS}", "train.validate_every=20", "device=cpu"]


@pytest.fixture(scope="session")
def uninterrupted(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, for others to be compared with."""
    directory = tmp_path_factory.mktemp("runs") / "whole"
    done = finish(*arguments, f"out={directory}")
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture
def task_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteTask]:
    """Writes tasks of a user's own, in a process that knows none yet and forgets them afterwards."""
    monkeypatch.setattr(tasks, "_own", {})
    monkeypatch.delenv(tasks.VARIABLE, raising=False)
    tasks._entry_points.cache_clear()
    yield writer(tmp_path)
    tasks._entry_points.cache_clear()
