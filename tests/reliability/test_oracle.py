"""The judge must be able to find fault: each sort of failure, made on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest
from children import Ended
from material import SECRET
from oracle import Verdict, judge, snapshot

GOOD = "error: there is no such thing; name another\n"


def judged(place: Path, code: int, err: str = "", **ended: bool) -> Verdict:
    """A report that ended so and touched nothing."""
    (place / "here").mkdir()
    (place / "stdout").touch()
    (place / "stderr").write_text(err)
    return judge(place, ("report", "done"), Ended(code, 0.1, **ended), {}, may_be_long=False, may_run_code=False)


@pytest.mark.parametrize(
    "code, err, sort",
    [
        (0, "", "succeeded"),
        (2, GOOD, "answered"),
        (1, "Traceback (most recent call last):\n  x\nKeyError: 'x'\n", "traceback"),
        (1, "error: KeyError: 'x' (this is not your mistake; --debug shows where it happened)\n", "not your mistake"),
        (-11, "", "signal"),
        (3, GOOD, "exit code"),
        (2, "", "sentence"),
        (2, GOOD * 2, "sentence"),
        (2, GOOD + "and more\n", "sentence"),
        (2, f"error: {SECRET}\n", "secret"),
        (2, "error: \x1b[31mred\n", "escape codes"),
    ],
)
def test_ends(tmp_path: Path, code: int, err: str, sort: str) -> None:
    assert judged(tmp_path, code, err).sort == sort


@pytest.mark.parametrize(
    "ended, sort",
    [({"overdue": True}, "hang"), ({"overdue": True, "killed": True}, "hang"), ({"left_processes": True}, "process left")],
)
def test_times_and_processes(tmp_path: Path, ended: dict[str, bool], sort: str) -> None:
    assert judged(tmp_path, 130, GOOD, **ended).sort == sort


def test_an_interrupt_that_python_dropped_is_no_traceback(tmp_path: Path) -> None:
    dropped = "Exception ignored in: <function x>\nTraceback (most recent call last):\n  File x\nKeyboardInterrupt: \n"
    assert judged(tmp_path, 130, dropped + GOOD, overdue=True).sort == "hang", "not a traceback; it just took long"


def after(place: Path, code: int, path: str, text: str | None, arguments: tuple[str, ...]) -> Verdict:
    """A command that wrote `text` to `path`, or removed it."""
    here = place / "here"
    here.mkdir()
    (here / "kept.txt").write_text("as it was")
    before = snapshot(here)
    (here / path).parent.mkdir(parents=True, exist_ok=True)
    (here / path).write_text(text) if text is not None else (here / path).unlink()
    (place / "stdout").write_text("")
    (place / "stderr").write_text(GOOD if code else "")
    return judge(place, arguments, Ended(code, 0.1), before, may_be_long=False, may_run_code=False)


@pytest.mark.parametrize(
    "code, path, text, arguments, sort",
    [
        (0, "kept.txt", "other", ("report", "done"), "changed"),
        (2, "kept.txt", None, ("report", "done"), "changed"),
        (0, "new/.report.html.12.partial", "half", ("report", "done"), "left over"),
        (2, "new/config.yaml", "a: 1", ("train", "out=new"), "left over"),
        (1, "new/train.csv", "step\n1\n", ("train", "out=new"), "answered"),
        (2, "new/report.json", "{}", ("report", "done"), "left over"),
        (0, "new/report.json", "{", ("report", "done"), "unreadable"),
        (0, "new/report.json", f'"{SECRET}"', ("report", "done"), "secret"),
        (0, "new/report.json", "{}", ("report", "done", "out=other"), "not done"),
        (0, "new/report.json", "{}", ("report", "done", "out=new"), "succeeded"),
        (130, "run/time.json", "{}", ("train", "out=run", "resume=true"), "answered"),
    ],
)
def test_files(tmp_path: Path, code: int, path: str, text: str | None, arguments: tuple[str, ...], sort: str) -> None:
    assert after(tmp_path, code, path, text, arguments).sort == sort


def test_code_that_ran(tmp_path: Path) -> None:
    (tmp_path / "canary").write_text("ran")
    assert judged(tmp_path, 0).sort == "foreign code"
