"""What a command wrote, without the times: two directories are the same if these are."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401  registers the filters of our data files
import numpy as np
import torch

from phylatent.data.formats.checksums import SEAL

Contents = dict[str, Any]
"""Path → something that can be compared."""
TIMES = (
    "provenance",
    "seconds",
    "planning_seconds",
    "training_seconds",
    "starts",
    "peak_memory_gb",
    "workers",
    "created",
    "clips_per_second",
)
TIMES += ("command", "timing", "sha256_of_record")
"""Fields that differ from one run to the next."""
MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?([+-]\d\d:\d\d|Z)?)?( UTC)?")
PASSING = (".lock", "lock", "time.json")
"""Locks, and the count of starts."""


def contents(place: Path) -> Contents:
    """All files below a directory. Drawings for print hold the time they were made; their twins (.png) are compared."""
    return {
        str(path.relative_to(place)): content(path)
        for path in sorted(place.rglob("*"))
        if path.is_file()
        and path.name not in PASSING
        and not path.name.endswith(".lock")
        and path.suffix != ".pdf"
        and "tensorboard" not in path.parts
    }


def content(path: Path) -> Any:
    if path.suffix == ".json":
        return timeless(json.loads(path.read_text()))
    if path.suffix == ".csv":
        with path.open(newline="") as handle:
            return [timeless(row) for row in csv.DictReader(handle)]
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: _bits(arrays[name]) for name in arrays}
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            attributes = _plain(file.attrs)
            attributes[SEAL] = json.loads(attributes.get(SEAL, "{}"))  # one of them is that of the provenance
            return {name: _bits(column[:]) for name, column in file.items()} | {"attributes": timeless(attributes)}
    if path.suffix == ".ckpt":
        return {name: _bits(tensor.numpy()) for name, tensor in torch.load(path, weights_only=True)["state_dict"].items()}
    if path.suffix in (".html", ".md", ".yaml"):
        return MOMENT.sub("then", path.read_text())
    return hashlib.sha256(path.read_bytes()).hexdigest()


def timeless(value: Any) -> Any:
    """Without fields that tell how long something took, and when and by whom it was made."""
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in TIMES}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def differences(expected: Contents, found: Contents) -> list[str]:
    """In words, one for each file."""
    missing = [f"{name} is missing" for name in expected if name not in found]
    more = [f"{name} is left" for name in found if name not in expected]
    return missing + more + [f"{name} differs" for name in expected if name in found and found[name] != expected[name]]


def _bits(array: np.ndarray) -> tuple[str, tuple[int, ...], str]:
    return str(array.dtype), array.shape, hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _plain(attributes: Any) -> dict[str, Any]:
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in attributes.items()}
