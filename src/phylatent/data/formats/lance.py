"""One Lance table as stable-worldmodel writes it: a row per step, frames as encoded images, episodes told by `episode_idx`."""

# N frames, H height, W width

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from phylatent.errors import UserError
from phylatent.extras import need

AGAIN = "download or write it again"
_first_pid: int | None = None
"""The process in which Lance was first used: its threads do not follow into a fork, where it would wait for them for ever."""


class LanceStore:
    """Raw columns of a table, at the version it had when it was opened. Every process opens its own handle."""

    suffixes: ClassVar[tuple[str, ...]] = (".lance",)
    is_directory: ClassVar[bool] = True
    at_hand = False
    checksums: frozenset[str] = frozenset()

    def __init__(self, path: Path) -> None:
        need("lance", f"reading {path}")
        self.path = path
        self.attributes: dict[str, Any] = {}
        self._version: int | None = None
        self._table: Any = None
        table = self._handle()
        self._version = table.version
        rows = table.count_rows()
        self.columns: dict[str, tuple[tuple[int, ...], np.dtype]] = {
            field.name: _described(field.type, rows) for field in table.schema
        }
        self._encoded = "pixels" in table.schema.names and "binary" in str(table.schema.field("pixels").type)
        if rows and self._encoded:
            self.columns["pixels"] = ((rows, *self._decode(self._blobs(np.zeros(1, np.int64))[0], 0).shape), np.dtype(np.uint8))

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows [start, stop) of a column; all of it by default."""
        first, last, _ = slice(start, stop).indices(self.columns[name][0][0])
        if name == "pixels" and self._encoded:
            return self.frames(np.arange(first, last))
        return self._column(name, first, {"offset": first, "limit": max(0, last - first)})

    def frames(self, rows: np.ndarray) -> np.ndarray:
        """Frames of the given rows, in their order, which may repeat."""
        shape, dtype = self.columns["pixels"]
        distinct, back = np.unique(rows, return_inverse=True)
        frames = np.empty((distinct.size, *shape[1:]), dtype=dtype)
        for position, (row, blob) in enumerate(zip(distinct.tolist(), self._blobs(distinct), strict=True)):
            frame = self._decode(blob, row)
            if frame.shape != shape[1:]:
                raise UserError(
                    f"the frame in row {row} of {self.path} is {list(frame.shape)}, but row 0 has {list(shape[1:])}; "
                    f"frames must have one size: {AGAIN}"
                )
            frames[position] = frame
        return frames[back]

    def _blobs(self, rows: np.ndarray) -> list[bytes | None]:
        try:
            return self._handle().take(rows.tolist(), columns=["pixels"]).column("pixels").to_pylist()
        except (OSError, ValueError, RuntimeError) as error:
            raise self._damaged("pixels", int(rows[0]), error) from error

    def _decode(self, blob: bytes | None, row: int) -> np.ndarray:
        import cv2

        # OpenCV's pixels are Pillow's, in half the time: 0.26 ms a frame of 224 px.
        image = cv2.imdecode(np.frombuffer(blob, dtype=np.uint8), cv2.IMREAD_COLOR) if blob else None
        if image is None:
            raise UserError(f"the frame in row {row} of {self.path} is not an image that can be decoded; {AGAIN}")
        return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)

    def _column(self, name: str, row: int, where: dict[str, int]) -> np.ndarray:
        shape, dtype = self.columns[name]
        if not where["limit"]:
            return np.empty((0, *shape[1:]), dtype=dtype)
        try:
            column = self._handle().to_table(columns=[name], **where).column(name).combine_chunks()
        except (OSError, ValueError, RuntimeError) as error:
            raise self._damaged(name, row, error) from error
        if len(shape) == 1 or dtype.kind == "O":
            return column.to_numpy(zero_copy_only=False)
        unknown = column.is_null().to_numpy(zero_copy_only=False)
        if not unknown.any():
            return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, shape[1])
        values = np.full((len(column), shape[1]), np.nan)
        values[~unknown] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, shape[1])
        return values

    def _handle(self) -> Any:
        global _first_pid
        if _first_pid not in (None, os.getpid()):
            raise UserError(f"{self.path} is read in a forked process, which Lance cannot do; start processes with 'spawn'")
        if self._table is None:
            import lance

            _first_pid = os.getpid()
            try:
                self._table = lance.dataset(str(self.path), version=self._version)
            except (OSError, ValueError, RuntimeError) as error:
                raise UserError(
                    f"{self.path} is not a Lance table, or not all of one ({_first_line(error)}); {AGAIN}"
                ) from error
        return self._table

    def _damaged(self, column: str, row: int, error: Exception) -> UserError:
        return UserError(
            f"column {column!r} of {self.path} cannot be read at row {row}: the table is damaged, or files of it are missing; "
            f"{AGAIN} ({_first_line(error)})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}


def _described(kind: Any, rows: int) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an Arrow column; what is not a number, or not the same count of them a row, is an object."""
    import pyarrow

    width: tuple[int, ...] = ()
    if pyarrow.types.is_fixed_size_list(kind):
        width, kind = (kind.list_size,), kind.value_type
    numeric = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)
    return (rows, *width), np.dtype(kind.to_pandas_dtype() if numeric else object)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


STORE = LanceStore
