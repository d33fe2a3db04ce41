"""A run's directory: who may write into it, and what it holds.

config.yaml  run.json  time.json  train.csv  validation.csv  tensorboard/  checkpoints/
and, once finished, model/ and result.json
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.rank_zero import rank_zero_only

from phylatent.composition import save_config
from phylatent.errors import PhylatentError, UserError
from phylatent.models.world_model import WorldModel
from phylatent.records import home, is_disk_full, write_json
from phylatent.schema import Config

CONFIG, RECORD, TIME, RESULT, MODEL = "config.yaml", "run.json", "time.json", "result.json", "model"


def is_main() -> bool:
    """Whether this process writes: of several that train together the first one, known before they have met."""
    return getattr(rank_zero_only, "rank", None) in (0, None)


def default_directory(config: Config) -> Path:
    return home() / "runs" / f"{config.task}-{config.preset}-{config.variant}-seed{config.seed}"


def go_on_command(directory: Path) -> str:
    return f"phylatent train out={shlex.quote(str(directory))} resume=true"


@contextlib.contextmanager
def claim(directory: Path, config: Config, *, resume: bool) -> Iterator[None]:
    """Take the directory for this run; it is an error if another run has it, finished or not, or is writing to it."""
    if not resume:
        check_free(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as error:
        if is_disk_full(error):
            raise
        raise UserError(f"cannot write to {directory}: {error.strerror}; choose another out=") from error
    with lock as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"another process is training in {directory}; wait for it, or choose another out=") from error
        for stale in directory.rglob(".*.partial"):
            stale.unlink() if stale.is_file() else shutil.rmtree(stale)
        if not (directory / CONFIG).exists():
            save_config(config, directory / CONFIG)
        yield


def check_free(directory: Path) -> None:
    """An error if there is anything that a new run could overwrite."""
    if directory.is_dir() and any(directory.iterdir()):
        holds_run = (directory / CONFIG).exists()
        what = "holds a run" if holds_run else "is not empty"
        continued = f", or continue it with: {go_on_command(directory)}" if holds_run else ""
        raise UserError(f"{directory} {what} and will not be overwritten; choose another out=, or delete it{continued}")


def check_data(directory: Path, facts: dict[str, Any]) -> None:
    """Remember what data the run trains on, and refuse to continue it on other data."""
    record = directory / RECORD
    if record.exists():
        before = json.loads(record.read_text())["data"]
        if before["fingerprint"] != facts["fingerprint"]:
            raise UserError(
                f"the data in {facts['name']} is not what the run in {directory} was trained on "
                f"({before['name']}, {before['episodes']} episodes); give it that data again, or start a new run with out="
            )
        return
    write_json(record, {"data": facts})


def export(model: WorldModel, directory: Path) -> Path:
    """`model/` appears whole or not at all."""
    final, temporary = directory / MODEL, directory / f".{MODEL}.partial"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        model.save_pretrained(temporary)
    except Exception as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if is_disk_full(error):
            raise PhylatentError(f"no space left on the disk while writing {final}; free some and continue the run") from error
        raise
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
    return final
