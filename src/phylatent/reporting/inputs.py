"""Reads what training, diagnostics and planning left in a directory. A record that is not there is None, never a guess."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from phylatent.diagnostics import DIAGNOSTICS as KNOWN
from phylatent.diagnostics.latent_map import LatentMap, read_map
from phylatent.errors import UserError
from phylatent.reading import check_shape, damaged, read_arrays, read_json, read_table, read_yaml
from phylatent.reading.shapes import COUNT, REAL, Maybe
from phylatent.records import TRAINED, read_diagnosis, read_planning, split_of
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
AGAIN = "make that record again, or report without it"
MEASURED = Maybe({"*": Maybe(REAL)})
TRAINING = {"steps?": Maybe(COUNT), "seconds?": Maybe(REAL), "validation?": MEASURED}
TRAINING |= {"validation_before_predictor_steps?": MEASURED}
FILMS = {"shown": "P", "start": "PHWC", "goal": "PHWC", "real": "PSHWC", "imagined": "PSHWC", "taken": "PS"}
FILMS |= {"imagined_known": "PS", "real_steps": "S"}
"""Array of `rollouts.npz` → its dimensions: pairs, steps, height, width, colours."""


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
    latents: LatentMap | None = None
    """The map of the latent space."""
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
        return _films(path) if path.is_file() else {}


def read_run(directory: Path) -> Run:
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; hand in the run directories that train, diagnose or plan wrote to")
    training = training_files(directory)
    config = _if_there(training / CONFIG, _config)
    diagnosis = _if_there(diagnosis_file(directory, "paper"), partial(read_diagnosis, again=AGAIN))
    ordering = _if_there(diagnosis_file(directory, "ordering"), partial(read_diagnosis, again=AGAIN))
    result = _if_there(training / RESULT, _result)
    read_plan = partial(read_planning, again=AGAIN)
    found = {protocol: _if_there(planning_folder(directory, protocol) / RESULT, read_plan) for protocol in PLAN_PROTOCOLS}
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
        latents=read_map(diagnosis_file(directory, "paper").with_suffix(".npz"), diagnosis or {}, again=AGAIN),
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
    found = read_arrays(path, again=AGAIN, prefix=prefix)
    arrays = {key.removeprefix(prefix): value for key, value in found.items()}
    for name in KNOWN:
        if not _can_be_shown(name, arrays, diagnosis):
            raise damaged(path, f"its arrays of {name} do not go together", AGAIN)
    return arrays


def _can_be_shown(name: str, arrays: Mapping[str, np.ndarray], diagnosis: Record) -> bool:
    """Whether a diagnostic makes points of its arrays: only it knows which shapes go together."""
    own = {key.removeprefix(f"{name}/"): values for key, values in arrays.items() if key.startswith(f"{name}/")}
    section = diagnosis.get(name)
    try:
        points = KNOWN[name].points(own, section if isinstance(section, Mapping) else {})
    except (LookupError, ValueError, TypeError, ArithmeticError, np.exceptions.AxisError):
        return False
    if points is None:
        return True
    shown = (points.x, points.y, points.z, points.failed)
    alike = all(values.ndim == 1 and values.shape == points.x.shape for values in shown)
    return alike and all(values.dtype.kind in "fiu" for values in shown[:3]) and points.failed.dtype.kind == "b"


def _films(path: Path) -> Mapping[str, np.ndarray]:
    """Frames of uint8, all of one size, as many of each as there are pairs and steps."""
    arrays, sizes = read_arrays(path, again=AGAIN), {"C": 3}
    for name, dimensions in FILMS.items():
        if name not in arrays:
            raise damaged(path, f"it has no {name}", AGAIN)
        found, frames = arrays[name], dimensions.endswith("C")
        kinds = "u" if frames else "b" if dimensions == "PS" else "iu"
        named = zip(dimensions, found.shape, strict=False)
        known = found.ndim == len(dimensions) and all(sizes.setdefault(name, size) == size for name, size in named)
        if not known or found.dtype.kind not in kinds or (frames and (found.dtype.itemsize != 1 or 0 in found.shape)):
            raise damaged(path, f"{name} is {found.dtype} {list(found.shape)}, which does not go with the rest", AGAIN)
    return arrays


def _if_there(path: Path, read: Callable[[Path], Any]) -> Any:
    return read(path) if path.is_file() else None


def _config(path: Path) -> Record:
    found = read_yaml(path, again=AGAIN)
    check_shape(path, found, TRAINED, again=AGAIN)
    return found


def _result(path: Path) -> Record:
    found = read_json(path, again=AGAIN)
    check_shape(path, found, TRAINING, again=AGAIN)
    return found


def _csv(path: Path) -> Columns | None:
    """Columns of numbers, NaN where a cell is empty; None for a table without rows."""
    rows = read_table(path, again=AGAIN, unfinished=True)
    return {key: tuple(float(row[key] or math.nan) for row in rows) for key in rows[0] if key} if rows else None


def _hashes(directory: Path) -> dict[str, str]:
    wanted = [directory / name for name in TRAINING_FILES]
    wanted += [path for kind in KINDS for path in sorted((directory / DIAGNOSTICS).glob(kind))]
    wanted += [path for kind in KINDS for path in sorted((directory / PLANNING).glob(f"*/{kind}"))]
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in wanted if path.is_file()
    }
