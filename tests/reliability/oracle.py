"""What is right: exit code 0 and what was asked for, or one sentence and everything as it was."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import yaml
from children import Ended
from material import SECRET

SUCCEEDED, ANSWERED = "succeeded", "answered"
SORTS = (
    *("traceback", "not your mistake", "signal", "hang", "exit code", "sentence", "foreign code", "secret", "escape codes"),
    *("changed", "left over", "unreadable", "not done", "process left", "harness"),
)
"""Failures, by what is wrong."""
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")
LOCKS = (".lock", "lock")
TRAINED = ("train.csv", "validation.csv", "time.json", "result.json")
"""What a training goes on writing."""
SWALLOWED = re.compile(r"^Exception ignored in: .*?^KeyboardInterrupt: *\n", re.DOTALL | re.MULTILINE)
"""Python drops a Ctrl-C that comes while it clears away an object, says so, and the command goes on."""
SEARCHED = 4 * 2**20
"""Bytes of a written file that are searched for the secret."""

Snapshot = dict[str, str]
"""Path from the case's directory → what is there: a directory, a link and its target, a file and its hash."""


@dataclass(frozen=True)
class Verdict:
    sort: str
    """SUCCEEDED, ANSWERED or one of SORTS."""
    said: str
    """The sentence, or what is wrong."""
    cause: str = ""
    """Where in our code it happened, for an error that nobody expected."""

    @property
    def failed(self) -> bool:
        return self.sort in SORTS


def snapshot(place: Path) -> Snapshot:
    found: Snapshot = {}
    for root, directories, files in os.walk(place):
        for name in (*directories, *files):
            path = Path(root) / name
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                found[str(path.relative_to(place))] = f"link {os.readlink(path)}"
            elif stat.S_ISREG(mode):
                found[str(path.relative_to(place))] = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                found[str(path.relative_to(place))] = "directory" if stat.S_ISDIR(mode) else "special"
    return found


def judge(
    place: Path, arguments: tuple[str, ...], ended: Ended, before: Snapshot, *, may_be_long: bool, may_run_code: bool
) -> Verdict:
    """Of a command that ran in `place/here`, with its output in `place/stdout` and `place/stderr`."""
    out, err = ((place / name).read_bytes().decode(errors="replace") for name in ("stdout", "stderr"))
    after = snapshot(place / "here")
    checks = (
        _of_end(ended, out, err, may_be_long),
        _of_secrets(place, out + err, before, after, may_run_code),
        _of_files(place / "here", arguments, ended.code, before, after),
    )
    for found in checks:
        if found is not None:
            return found
    if ended.code == 0:
        return _of_success(place / "here", arguments)
    return Verdict(ANSWERED, _sentences(err)[0])


def cause(trace: str) -> str:
    """The error's type and the last line of ours in a traceback."""
    ours = re.findall(r'File "[^"]*/src/(phylatent/[^"]*)", line (\d+), in (\S+)', trace)
    ends = re.findall(r"^([A-Za-z_.]+(?:Error|Exception|Interrupt|Exit|Bomb\w*)\b.*)$", trace, re.MULTILINE)
    where = "{}:{} {}".format(*ours[-1]) if ours else "?"
    return f"{where}: {ends[-1][:160] if ends else trace[-160:]}"


def _sentences(err: str) -> list[str]:
    return [line for line in err.split("\n") if line.startswith("error: ")]


def _of_end(ended: Ended, out: str, err: str, may_be_long: bool) -> Verdict | None:
    if ended.overdue:
        err = SWALLOWED.sub("", err)
    if "Traceback (most recent call last)" in err + out:
        return Verdict("traceback", (err or out)[-1500:], cause(err + out))
    if "this is not your mistake" in err:
        return Verdict("not your mistake", err[err.rfind("error: ") :][:600])
    if ended.killed:
        return Verdict("hang", f"it did not end within its time, nor when it was interrupted: {err[-300:]}")
    if ended.code < 0:
        return Verdict("signal", f"it died by signal {-ended.code}: {err[-600:]}")
    if ended.overdue and not may_be_long:
        return Verdict("hang", f"it did not end by itself within its time; interrupted it said: {err[-300:]}")
    if ended.code not in (0, 1, 2, 130):
        return Verdict("exit code", f"{ended.code}: {err[-600:]}")
    if ended.code and len(_sentences(err)) != 1:
        return Verdict("sentence", f"exit code {ended.code}, but {len(_sentences(err))} lines with an error: {err[-600:]!r}")
    if ended.code and not err.rstrip("\n").split("\n")[-1].startswith("error: "):
        return Verdict("sentence", f"the error is not the last thing said: {err[-600:]!r}")
    if ended.left_processes:
        return Verdict("process left", "a process that it started outlived it")
    return None


def _of_secrets(place: Path, said: str, before: Snapshot, after: Snapshot, may_run_code: bool) -> Verdict | None:
    if (place / "canary").exists() and not may_run_code:
        return Verdict("foreign code", (place / "canary").read_text()[:200])
    if SECRET in said:
        return Verdict("secret", "the environment's secret was printed")
    for name in _new_files(before, after):
        with (place / "here" / name).open("rb") as file:
            if SECRET.encode() in file.read(SEARCHED):
                return Verdict("secret", f"the environment's secret was written to {name}")
    if found := CONTROL.search(said):
        around = said[max(0, found.start() - 40) : found.end() + 40]
        return Verdict("escape codes", repr(around))
    return None


def _new_files(before: Snapshot, after: Snapshot) -> list[str]:
    files = [name for name, what in after.items() if len(what) == 64]
    return [name for name in files if before.get(name) != after[name]]


def _of_files(here: Path, arguments: tuple[str, ...], code: int, before: Snapshot, after: Snapshot) -> Verdict | None:
    changed = [name for name in before if after.get(name) != before[name] and not _may_change(name, arguments, code)]
    if changed:
        what = [f"{name} ({'changed' if name in after else 'gone'})" for name in changed]
        return Verdict("changed", ", ".join(what[:6]))
    new = [name for name in after if name not in before]
    partial = [name for name in new if ".partial" in name]
    if partial:
        return Verdict("left over", ", ".join(partial[:4]))
    if code and (left := _left_over(here, arguments, code, new)):
        return Verdict("left over", ", ".join(left[:6]))
    made = [name for name in _new_files(before, after) if after[name] not in before.values()]  # a copy is as it was
    unreadable = [f"{name}: {why}" for name in made if (why := _unreadable(here / name))]
    return Verdict("unreadable", "; ".join(unreadable[:3])) if unreadable else None


def _value(arguments: tuple[str, ...], key: str) -> str | None:
    return next((text.partition("=")[2] for text in reversed(arguments) if text.startswith(f"{key}=")), None)


def _may_change(name: str, arguments: tuple[str, ...], code: int) -> bool:
    """What a command is for: training goes on in its directory, collecting and preparing use up what they have begun."""
    path = Path(name)
    if path.name in LOCKS:
        return True
    command = arguments[0] if arguments else ""
    if command == "train" and _value(arguments, "resume") == "true":
        if code == 2:
            return False  # refused: nothing was begun
        return bool({"checkpoints", "model"} & set(path.parts)) or path.name in TRAINED
    return command in ("collect", "prepare") and any(part.endswith(".parts") for part in path.parts)


def _left_over(here: Path, arguments: tuple[str, ...], code: int, new: list[str]) -> list[str]:
    """What a command that failed has no business to leave: a run that began and a collection with finished shards may stay."""
    command = arguments[0] if arguments else ""
    if command == "train" and any(name.endswith(("train.csv", ".ckpt", "time.json")) for name in new):
        return []
    if command == "train" and code == 1 and _value(arguments, "resume") == "true":
        new = [name for name in new if "tensorboard" not in Path(name).parts]  # it went on, and has a curve of it
    if command == "doctor" and code == 1:
        new = [name for name in new if name != _value(arguments, "out")]  # what it found amiss
    if command == "demo":
        return []  # it has stages, each of them whole
    begun = command in ("collect", "prepare") and any(".parts" in name for name in new)
    return [] if begun else [name for name in new if Path(name).name not in LOCKS]


def _unreadable(path: Path) -> str | None:
    try:
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".csv":
            list(csv.reader(path.read_text().splitlines(), strict=True))
        elif path.suffix in (".yaml", ".yml"):
            yaml.safe_load(path.read_text())
    except (ValueError, csv.Error, yaml.YAMLError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"[:200]
    return None


def _of_success(here: Path, arguments: tuple[str, ...]) -> Verdict:
    out = _value(arguments, "out")
    only_told = {"--help", "-h", "--version"} & set(arguments)
    if out and not only_told and not out.startswith("~") and arguments[0] != "demo":
        place = here / out
        if not place.exists() and not (_value(arguments, "seed") or "").count(","):
            return Verdict("not done", f"exit code 0, but there is no {out}")
    return Verdict(SUCCEEDED, "")
