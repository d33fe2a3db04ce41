"""File formats, one module each. A module here that declares a `STORE` is one; `open_store` finds it by the file's suffix."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np


class Store(Protocol):
    """What a format must offer: columns, rows of them, frames. It pickles, and opens its own handles in every process."""

    suffixes: ClassVar[tuple[str, ...]]
    is_directory: ClassVar[bool]
    """Whether such a "file" is a directory."""
    path: Path
    columns: dict[str, tuple[tuple[int, ...], np.dtype]]
    """Name → shape and type."""
    attributes: dict[str, Any]
    """What the file says about itself."""
    checksums: frozenset[str]
    """The columns whose bytes are guarded by checksums."""
    at_hand: bool
    """Whether reading a frame is no more than copying it, also from several threads at once."""

    def __init__(self, path: Path) -> None: ...

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray: ...

    def frames(self, rows: np.ndarray) -> np.ndarray: ...


@cache
def stores() -> dict[str, type[Store]]:
    """Suffix → the format of files that have it."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    found: list[type[Store]] = [module.STORE for module in modules if hasattr(module, "STORE")]
    return {suffix: store for store in found for suffix in store.suffixes}


def is_data(path: Path) -> bool:
    """Whether a path is one data set: a file, or a directory of a format whose data sets are directories."""
    store = stores().get(path.suffix)
    return path.is_file() or (path.is_dir() and store is not None and store.is_directory)


def open_store(path: Path) -> Store:
    """The data set at a path; what has no known suffix, or the wrong kind of one, is taken for HDF5."""
    store = stores().get(path.suffix)
    if store is None or store.is_directory != path.is_dir():
        store = stores()[".h5"]
    return store(path)
