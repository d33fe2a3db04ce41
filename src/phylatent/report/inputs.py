"""Reads what training, diagnostics and planning left in a directory. A record that is not there is None, never a guess."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from phylatent.errors import UserError
from phylatent.records import split_of
from phylatent.runs import (
    CONFIG,
    DIAGNOSTICS,
    PLANNING,
    RESULT,
    ROLLOUTS,
    TRAIN_TABLE,
    TRAINING_FILES,
    VALIDATION_TABLE,
    diagnosis_file,
    planning_folder,
    training_files,
)
from phylatent.schema import PLAN_PROTOCOLS

Record = Mapping[str, Any]
Columns = Mapping[str, tuple[float, ...]]
SHORT = ("smoke", "quick")
"""Presets that show how it goes, too short to compare anything."""
KINDS = ("*.json", "*.npz")


@dataclass(frozen=True)
class Run:
    """One directory: who the model is, and every record of it."""

    directory: Path
    variant: str
    stop_gradient: bool
    task: str | None
    preset: str | None
    seed: int | None
    """The training seed."""
    config: Record | None = None
    train: Columns | None = None
    validation: Columns | None = None
    result: Record | None = None
    diagnosis: Record | None = None
    ordering: Record | None = None
    points: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Arrays behind the diagnosis, of its first evaluation seed, without their `seed0/`."""
    plans: Mapping[str, Record] = field(default_factory=dict)
    """Protocol → planning record."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """File → sha256."""

    @property
    def name(self) -> str:
        return self.directory.resolve().name

    @property
    def quick(self) -> bool:
        """Whether something here was shortened on purpose, so that its numbers are not the real ones."""
        records = (self.result, self.diagnosis, self.ordering, *self.plans.values())
        return self.preset in SHORT or any(bool(record and record.get("quick")) for record in records)

    @property
    def splits(self) -> Mapping[str, str]:
        """What was measured → the name of the side of the split that it was measured on."""
        records = {"diagnostics": self.diagnosis, "ordering": self.ordering}
        records |= {f"planning ({protocol})": record for protocol, record in self.plans.items()}
        return {name: split_of(record) for name, record in records.items() if record is not None}

    def rollouts(self, protocol: str) -> Mapping[str, np.ndarray]:
        path = planning_folder(self.directory, protocol) / ROLLOUTS
        return read_arrays(path) if path.is_file() else {}


def read_run(directory: Path) -> Run:
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; hand in the run directories that train, diagnose or plan wrote to")
    training = training_files(directory)
    config = _if_there(training / CONFIG, _yaml)
    diagnosis = _if_there(diagnosis_file(directory, "paper"), _json)
    ordering = _if_there(diagnosis_file(directory, "ordering"), _json)
    result = _if_there(training / RESULT, _json)
    found = {protocol: _if_there(planning_folder(directory, protocol) / RESULT, _json) for protocol in PLAN_PROTOCOLS}
    plans = {protocol: record for protocol, record in found.items() if record is not None}
    train = _if_there(training / TRAIN_TABLE, _csv)
    validation = _if_there(training / VALIDATION_TABLE, _csv)
    if not plans and all(record is None for record in (diagnosis, ordering, train, validation, result)):
        raise UserError(
            f"{directory} holds no records: train.csv, diagnostics/paper.json or planning/<protocol>/result.json was expected; "
            "run train, diagnose or plan on it first"
        )
    records = [record for record in (diagnosis, ordering, *plans.values()) if record is not None]
    return Run(
        directory=directory,
        config=config,
        train=train,
        validation=validation,
        result=result,
        diagnosis=diagnosis,
        ordering=ordering,
        points=_points(diagnosis_file(directory, "paper").with_suffix(".npz"), diagnosis),
        plans=plans,
        hashes=_hashes(directory),
        **_identity(directory, config, records),
    )


def _identity(directory: Path, config: Record | None, records: list[Record]) -> dict[str, Any]:
    """Who the model is: what its evaluations say, else what its configuration says."""
    model: Record = next((record["model"] for record in records if isinstance(record.get("model"), Mapping)), {})
    settings = config or next((found for record in records if (found := _embedded_config(record))), {})
    trained = {"stop_gradient": (settings.get("pred") or {}).get("stop_gradient"), "training_seed": settings.get("seed")}
    said = trained | {key: value for key, value in model.items() if value is not None}
    return {
        "variant": str(model.get("variant") or settings.get("variant") or model.get("name") or directory.resolve().name),
        "stop_gradient": said["stop_gradient"] is not False,
        "task": model.get("task") or settings.get("task"),
        "preset": settings.get("preset") or model.get("preset"),
        "seed": said["training_seed"],
    }


def _embedded_config(record: Record) -> Record | None:
    return (record.get("provenance") or {}).get("config")


def _points(path: Path, diagnosis: Record | None) -> Mapping[str, np.ndarray]:
    if diagnosis is None or not path.is_file():
        return {}
    prefix = f"seed{(diagnosis.get('seeds') or [0])[0]}/"
    return {key.removeprefix(prefix): value for key, value in read_arrays(path, prefix).items()}


def read_arrays(path: Path, prefix: str = "") -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files if key.startswith(prefix)}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a whole array file ({error}); evaluate that model again") from error


def _if_there(path: Path, read: Callable[[Path], Any]) -> Any:
    if not path.is_file():
        return None
    try:
        return read(path)
    except (ValueError, yaml.YAMLError, csv.Error) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} cannot be read ({reason}); it may be cut short: make that record again") from error


def _json(path: Path) -> Record:
    return _mapping(json.loads(path.read_text()))


def _yaml(path: Path) -> Record:
    return _mapping(yaml.safe_load(path.read_text()))


def _mapping(value: Any) -> Record:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected an object with keys, found {type(value).__name__}")
    return value


def _csv(path: Path) -> Columns | None:
    """Columns of numbers, NaN where a cell is empty; None for a table without rows."""
    with path.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    if not rows:
        return None
    return {key: tuple(float(row[key]) if row[key] else math.nan for row in rows) for key in rows[0] if key}


def _hashes(directory: Path) -> dict[str, str]:
    wanted = [directory / name for name in TRAINING_FILES]
    wanted += [path for kind in KINDS for path in sorted((directory / DIAGNOSTICS).glob(kind))]
    wanted += [path for kind in KINDS for path in sorted((directory / PLANNING).glob(f"*/{kind}"))]
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in wanted if path.is_file()
    }
