"""The command line as tests call it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from phylatent.cli import main


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The command line in this process: no second spent on imports."""

    def call(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["phylatent", *arguments])
        handler = signal.getsignal(signal.SIGTERM)
        with pytest.raises(SystemExit) as end:
            main()
        signal.signal(signal.SIGTERM, handler)
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, end.value.code, out, err)

    return call


def assert_user_mistake(done: subprocess.CompletedProcess, sentence: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert sentence in done.stderr
