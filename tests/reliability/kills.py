"""Kills every command at random moments with SIGKILL, runs it again, and compares with a run that nobody disturbed.

`make kills` kills each of them twenty times. There is no `grid` command yet; it belongs here once it is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import material
from children import DEADLINE, Copy, Order
from comparison import Contents, contents, differences
from rich.console import Console
from rich.table import Table

PATIENCE = 20.0
"""Seconds within which the processes of a command must be gone once their parent was killed."""
TRAIN = (*material.SMALL, "data=data.h5", "out=new", "train.checkpoint_every=5", "train.validate_every=10")


@dataclass(frozen=True)
class Subject:
    """A command that is killed. `again` is what goes on with what the kill left, where that is another command line."""

    line: tuple[str, ...]
    needs: tuple[str, ...] = ("data.h5", "data.h5.json")
    new_process: bool = False
    """Whether it is started as a user would. Otherwise it is a copy of this process, which has imported everything."""
    parent_only: bool = False
    """Whether only the process itself is killed, not those that it started: they must see it and end."""


COLLECT = ("collect", "preset=smoke", "collect.episodes=24", "collect.workers=2", "collect.shard_episodes=2", "out=new.h5")
SUBJECTS = {
    "collect, 2 workers": Subject(COLLECT, needs=()),
    "collect, 2 workers, only the parent": Subject(COLLECT, needs=(), parent_only=True),
    "train, joint steps": Subject(("train", *TRAIN, "train.steps=60")),
    "train, predictor's steps": Subject(("train", *TRAIN, "train.steps=4", "train.predictor_steps=100")),
    "train, 2 loader workers": Subject(("train", *TRAIN, "train.steps=60", "train.loader_workers=2")),
    "train, devices=2": Subject(("train", *TRAIN, "train.steps=40", "devices=2"), new_process=True),
    "diagnose": Subject(("diagnose", "done", "data=data.h5", "workers=1", "out=new"), ("done", "data.h5")),
    "plan": Subject(("plan", "done", "data=data.h5", "workers=1", "out=new"), ("done", "data.h5")),
    "decode": Subject(("decode", "done", "data=data.h5", "decode.steps=20", "out=new"), ("done", "data.h5")),
    "report": Subject(("report", "done", "out=new"), ("done",)),
    "import, a model": Subject(("import", "theirs", "task=tworooms", "data=data.h5", "out=new"), ("theirs", "data.h5")),
    "import, packed data": Subject(("import", "packed.tar.zst", "out=new.h5"), ("packed.tar.zst",)),
    "export": Subject(("export", "done", "out=new"), ("done",)),
    "prepare": Subject(("prepare", "data.h5", "prepare.workers=1", "out=new.frames")),
}


@dataclass
class Tally:
    """What became of one command's kills."""

    name: str
    seconds: float
    """Of the undisturbed run."""
    kills: int = 0
    too_late: int = 0
    """It had ended before the kill came."""
    equal: int = 0
    failures: list[str] = field(default_factory=list)


class Started:
    """A command on its way, in `place/here`."""

    def __init__(self, subject: Subject, line: tuple[str, ...], place: Path) -> None:
        self.begun = time.monotonic()
        environment = material.environment(place)
        if subject.new_process:
            logs = [(place / name).open("w") for name in ("stdout", "stderr")]
            command = [sys.executable, "-m", "phylatent", *line]
            self.process: subprocess.Popen | None = subprocess.Popen(
                command, cwd=place / "here", env=environment, stdout=logs[0], stderr=logs[1], start_new_session=True
            )
            self.pid = self.process.pid
            for log in logs:
                log.close()
        else:
            self.process = None
            copy = Copy()
            self.pid = copy.pid
            copy.send(Order(line, str(place / "here"), str(place), environment, core=None))

    def wait(self, until: float) -> int | None:
        """The exit code, or None if it still works then."""
        while time.monotonic() < until:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        return None

    def kill(self, *, parent_only: bool) -> bool:
        """Kill it; whether everything that it started is gone soon after."""
        with suppress(ProcessLookupError):
            (os.kill if parent_only else os.killpg)(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return False


def fresh(subject: Subject, source: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    material.copy(source, subject.needs, place / "here")


def line_to_go_on(subject: Subject, here: Path) -> tuple[str, ...]:
    """The same command, or for a run that began, what continues it."""
    begun = subject.line[0] == "train" and (here / "new" / "config.yaml").exists()
    return ("train", "out=new", "resume=true") if begun else subject.line


def undisturbed(subject: Subject, source: Path, place: Path) -> tuple[float, Contents]:
    fresh(subject, source, place)
    started = Started(subject, subject.line, place)
    code = started.wait(started.begun + 5 * DEADLINE)
    if code != 0:
        started.kill(parent_only=False) if code is None else None
        raise RuntimeError(f"{subject.line} ended with {code} undisturbed: {(place / 'stderr').read_text()[-800:]}")
    return time.monotonic() - started.begun, contents(place / "here")


def kill_once(subject: Subject, source: Path, place: Path, moments: list[float], expected: Contents) -> tuple[str, str]:
    """Kill it at each of the moments, going on in between, then let it finish: ("equal" | "too late" | "failed", why)."""
    fresh(subject, source, place)
    here, outcome = place / "here", "equal"
    for moment in moments:
        started = Started(subject, line_to_go_on(subject, here), place)
        code = started.wait(started.begun + moment)
        if code is not None:
            if code and not _is_whole(subject, place):
                return "failed", f"before the kill at {moment:.2f} s: {_said(place)}"
            outcome = "too late"
        elif not started.kill(parent_only=subject.parent_only):
            return "failed", f"processes outlived a kill at {moment:.2f} s"
        else:
            outcome = "equal"
    done = "import" if subject.line[0] == "import" else ""
    if not (outcome == "too late" and done):  # what is whole already is refused a second time
        started = Started(subject, line_to_go_on(subject, here), place)
        code = started.wait(started.begun + 5 * DEADLINE)
        if code is None:
            started.kill(parent_only=False)
        if code and not _is_whole(subject, place):
            return "failed", f"after kills at {_at(moments)} it ended with {code}: {_said(place)}"
    if found := differences(expected, contents(here)):
        return "failed", f"after kills at {_at(moments)}: {'; '.join(found[:4])}"
    return outcome, ""


def _is_whole(subject: Subject, place: Path) -> bool:
    """Whether it was killed after its last write: then the same command says that what it would write is there."""
    said = (place / "stderr").read_text()
    return subject.line[0] in ("import", "export", "report") and any(part in said for part in ("exists", "is not empty"))


def _said(place: Path) -> str:
    return " ".join((place / "stderr").read_text()[-400:].split())


def _at(moments: list[float]) -> str:
    return ", ".join(f"{moment:.2f} s" for moment in moments)


def kill(name: str, source: Path, place: Path, times: int, seed: int, say: Callable[[str], None] = print) -> Tally:
    """So many kills of one command, spread over the time that it takes; every fourth is killed again as it goes on."""
    subject, rng = SUBJECTS[name], Random(f"{seed} {name}")
    seconds, expected = undisturbed(subject, source, place)
    tally = Tally(name, round(seconds, 2))
    for number in range(times):
        moments = [seconds * (number + rng.random()) / times]
        if number % 4 == 3:
            moments.append(seconds * rng.random())
        outcome, why = kill_once(subject, source, place, moments, expected)
        tally.kills += 1
        tally.too_late += outcome == "too late"
        tally.equal += outcome != "failed"
        if outcome == "failed":
            tally.failures.append(why)
            say(f"{name}: {why}")
    return tally


def rows(tallies: list[Tally]) -> list[dict[str, Any]]:
    return [dict(vars(tally)) for tally in tallies]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="kills of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="commands whose name contains this")
    parser.add_argument("--place", type=Path, help="a directory to work in; the material in it is used again")
    parser.add_argument("--record", type=Path, help="a JSON file for the table")
    chosen = parser.parse_args(arguments)
    place = (chosen.place or Path(tempfile.mkdtemp(prefix="kills-"))).absolute()
    begun, screen = time.monotonic(), Console(highlight=False, soft_wrap=True, markup=False)
    material.warm()
    source = material.build(place / "material")
    tallies = []
    for name in SUBJECTS:
        if chosen.only in name:
            tallies.append(kill(name, source, place / "killed", chosen.times, chosen.seed, screen.print))
            last = tallies[-1]
            screen.print(f"{name}: {last.kills} kills in {last.seconds} s, {last.equal} ended in the same files")
    table = Table("command", "takes", "kills", "it had ended", "same result", "failures")
    for tally in tallies:
        counts = (tally.kills, tally.too_late, tally.equal, len(tally.failures))
        table.add_row(tally.name, f"{tally.seconds} s", *map(str, counts))
    screen.print(table)
    if chosen.record:
        made = {"seed": chosen.seed, "minutes": round((time.monotonic() - begun) / 60, 1), "rows": rows(tallies)}
        chosen.record.parent.mkdir(parents=True, exist_ok=True)
        chosen.record.write_text(json.dumps(made, indent=1) + "\n")
    if chosen.place is None:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if any(tally.failures for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
