"""A directory `*.frames` as `phylatent prepare` writes it: every frame in one raw file, the small columns beside it.

frames.bin      uint8 [R, H, W, 3], row after row: read through a memory map, so that a frame costs one copy
columns.h5      every other column, and what the source said about itself
prepared.json   what it was made from, its shape and checksum
"""

# N frames, R rows, H height, W width

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from phylatent.data.formats.hdf5 import HDF5Store
from phylatent.data.formats.mapped import MappedFrames
from phylatent.errors import UserError
from phylatent.reading import read_json
from phylatent.reading.shapes import is_whole, shown

FRAMES, COLUMNS, ABOUT = "frames.bin", "columns.h5", "prepared.json"
VERSION = 1
AGAIN = "delete it and prepare it again"


class PreparedStore:
    """Frames as a memory map, which every process opens for itself; columns as in any HDF5 file."""

    suffixes: ClassVar[tuple[str, ...]] = (".frames",)
    is_directory: ClassVar[bool] = True
    at_hand = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self._shape = _stated_shape(path)
        self._mapped: MappedFrames | None = None
        self._check_size()
        if not (path / COLUMNS).is_file():
            raise UserError(f"{path} is damaged: it has no {COLUMNS}; {AGAIN}")
        self._columns = HDF5Store(path / COLUMNS)
        self.attributes: dict[str, Any] = self._columns.attributes
        self.sealed = self._columns.sealed
        self.checksums = self._columns.checksums | {"pixels"}
        self.columns = {**self._columns.columns, "pixels": (self._shape, np.dtype(np.uint8))}

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows [start, stop) of a column; all of it by default."""
        if name == "pixels":
            return self.frames(np.arange(*slice(start, stop).indices(self._shape[0])))
        return self._columns.read(name, start, stop)

    def frames(self, rows: np.ndarray) -> np.ndarray:
        """uint8 [N, H, W, 3] of the given rows, in their order, which may repeat."""
        if self._mapped is None:
            self._check_size()  # reading beyond the end of a mapped file would end the process
            self._mapped = MappedFrames(self.path / FRAMES, self._shape, np.dtype(np.uint8))
        return self._mapped.take(rows)

    def _check_size(self) -> None:
        expected = math.prod(self._shape)
        try:
            found = os.stat(self.path / FRAMES).st_size
        except OSError as error:
            raise UserError(f"{self.path} is damaged: it has no {FRAMES} ({error.strerror}); {AGAIN}") from error
        if found != expected:
            raise UserError(
                f"{self.path} is damaged: its {FRAMES} has {found} bytes, but {self._shape[0]} frames of "
                f"{self._shape[1]} × {self._shape[2]} are {expected}; {AGAIN}"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": None}


def read_about(path: Path) -> dict[str, Any]:
    """`prepared.json` of a prepared set."""
    if not (path / ABOUT).is_file():
        raise UserError(f"{path} is not a prepared data set, or not all of one: it has no readable {ABOUT}; {AGAIN}")
    about = read_json(path / ABOUT, again=f"{path} is not a prepared data set, or not all of one: {AGAIN}")
    if about.get("version") != VERSION or isinstance(about["version"], bool):
        found = shown(about.get("version"))
        raise UserError(f"{path} is a prepared data set of version {found}; this phylatent reads version {VERSION}; {AGAIN}")
    return about


def _stated_shape(path: Path) -> tuple[int, int, int, int]:
    shape = read_about(path).get("shape")
    if not isinstance(shape, list) or len(shape) != 4 or not all(is_whole(n, 1) for n in shape) or shape[3] != 3:
        raise UserError(f"{path} is damaged: its {ABOUT} says that frames have shape {str(shape)[:60]}; {AGAIN}")
    return shape[0], shape[1], shape[2], 3


STORE = PreparedStore
