"""Commands leave the process that calls them as it was: no file open, no thread, no process; memory stays flat."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import psutil
import pytest
from endurance import COLLECT, SMALLEST, endured, train

SMALL = (*SMALLEST, "train.steps=4", "train.log_every=1", "train.validate_every=2", "train.checkpoint_every=2")
LINES = {
    "collect": (*COLLECT[:-1], "out={n}.h5"),
    "inspect": ("data.h5", "out={n}"),
    "prepare": ("data.h5", "prepare.workers=1", "out={n}.frames"),
    "train": (*SMALL, "data=data.h5", "out={n}"),
    "diagnose": ("run", "workers=1", "out={n}"),
    "plan": ("run", "workers=1", "out={n}"),
    "report": ("run", "out={n}"),
    "export": ("run", "format=phylatent", "out={n}"),
}


def counts() -> dict[str, int]:
    """Without what the next collection of garbage closes."""
    gc.collect()
    children = psutil.Process().children(recursive=True)
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "processes": sum(child.status() != psutil.STATUS_ZOMBIE for child in children),
    }


@pytest.mark.slow
def test_commands_leave_no_file_thread_or_process_behind(here, tmp_path: Path) -> None:
    """After a first call, which opens what stays open for good: a renderer, a thread pool."""
    for made in (("collect", *COLLECT), ("train", *SMALL, "data=data.h5", "out=run")):
        assert here(*made, cwd=tmp_path).returncode == 0
    left: dict[str, dict[str, int]] = {}
    for command, line in LINES.items():
        seen = []
        for number in range(3):
            done = here(command, *(part.format(n=f"{command}-{number}") for part in line), cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            seen.append(counts())
        grown = {name: seen[2][name] - seen[1][name] for name in seen[2] if seen[2][name] > seen[1][name]}
        if grown:
            left[command] = grown
    assert not left


@pytest.mark.slow
def test_memory_stays_flat_over_many_steps(tmp_path: Path) -> None:
    """Two thousand, with some megabytes for what is allocated late; `make endurance` does fifty thousand."""
    assert train(2000, tmp_path).slope_mb < 16


def test_a_slope_is_seen() -> None:
    flat = endured("x", 4, [100.0, 200.0, 200.0, 200.0, 200.0], 60)
    growing = endured("x", 4, [100.0, 110.0, 120.0, 130.0, 140.0], 60)
    assert (flat.slope_mb, growing.slope_mb) == (0, 40)
    assert (growing.quarter_mb, growing.end_mb, growing.minutes) == (110, 140, 1)
