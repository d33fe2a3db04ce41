"""Changes of HDF5 files, opened and written anew: columns, attributes, single rows."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import h5py
import hdf5plugin  # noqa: F401  registers the filters of our data files
import numpy as np
import structures
from arrays import HOW, shaped

DO = ("column", "column", "attribute", "attribute", "without column", "without attribute", "group", "outside", "vast", "rows")
LONGEST = 30_000
"""Characters of an attribute: HDF5 has no room for more than 64 kB."""
NUMBERS = (-1, 0, 1e9, -1e9, float("nan"), float("inf"))
VALUES = tuple(value for value in structures.VALUES if isinstance(value, (str, int, float)) and value != "\ud800")


def choose(rng: Random, path: Path) -> dict[str, Any]:
    with h5py.File(path) as file:
        columns, attributes = list(file), list(file.attrs)
    do = rng.choice(DO)
    change: dict[str, Any] = {"do": do, "name": rng.choice(columns), "how": rng.choice(HOW)}
    if do == "rows":
        change |= {"at": rng.randrange(10**6), "value": rng.choice(NUMBERS)}
    if "attribute" in do:
        if not attributes:
            return change | {"do": "column"}
        change["name"] = rng.choice(attributes)
        change["value"] = rng.choice(VALUES)
    return change


def apply(change: dict[str, Any], path: Path) -> None:
    do, name = change["do"], change["name"]
    with h5py.File(path, "r+") as file:
        if do == "attribute":
            file.attrs[name] = _attribute(change["value"])
        elif do == "without attribute":
            file.attrs.pop(name, None)
        elif name not in file:
            return
        elif do == "rows":
            column = file[name]
            if len(column):
                with np.errstate(all="ignore"):
                    column[change["at"] % len(column)] = np.array(change["value"]).astype(column.dtype)
        else:
            values = file[name][:]
            del file[name]
            if do == "column":
                file[name] = shaped(values, change["how"])
            elif do == "group":
                file.create_group(name)["inner"] = values
            elif do == "outside":
                file[name] = h5py.ExternalLink("/etc/passwd", "/x")
            elif do == "vast":
                file.create_dataset(name, shape=(2**40, *values.shape[1:]), dtype=values.dtype, chunks=(1, *values.shape[1:]))


def _attribute(value: Any) -> Any:
    if value == structures.DEEP:
        return "[" * LONGEST
    if isinstance(value, int) and abs(value) > 2**62:
        return str(value)
    return value[:LONGEST] if isinstance(value, str) else value
