"""What tests of a user's own task share: the guide, its example, and the command line as a new process would run it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from phylatent import tasks
from phylatent.cli import main

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "own-task.md").read_text()
EXAMPLE = (ROOT / "docs" / "examples" / "pendulum.py").read_text()
WriteTask = Callable[..., Path]
"""write((old, new), …, name="pendulum.py") → the example with these changes, in a file of its own."""


def call(*arguments: str, cwd: Path) -> int:
    """The command line in this process, which knows no task of an earlier command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["phylatent", *arguments])
        patch.setattr(tasks, "_own", {})
        handler = signal.getsignal(signal.SIGTERM)
        with pytest.raises(SystemExit) as end:
            main()
        signal.signal(signal.SIGTERM, handler)
    return int(end.value.code or 0)


def writer(place: Path) -> WriteTask:
    def write(*changes: tuple[str, str], name: str = "pendulum.py") -> Path:
        text = EXAMPLE
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        path = place / "tasks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write
