"""Checksums in HDF5 files of our own, so that a byte that a disk or a network changed is found.

Every chunk of a column, and every frame as it is compressed, carries HDF5's Fletcher-32. HDF5's own structures have checksums
of theirs, apart from the texts of attributes: for these there is a digest of each attribute, which is an attribute, too.
"""

# N bytes

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from phylatent.errors import UserError

CHUNK_BYTES = 2**19
"""Of a column. All of it is read 1.7 to 2.2 times as long as without checksums, one row of it about 1.3 times as long."""
SEAL = "checksums"
"""The attribute that holds the digests of the others."""
FLETCHER = h5py.h5z.FILTER_FLETCHER32
FLETCHER_BYTES = 4
Sum = Callable[[bytes, int], int]
"""(bytes, N) → Fletcher-32 of the first N of them."""


def column_settings(shape: tuple[int, ...], dtype: np.dtype) -> dict[str, Any]:
    """For `create_dataset`: a checksum for each chunk, and chunks of one size that leave no room unused."""
    size = int(np.prod(shape)) * dtype.itemsize
    if not size:
        return {}
    chunks = -(-size // CHUNK_BYTES)
    return {"chunks": (-(-shape[0] // chunks), *shape[1:]), "fletcher32": True}


def filters(dataset: h5py.Dataset) -> list[int]:
    """The numbers of a dataset's filters, in the order in which they are applied when it is written."""
    settings = dataset.id.get_create_plist()
    return [settings.get_filter(position)[0] for position in range(settings.get_nfilters())]


def seal(file: h5py.File) -> None:
    """Digests of what the file says about itself, written into it. Attributes that are added later are not covered."""
    digests = {name: _digest(value) for name, value in file.attrs.items() if name != SEAL}
    file.attrs[SEAL] = json.dumps(digests, separators=(",", ":"))


def unsealed(path: Path, attributes: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The attributes without the digests, and whether there were any; an error if one of them does not match."""
    rest = {name: value for name, value in attributes.items() if name != SEAL}
    if SEAL not in attributes:
        return rest, False
    try:
        digests = dict(json.loads(attributes[SEAL]))
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(path, SEAL, "it is not a list of digests") from error
    for name, digest in digests.items():
        if name not in rest:
            raise _damaged(path, name, "it is not there")
        if _digest(rest[name]) != digest:
            raise _damaged(path, name, "it does not match its checksum")
    return rest, True


def _digest(value: Any) -> str:
    text = json.dumps([str(np.asarray(value).dtype.kind), np.asarray(value).tolist()], default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _damaged(path: Path, name: str, wrong: str) -> UserError:
    return UserError(
        f"attribute {name!r} of {path} is damaged: {wrong}; collect or download it again, or delete its attribute {SEAL!r} "
        f"if you changed it yourself"
    )


@cache
def fletcher() -> Sum | None:
    """HDF5's own function; None where its library keeps that to itself. Frames are then checked by HDF5 only."""
    try:
        function = ctypes.CDLL(h5py.h5z.__file__).H5_checksum_fletcher32
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint32
    known = b"phylatent"
    return function if function(known, len(known)) == _plain_fletcher(known) else None


def _plain_fletcher(content: bytes) -> int:
    """By the definition: two sums of 16-bit words, the second one of the first one's values; an odd byte is a high one."""
    first = second = 0
    for at in range(0, len(content), 2):
        first = (first + int.from_bytes(content[at : at + 2].ljust(2, b"\0"), "big")) % 65535
        second = (second + first) % 65535
    return second << 16 | first
