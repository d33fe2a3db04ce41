"""What a run's files say of it right now, whatever moment of its life they are read in."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phylatent.errors import UserError
from phylatent.reading import check_shape, read_json, read_table, read_yaml
from phylatent.reading.shapes import COUNT, REAL, Maybe
from phylatent.records import TRAINED
from phylatent.runs import (
    CHECKPOINTS,
    CONFIG,
    JOINT,
    LOCK,
    MODEL,
    PREDICTOR,
    RESULT,
    TRAIN_TABLE,
    VALIDATION_TABLE,
    check_source,
    go_on_command,
    newest_checkpoint,
    run_directory,
)

WAITING, TRAINING, STOPPED, FINISHED = "not begun", "training", "stopped", "finished"
Columns = Mapping[str, tuple[float, ...]]
SHARE_OF_TIME = 1 / 50
"""Of the time that passes, what reading a table may take at most: a long one is looked at less often."""
ROWS = 400
"""Of a table that are drawn: a screen has no more points."""
FRESH = 60.0
"""Seconds since something was written, within which a run counts as going on where its lock cannot be seen."""
AGAIN = "the page goes on once it is whole"
LOCKS = Path("/proc/locks")
STEPS = {"steps?": Maybe(COUNT), "predictor_steps?": Maybe(COUNT), "batch_size?": Maybe(COUNT), "log_every?": Maybe(COUNT)}
CONFIGURATION = {**TRAINED, "train?": Maybe(STEPS)}
DONE = {"steps?": Maybe(COUNT), "seconds?": Maybe(REAL)}


@dataclass(frozen=True)
class Snapshot:
    """One run at one moment."""

    name: str
    status: str
    sentence: str = ""
    """What else there is to say of it: what it waits for, what is wrong with a file, how to go on."""
    facts: tuple[tuple[str, str], ...] = ()
    step: int | None = None
    total: int | None = None
    """Steps of all stages; None where the configuration gives epochs, until the data was opened."""
    train: Columns | None = None
    validation: Columns | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    """clips_per_second, seconds_left, seconds_ago: those that are known."""


def check_watchable(place: Path) -> None:
    """An error unless a run is there, or could still begin there."""
    try:
        known = run_directory(place) is not None or (place.is_dir() and not any(place.iterdir()))
        could_begin = not place.exists() and place.parent.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, one that no file can have, or not ours to read
        raise UserError(f"{place} cannot be watched: it is not a directory that can be read; name a run's directory") from error
    if known or could_begin:
        return
    if place.is_dir():
        check_source(place)  # a model directory is told apart from any other
        raise UserError(f"{place} is a model without its training; watch takes the directory that train writes to")
    found = "is a file" if place.exists() else "is not there, nor is the directory it would be in"
    raise UserError(f"{place} {found}; watch takes the directory that train writes to, such as runs/tworooms-laptop-lewm-seed0")


class GrowingTable:
    """A table that training appends to: read again once it has changed, and for a small part of the time only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: Columns | None = None
        self.seen: tuple[int, ...] | None = None
        self.not_before = 0.0

    def read(self) -> Columns | None:
        """The columns that are there by now, NaN where a cell is empty; a line that is still being written is left out."""
        try:
            stat = self.path.stat()
        except OSError:
            self.columns, self.seen = None, None
            return None
        now, signature = time.monotonic(), (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if signature != self.seen and now >= self.not_before:
            rows = read_table(self.path, again=AGAIN, unfinished=True)
            names = [name for name in rows[0] if name] if rows else []
            self.columns = {name: tuple(float(row[name] or math.nan) for row in rows) for name in names} or None
            self.seen, self.not_before = signature, now + (time.monotonic() - now) / SHARE_OF_TIME
        return self.columns


class Watched:
    """One run directory, asked again and again."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.name = directory, name
        self.tables = {name: GrowingTable(directory / name) for name in (TRAIN_TABLE, VALIDATION_TABLE)}
        self.planned: int | None = None
        """Steps of the joint training, where only the data says how many an epoch has."""
        self.beginning: tuple[float, int] | None = None
        """When the predictor's own steps were first seen, and at which step."""

    def snapshot(self) -> Snapshot:
        """What is there now; a file that cannot be read is told in a sentence, and the rest is shown."""
        if run_directory(self.directory) is None:
            waits = "nothing is there yet; the page goes on as soon as a training writes to this directory"
            return Snapshot(self.name, WAITING, waits)
        complaints: list[str] = []

        def tried(read: Any, otherwise: Any) -> Any:
            try:
                return read()
            except UserError as error:
                complaints.append(str(error))
                return otherwise

        config = tried(lambda: _checked(read_yaml(self.directory / CONFIG, again=AGAIN), self.directory / CONFIG), {})
        train, validation = (tried(table.read, table.columns) for table in self.tables.values())
        result = tried(self._result, None)
        status = FINISHED if result is not None else TRAINING if self._is_alive() else STOPPED
        if status == STOPPED and train is None and newest_checkpoint(self.directory) is None:
            complaints.append("no step is done yet")
        elif status == STOPPED:
            complaints.append(f"it was stopped or killed; go on with: {go_on_command(self.directory)}")
        step = int(max((table["step"][-1] for table in (train, validation) if table), default=0))
        joint = (config.get("train") or {}).get("steps") or self.planned or (result or {}).get("steps")
        extra = (config.get("train") or {}).get("predictor_steps") or 0
        if status == FINISHED and joint is not None:
            step = joint + extra  # earlier versions had no rows of the predictor's own steps
        return Snapshot(
            name=self.name,
            status=status,
            sentence="; ".join(complaints),
            facts=tuple(
                (key, str(config[key])) for key in ("task", "preset", "variant", "seed") if config.get(key) is not None
            ),
            step=step,
            total=None if joint is None else joint + extra,
            train=thinned(train),
            validation=thinned(validation),
            figures=self._figures(config, train, result, status, step, joint, extra),
        )

    def _result(self) -> dict[str, Any] | None:
        path = self.directory / RESULT
        if not path.is_file():
            return None
        found = read_json(path, again=AGAIN)
        check_shape(path, found, DONE, again=AGAIN)
        return found

    def newest_weights(self) -> Path | None:
        """On the disc: the exported model, else the newest checkpoint. The predictor's own steps come after the joint ones."""
        if (self.directory / RESULT).is_file() and (self.directory / MODEL).is_dir():
            return self.directory / MODEL
        return newest_checkpoint(self.directory, PREDICTOR) or newest_checkpoint(self.directory, JOINT)

    def _written(self) -> float | None:
        """When training wrote something last."""
        places = [self.directory / name for name in (CONFIG, TRAIN_TABLE, VALIDATION_TABLE, CHECKPOINTS)]
        times = [place.stat().st_mtime for place in places if place.exists()]
        return max(times, default=None)

    def _is_alive(self) -> bool:
        """Whether a process trains here. Its lock says so where the system lists locks; asking for it could be in its way."""
        written = self._written()
        return _is_locked(self.directory / LOCK) or (written is not None and time.time() - written < FRESH)

    def _figures(
        self, config: Any, train: Columns | None, result: Any, status: str, step: int, joint: int | None, extra: int
    ) -> dict[str, float]:
        speed = (train or {}).get("clips_per_second", (math.nan,))[-1]
        found = {"clips_per_second": speed, "seconds": (result or {}).get("seconds") or math.nan}
        if status != FINISHED and (written := self._written()) is not None:
            found["seconds_ago"] = max(0.0, time.time() - written)
        if status == TRAINING and joint is not None:
            batch = (config.get("train") or {}).get("batch_size") or math.nan
            alone = bool(extra) and step > joint
            pace = self._pace(step) if alone else speed / batch
            left = (joint + extra if alone else joint) - step
            found["seconds_left"] = left / pace if pace > 0 else math.nan
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def _pace(self, step: int) -> float:
        """Steps a second in the predictor's own steps, whose batches are others: since they were first seen."""
        now = time.monotonic()
        self.beginning = self.beginning or (now, step)
        since, first = self.beginning
        return (step - first) / (now - since) if now > since else math.nan


def thinned(table: Columns | None) -> Columns | None:
    """At most so many rows as are drawn, the last one among them."""
    if table is None:
        return None
    count = len(table["step"])
    every = -(-count // ROWS)
    kept = range((count - 1) % every, count, every)
    return {name: tuple(values[at] for at in kept) for name, values in table.items()}


def _checked(config: dict[str, Any], path: Path) -> dict[str, Any]:
    check_shape(path, config, CONFIGURATION, again=AGAIN)
    return config


def _is_locked(path: Path) -> bool:
    """Whether a process holds this lock, from the system's own list: it is not touched."""
    try:
        stat, lines = path.stat(), LOCKS.read_text().splitlines()
    except OSError:
        return False
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    return any(place in line.split() for line in lines)
