"""One HDF5 file in the published LeWM layout: a dataset per column, rows of all episodes one after another."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np

from phylatent.data.formats.checksums import FLETCHER, filters, unsealed
from phylatent.data.formats.chunks import FrameReader, contiguous_offset, frame_reader
from phylatent.data.formats.mapped import MappedFrames
from phylatent.errors import UserError
from phylatent.files import atomic, why
from phylatent.reading import first_line

with contextlib.suppress(ImportError):  # without it plain files are still read, and others say what is missing
    import hdf5plugin  # noqa: F401  registers Blosc, which published frames are compressed with

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# Chunk indices of HDF5 1.10: they find one frame among millions directly. Every h5py in use reads them.
LIBVER = "v110"
UNREADABLE = (OSError, KeyError, RuntimeError, ValueError, TypeError, MemoryError, OverflowError)
"""What h5py raises over files whose structure is damaged."""


class HDF5Store:
    """Raw columns of a file. HDF5 handles survive neither fork nor pickling, so every process opens its own."""

    suffixes: ClassVar[tuple[str, ...]] = (".h5", ".hdf5")
    is_directory: ClassVar[bool] = False
    at_hand = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: h5py.File | None = None
        self._pid = 0
        self._reader: FrameReader | None = None
        self._mapped: MappedFrames | None = None
        self._cache_bytes = 2**20
        with _open(path) as file:
            try:
                datasets = _datasets(file)
                self.columns: dict[str, tuple[tuple[int, ...], np.dtype]] = {
                    name: (item.shape, item.dtype) for name, item in datasets.items()
                }
                self.checksums = frozenset(name for name, item in datasets.items() if FLETCHER in filters(item))
                attributes = dict(file.attrs)
                chunks = datasets["pixels"].chunks if "pixels" in datasets else None
            except UNREADABLE as error:
                found = f"{path} is damaged: its columns cannot be listed ({_first_line(error)})"
                raise UserError(f"{found}; collect or download it again") from error
        self.attributes: dict[str, Any]
        self.attributes, self.sealed = unsealed(path, attributes)
        if chunks is not None:
            # A chunk that does not fit the cache is decompressed again for every frame in it.
            self._cache_bytes = max(self._cache_bytes, 4 * int(np.prod(chunks)) * self.columns["pixels"][1].itemsize)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows [start, stop) of a column; all of it by default."""
        try:
            return np.asarray(self._handle()[name][start:stop])
        except UNREADABLE as error:
            raise self._damaged(name, start, error) from error

    def frames(self, rows: np.ndarray) -> np.ndarray:
        """Frames [N, …] of the given rows, in their order, which may repeat."""
        pixels = self._handle()["pixels"]
        if self._mapped is not None:
            return self._mapped.take(rows)
        frames = np.empty((rows.size, *pixels.shape[1:]), dtype=pixels.dtype)
        # In the file's own order, since neighbours may share a chunk; row by row, since h5py is slow at lists of rows.
        for position in np.argsort(rows, kind="stable").tolist():
            row = int(rows[position])
            if self._reader is not None and self._reader.read(row, frames[position]):
                continue
            try:
                frames[position] = pixels[row]
            except UNREADABLE as error:
                raise self._damaged("pixels", row, error) from error
        return frames

    def _handle(self) -> h5py.File:
        if self._file is None or self._pid != os.getpid():
            self._file = _open(self.path, rdcc_nbytes=self._cache_bytes)
            self._pid = os.getpid()
            pixels = self._file["pixels"] if "pixels" in self.columns else None
            self._reader = None if pixels is None else frame_reader(pixels)
            self._mapped = None if pixels is None else _mapped(self.path, pixels)
        return self._file

    def _damaged(self, column: str, row: int, error: Exception) -> UserError:
        if isinstance(error, OSError) and (missing := _missing_filter(self._handle()[column])):
            return UserError(
                f"column {column!r} of {self.path} is compressed with HDF5 filter {missing}, which is not available here; "
                f"pip install --upgrade hdf5plugin, or write the file with another filter"
            )
        return UserError(
            f"column {column!r} of {self.path} cannot be read at row {row}: the file is damaged; "
            f"collect or download it again ({_first_line(error)})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None, "_reader": None, "_mapped": None}


class Sink(io.FileIO):
    """A file that seems to accept whatever is written. HDF5 2.0 crashes the process over a write that fails (a full disk), so
    it is not told: the bytes are dropped, and `check` raises what happened."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest and self.failure is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.failure = error
        return size

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[tuple[h5py.File, Sink]]:
    """An HDF5 file to fill. It takes its name once it is whole; call the sink's `check` now and then to fail early."""
    with atomic(path) as temporary, Sink(temporary, "w+") as sink:
        with h5py.File(sink, "w", libver=LIBVER) as file:
            yield file, sink
        sink.check()


def _open(path: Path, **settings: Any) -> h5py.File:
    if not h5py.is_hdf5(path):
        try:
            with path.open("rb") as handle:
                start = handle.read(len(ZSTD_MAGIC))
        except OSError as error:
            raise UserError(f"{path} cannot be read: {why(error)}; check data=") from error
        if start == ZSTD_MAGIC:
            raise UserError(f"{path} is a zstd archive; unpack it first: `phylatent import {path}`")
        found = "empty" if not start else "not an HDF5 file, or one without its beginning"
        raise UserError(f"{path} is {found}; data= expects an HDF5 file as `phylatent collect` writes it")
    try:
        # Through a Python file: nothing is locked, which many cluster file systems cannot do, and stable-worldmodel can have
        # the file open in the same process. (In its SWMR mode a damaged file would be read again and again, for minutes.)
        return h5py.File(path.open("rb", buffering=0), "r", **settings)
    except OSError as error:
        if "truncated" in str(error):
            raise UserError(
                f"{path} is cut short: it is smaller than its own header says; collect or download it again "
                f"({_first_line(error)})"
            ) from error
        raise UserError(
            f"{path} cannot be opened: it is damaged, or was not closed by the program that wrote it; "
            f"collect or download it again ({_first_line(error)})"
        ) from error


def _mapped(path: Path, pixels: h5py.Dataset) -> MappedFrames | None:
    """All frames as a memory map, where they are stored in one piece and as they are."""
    offset = contiguous_offset(pixels)
    if offset is None or not pixels.size or offset + pixels.nbytes > path.stat().st_size:
        return None
    return MappedFrames(path, pixels.shape, pixels.dtype, offset)


def _datasets(group: h5py.Group, prefix: str = "", depth: int = 2) -> dict[str, h5py.Dataset]:
    """Datasets with rows, by their path: a column whose name has a slash is a dataset in a group."""
    found: dict[str, h5py.Dataset] = {}
    for name in group:
        # h5py passes over what a damaged link leads to. One into nowhere that the writer left there is no column.
        item = group[name] if isinstance(group.get(name, getlink=True), h5py.HardLink) else group.get(name)
        if isinstance(item, h5py.Dataset):
            found |= {prefix + name: item} if item.shape else {}
        elif isinstance(item, h5py.Group) and depth > 1:
            found |= _datasets(item, f"{prefix}{name}/", depth - 1)
    return found


def _missing_filter(dataset: h5py.Dataset) -> str | None:
    settings = dataset.id.get_create_plist()
    filters = (settings.get_filter(position) for position in range(settings.get_nfilters()))
    missing = [(code, name) for code, _, _, name in filters if not h5py.h5z.filter_avail(code)]
    return f"{missing[0][0]} ({missing[0][1].decode() or 'without a name'})" if missing else None


def _first_line(error: BaseException) -> str:
    """It may quote names out of the file, which need not be text."""
    return first_line(error).encode(errors="backslashreplace").decode()


STORE = HDF5Store
