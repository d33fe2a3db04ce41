"""Lightning's files, made safe: checkpoints that are whole or absent and hold no code, tables that survive a resume."""

from __future__ import annotations

import csv
from argparse import Namespace
from pathlib import Path
from typing import Any, ClassVar

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only

from phylatent.errors import UserError
from phylatent.files import atomic
from phylatent.reading import damaged, read_table, read_tensors
from phylatent.runs import TRAIN_TABLE, VALIDATION_TABLE

DELETE = "delete it to go on from the one before it"
"""What to do about a checkpoint that is none."""
MOVE = "move it away to go on without what it says of the steps before"
"""What to do about a table."""


def is_main() -> bool:
    """Whether this process writes: of several that train together the first one, known before they have met."""
    return getattr(rank_zero_only, "rank", None) in (0, None)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Tensors and plain values only; a pickle that would run code is refused. What is in it is for `check_fits` to judge."""
    if not path.is_file():
        raise UserError(f"there is no checkpoint {path}")
    checkpoint = read_tensors(path, again=DELETE, kind="phylatent checkpoint")
    if not isinstance(checkpoint, dict):
        raise damaged(path, f"it is not a whole phylatent checkpoint but a {type(checkpoint).__name__}", DELETE)
    return checkpoint


class AtomicCheckpointIO(CheckpointIO):
    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        # Given a path, torch hides a full disk behind an error of its own; given a file, the system's error comes through.
        with atomic(Path(path)) as temporary, temporary.open("wb") as handle:
            torch.save(checkpoint, handle)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return load_checkpoint(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


class CsvTables(Logger):
    """`train.csv` and `validation.csv`: a column a metric, a row for the number of steps done.

    Lightning's own CSV logger deletes the file of the run it resumes; this one keeps it up to the step it resumes from.
    """

    FILES: ClassVar = {"train": TRAIN_TABLE, "val": VALIDATION_TABLE}

    def __init__(self, directory: Path, first_step: int) -> None:
        super().__init__()
        self.directory = directory
        self.headers: dict[str, list[str]] = {}
        if is_main():
            tables = {
                directory / name: self.read(directory / name) for name in self.FILES.values()
            }  # all whole, or none touched
            for path, rows in tables.items():
                self._keep_until(path, rows, first_step)

    @property
    def name(self) -> str:
        return "csv"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """The configuration is saved as config.yaml."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        for prefix, file in self.FILES.items():
            row = {key.partition("/")[2]: value for key, value in metrics.items() if key.startswith(f"{prefix}/")}
            if row:
                self._append(self.directory / file, {"step": step, **row})

    def _append(self, path: Path, row: dict[str, Any]) -> None:
        header = self.headers.get(path.name)
        if header is None and path.exists():
            with path.open(newline="") as handle:
                header = next(csv.reader(handle), None)
        fresh = header is None
        header = self.headers[path.name] = header or list(row)
        with path.open("a", newline="") as handle:
            # a run begun by an earlier version goes on with the columns it has
            writer = csv.DictWriter(handle, header, extrasaction="ignore")
            if fresh:
                writer.writeheader()
            writer.writerow(row)

    @staticmethod
    def read(path: Path) -> list[dict[str, str]]:
        return read_table(path, again=MOVE, unfinished=True) if path.exists() else []

    @staticmethod
    def _keep_until(path: Path, rows: list[dict[str, str]], step: int) -> None:
        kept = [row for row in rows if int(row["step"]) <= step]
        if not kept:
            path.unlink(missing_ok=True)
            return
        with atomic(path) as temporary, temporary.open("w", newline="") as handle:
            writer = csv.DictWriter(handle, list(kept[0]))
            writer.writeheader()
            writer.writerows(kept)


def validation_at(directory: Path, step: int) -> dict[str, float]:
    """What a run's table says of the validation at a step, or the last one before: for a run that was killed after it."""
    rows = [row for row in CsvTables.read(directory / CsvTables.FILES["val"]) if int(row["step"]) <= step]
    return {name: float(value or "nan") for name, value in rows[-1].items() if name != "step"} if rows else {}
