"""A run directory: what it holds, when each part is written, who may write to it, and where the records about a model lie.

config.yaml  run.json  time.json  train.csv  validation.csv  tensorboard/  checkpoints/     while it trains
model/  result.json                                                                         once it is finished
diagnostics/<protocol>.json, .npz                                                           once it is diagnosed
planning/<protocol>/result.json, pairs.json, rollouts.npz, videos/                          once it has planned
decoder/decoder.json, decoder.safetensors, views.npz, *.png                                 once it is decoded
training/                                       copies of its tables, where the records lie elsewhere than the run
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phylatent.errors import UserError
from phylatent.files import atomic, check_target, locked, remove_partials
from phylatent.reading import check_shape, read_json
from phylatent.reading.shapes import REAL, Maybe
from phylatent.records import write_json
from phylatent.schema import Config

CONFIG, DATA, TIME = "config.yaml", "run.json", "time.json"
LOCK = ".lock"
TRAIN_TABLE, VALIDATION_TABLE = "train.csv", "validation.csv"
CHECKPOINTS, TENSORBOARD = "checkpoints", "tensorboard"
MODEL, RESULT = "model", "result.json"
DIAGNOSTICS, PLANNING = "diagnostics", "planning"
PAIRS, ROLLOUTS, VIDEOS = "pairs.json", "rollouts.npz", "videos"
TRAINING = "training"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
PLACES = (("runs",), ("data",), ("results",), (".",), ("..",))
"""What a path begins with, though it may look like a Hub id."""
TRAINING_FILES = (CONFIG, TRAIN_TABLE, VALIDATION_TABLE, RESULT)
"""What a page shows of a training, and so what records take along that lie elsewhere."""
DATA_SHAPE = {"data": {"name": str, "episodes": int, "fingerprint": str}}
"""Of `run.json`: the data that the run was begun with."""
TIME_SHAPE = {"seconds_of_starts": [Maybe(REAL)]}
"""Of `time.json`."""


def home() -> Path:
    """Where `runs/` and `data/` live: $PHYLATENT_HOME, or the working directory."""
    return Path(os.environ.get("PHYLATENT_HOME") or ".")


def data_path(config: Config) -> Path:
    """The data file of a configuration: `data=`, or where `collect` puts it."""
    return Path(config.data).expanduser() if config.data else home() / "data" / f"{config.task}-{config.preset}.h5"


def default_directory(config: Config) -> Path:
    """Where a training writes unless it is told otherwise."""
    return home() / "runs" / f"{config.task}-{config.preset}-{config.variant}-seed{config.seed}"


def judged_directory(name: str) -> Path:
    """Where the records of a model without a run directory go."""
    return home() / "runs" / f"judged-{name}"


def run_directory(place: Path) -> Path | None:
    """The run that a directory is, or belongs to."""
    if (place / CONFIG).is_file():
        return place
    return place.parent if place.name == MODEL and (place.parent / CONFIG).is_file() else None


def check_source(source: str | Path) -> None:
    """An error unless a model could be there: a run that is finished, a model directory, or what looks like a Hub id."""
    place = Path(source).expanduser()
    run = run_directory(place)
    if run is not None:
        if not (run / MODEL).is_dir():
            raise UserError(f"{run} has no exported model yet; finish its training: {go_on_command(run)}")
    elif place.is_dir():
        if not (place / "config.json").is_file():
            raise UserError(f"{source} is neither a run directory (no {CONFIG}) nor a model directory (no config.json)")
    elif place.exists() or not HUB_ID.fullmatch(str(source)):
        raise UserError(
            f"{source} is not a run directory, not a model directory, and not a Hub id like owner/name{beside(place)}"
        )
    else:
        check_hub_id(source)


def check_hub_id(source: str | Path) -> None:
    """An error for what means a place here and nothing is there: nobody waits for the Hub because of a mistyped run."""
    place = Path(source).expanduser()
    if place.parts[:1] in PLACES or place.parent.is_dir():
        raise UserError(f"there is no directory {source}{beside(place)}")


def beside(place: Path) -> str:
    """The directory beside it that may be meant."""
    try:
        there = [path.name for path in place.expanduser().parent.iterdir() if path.is_dir()]
    except (OSError, RuntimeError, ValueError):  # whatever is wrong with the path, it is said elsewhere
        return ""
    near = difflib.get_close_matches(place.name, there, n=1)
    return f"; did you mean {place.parent / near[0]}?" if near else ""


def records_of(source: str | Path) -> Path:
    """The directory that holds the records about a source: its own, its run's, or where judging put them."""
    place = Path(source).expanduser()
    run = run_directory(place)
    if run is not None or (place.is_dir() and not (place / "config.json").is_file()):
        return run or place
    return judged_directory(place.name)


def diagnosis_file(directory: Path, protocol: str) -> Path:
    return directory / DIAGNOSTICS / f"{protocol}.json"


def planning_folder(directory: Path, protocol: str) -> Path:
    """It holds `result.json`, the pairs, and what is shown of the episodes."""
    return directory / PLANNING / protocol


def decoding_file(directory: Path) -> Path:
    """The record of a decoder that was trained after the fact; what it made lies beside it."""
    return directory / "decoder" / "decoder.json"


def training_files(directory: Path) -> Path:
    """Where the tables of the training lie: in the run itself, or beside records that lie elsewhere."""
    copied = directory / TRAINING
    return copied if copied.is_dir() else directory


def copy_training(run: Path, directory: Path) -> None:
    """Records elsewhere than in the run come with what the run says of its training, so that a page can show it."""
    if run.resolve() == directory.resolve():
        return
    for name in TRAINING_FILES:
        target = directory / TRAINING / name
        if (run / name).is_file() and not target.exists():
            with atomic(target) as temporary:
                shutil.copyfile(run / name, temporary)


JOINT, PREDICTOR = "step", "predictor"
"""A training's two stages, by the names of their checkpoints."""


def checkpoint_file(directory: Path, stage: str, step: int) -> Path:
    return directory / CHECKPOINTS / f"{stage}-{step:08d}.ckpt"


def checkpoints(directory: Path, stage: str = JOINT) -> list[Path]:
    """A run's checkpoints of one stage, oldest first."""
    return sorted((directory / CHECKPOINTS).glob(f"{stage}-*.ckpt"))


def newest_checkpoint(directory: Path, stage: str = JOINT) -> Path | None:
    return next(reversed(checkpoints(directory, stage)), None)


def go_on_command(directory: Path) -> str:
    """What to type to continue the run in a directory."""
    return f"phylatent train out={shlex.quote(str(directory))} resume=true"


@contextlib.contextmanager
def claim(directory: Path, *, resume: bool) -> Iterator[None]:
    """Take the directory for this run; it is an error if another run has it, finished or not, or is writing to it."""
    if not resume:
        check_free(directory)
    busy = f"another process is training in {directory}; wait for it, or choose another out="
    with locked(directory, LOCK, busy=busy, elsewhere="choose another out="):
        if not resume:
            check_free(directory)  # once more: whoever had it until now may have left a run
        for place in (directory, directory / CHECKPOINTS):
            remove_partials(place)
            check_target(place, directory=True)
        for name in (CONFIG, DATA, TIME, TRAIN_TABLE, VALIDATION_TABLE, RESULT):
            check_target(directory / name)  # what only the end of a training would find
        yield


def holds_something(directory: Path) -> bool:
    """Whether there is anything in it but the lock of a process that holds it, or of one that was killed before it began."""
    return directory.is_dir() and any(path.name != LOCK for path in directory.iterdir())


def check_free(directory: Path) -> None:
    """An error if there is anything that a new run could overwrite."""
    if holds_something(directory):
        holds_run = (directory / CONFIG).exists()
        what = "holds a run" if holds_run else "is not empty"
        continued = f", or continue it with: {go_on_command(directory)}" if holds_run else ""
        raise UserError(f"{directory} {what} and will not be overwritten; choose another out=, or delete it{continued}")


def check_data(directory: Path, facts: dict[str, Any]) -> None:
    """Remember what data the run trains on, and refuse to continue it on other data."""
    record = directory / DATA
    if record.exists():
        again = "delete it if the data is what the run was begun with, and go on"
        found = read_json(record, again=again)
        check_shape(record, found, DATA_SHAPE, again=again)
        before = found["data"]
        if before["fingerprint"] != facts["fingerprint"]:
            raise UserError(
                f"the data in {facts['name']} is not what the run in {directory} was trained on "
                f"({before['name']}, {before['episodes']} episodes); give it that data again, or start a new run with out="
            )
        return
    write_json(record, {"data": facts})
