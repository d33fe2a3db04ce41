"""Frames of an HDF5 dataset past most of HDF5, where the layout allows it: a quarter to half of the time a frame.

HDF5 sets up a selection, a chunk cache and a filter pipeline for every frame. A frame's bytes are found without them when
frames are not split over chunks, and when they are either stored as they are or compressed with Blosc alone. Of a chunk of
several frames only the blocks of one are decompressed. Where chunks carry a Fletcher-32 behind their bytes, as in our own
files, it is checked. Whatever is not like that, the caller asks HDF5 for.
"""

# N frames, C frames of a chunk

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import h5py
import numpy as np

from phylatent.data.formats.checksums import FLETCHER, FLETCHER_BYTES, filters, fletcher

BLOSC = 32001
"""The number by which HDF5 knows Blosc."""
TYPE_SIZE = 3
"""Where a Blosc buffer says how large its items are."""
Decode = Callable[[bytes, int, int], bool]
"""(compressed chunk, frame of the chunk, address to write it to) → whether that worked."""


class FrameReader:
    """Reads frames of one open dataset. Make one with `frame_reader`."""

    def __init__(self, dataset: h5py.Dataset, decode: Decode | None, *, checked: bool = False) -> None:
        self._id = dataset.id
        self._per_chunk: int = dataset.chunks[0]
        self._rest = (0,) * (dataset.ndim - 1)
        self._decode = decode
        self._unchecked = bytearray(b"\1") * -(-len(dataset) // self._per_chunk) if checked else None
        """Whether a chunk's checksum is still to be looked at: once in a process is enough."""
        self._held: tuple[int, tuple[int, bytes]] | None = None
        """The chunk that was read last, as it is stored: the next frame is often in it."""

    def read(self, row: int, frame: np.ndarray) -> bool:
        """Fill `frame`, and say whether that worked; where it did not, its content means nothing."""
        try:
            if self._decode is None:
                self._id.read_direct_chunk((row, *self._rest), out=frame.reshape(-1).view(np.uint8))
                return True
            uncompressed, stored = self._chunk(row // self._per_chunk)
            return not uncompressed and self._decode(stored, row % self._per_chunk, frame.ctypes.data)
        except (OSError, ValueError, RuntimeError):  # HDF5 will say what is wrong, if anything is
            return False

    def _chunk(self, chunk: int) -> tuple[int, bytes]:
        if self._held is None or self._held[0] != chunk:
            skipped, stored = self._id.read_direct_chunk((chunk * self._per_chunk, *self._rest))
            if self._unchecked is not None:
                if self._unchecked[chunk]:
                    _check(stored)
                    self._unchecked[chunk] = 0
                stored = stored[:-FLETCHER_BYTES]
            self._held = chunk, (skipped, stored)
        return self._held[1]


def frame_reader(dataset: h5py.Dataset) -> FrameReader | None:
    """None where frames can only be read the ordinary way."""
    if dataset.chunks is None or dataset.chunks[1:] != dataset.shape[1:] or dataset.dtype.hasobject:
        return None
    applied = filters(dataset)
    if not applied and dataset.chunks[0] == 1:
        return FrameReader(dataset, None)
    decode = _blosc_decoder(math.prod(dataset.shape[1:]) * dataset.dtype.itemsize, dataset.chunks[0])
    if decode is None or applied not in ([BLOSC], [BLOSC, FLETCHER]):
        return None
    return FrameReader(dataset, decode, checked=FLETCHER in applied)


def _check(stored: bytes) -> None:
    """An error if the bytes are not those that were written."""
    size, checksum = len(stored) - FLETCHER_BYTES, fletcher()
    if checksum is not None and checksum(stored, size) != int.from_bytes(stored[size:], "little"):
        raise ValueError("the checksum of a chunk does not match")


def contiguous_offset(dataset: h5py.Dataset) -> int | None:
    """Where in its file a dataset begins that is stored in one piece; None for any other."""
    return None if dataset.chunks is not None or dataset.external or dataset.is_virtual else dataset.id.get_offset()


def _blosc_decoder(frame_bytes: int, per_chunk: int) -> Decode | None:
    library = _blosc()
    if library is None:
        return None

    def decode(stored: bytes, position: int, address: int) -> bool:
        held = ctypes.c_size_t()
        if library.blosc_cbuffer_validate(stored, len(stored), ctypes.byref(held)) or held.value != per_chunk * frame_bytes:
            return False
        if per_chunk == 1:
            return library.blosc_decompress_ctx(stored, address, frame_bytes, 1) == frame_bytes
        size = stored[TYPE_SIZE]
        if not size or frame_bytes % size:
            return False
        items = frame_bytes // size
        return library.blosc_getitem(stored, position * items, items, address) == frame_bytes

    return decode


@cache
def _blosc() -> ctypes.CDLL | None:
    """The library that hdf5plugin reads Blosc with; None where it keeps its functions to itself."""
    try:
        import hdf5plugin

        library = ctypes.CDLL(str(Path(hdf5plugin.get_config().registered_filters["blosc"])))
        for name, arguments in (
            ("blosc_cbuffer_validate", (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)),
            ("blosc_decompress_ctx", (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)),
            ("blosc_getitem", (ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)),
        ):
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, ctypes.c_int
    except (ImportError, AttributeError, KeyError, OSError):
        return None
    return library
