"""Nobody waits for torch to read the help or to hear of a typing mistake. Processor time: the machine may be busy."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

WATCHED = "import sys\nfrom phylatent.cli import main\nsys.argv = ['phylatent', *sys.argv[1:]]\ntry:\n    main()\nfinally:\n"
WATCHED += "    print('torch' in sys.modules, file=sys.stderr)"


def timed(*command: str, cwd: Path) -> tuple[float, subprocess.CompletedProcess]:
    """Processor seconds of a new Python process, the better of two: the first one may have to compile."""
    seconds = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", *command], capture_output=True, text=True, cwd=cwd)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds), done


def test_the_help(tmp_path: Path) -> None:
    seconds, done = timed(WATCHED, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.split() == ["False"]
    assert seconds < 0.5


def test_the_package_itself(tmp_path: Path) -> None:
    seconds, done = timed("import sys, phylatent; print('torch' in sys.modules, 'numpy' in sys.modules)", cwd=tmp_path)
    assert done.stdout.split() == ["False", "False"]
    assert seconds < 1


@pytest.mark.parametrize("arguments, sentence", [
    (["train", "task=tworoms"], "unknown task 'tworoms'; did you mean 'tworooms'?"),
    (["collect", "preset=labtop"], "unknown preset 'labtop'; did you mean 'laptop'?"),
    (["train", "variant=philatent"], "unknown variant 'philatent'; did you mean 'phylatent'?"),
    (["train", "variant=nowhere.yaml"], "there is no variant file nowhere.yaml"),
    (["train", "train.stpes=3"], "unknown key 'train.stpes'; did you mean 'train.steps'?"),
    (["inspect", "collect.epsiodes=3"], "unknown key 'collect.epsiodes'; did you mean 'collect.episodes'?"),
    (["train", "batch_size=3"], "did you mean 'train.batch_size'?"),
    (["train", "train.steps=many"], "wrong value for train.steps"),
    (["train", "plan.elites=1000"], "plan.elites is 1000"),
    (["train", "train.steps"], "train takes key=value arguments only"),
    (["train", "out=nowhere", "resume=true"], "there is no run in nowhere to resume"),
    (["collect", "config=nowhere.yaml"], "there is no configuration file nowhere.yaml"),
    (["plan", "nowhere"], "nowhere is not a run directory, not a model directory, and not a Hub id"),
    (["diagnose"], "name what to judge"),
    (["export", "nowhere"], "nowhere is not a run directory, not a model directory, and not a Hub id"),
])  # fmt: skip
def test_a_mistake(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    seconds, done = timed(WATCHED, *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    *said, torch = done.stderr.splitlines()
    assert sentence in " ".join(said)
    assert torch == "False"
    assert seconds < 1.5
