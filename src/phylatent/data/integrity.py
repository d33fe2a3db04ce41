"""A data set read from its first byte to its last, piece by piece: what `verify` has done in processes of its own."""

# R rows

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phylatent.data.formats import Store
from phylatent.data.formats.prepared import ABOUT, FRAMES, PreparedStore, read_about
from phylatent.errors import UserError
from phylatent.files import stored_bytes
from phylatent.reading import damaged

PIECE_BYTES = 8 * 2**20
"""Of a column as it is in memory: what is read at once."""
CREDIBLE = 2000
"""A file holds at most this many times its size, or its header lies: Blosc gets to 255."""
EARLIER_CHUNK_BYTES = 64 * 2**20
"""Of the source's frames: what a checksum was of in prepared sets that do not say so."""
RECORD_DIGEST = "sha256_of_record"


@dataclass(frozen=True)
class Piece:
    """Rows [first, last) of a column, and how many bytes they are in memory."""

    column: str
    first: int
    last: int
    size: int


def pieces(store: Store) -> Iterator[Piece]:
    """All of a data set, small columns first."""
    for name in sorted(store.columns, key=lambda name: (name == "pixels", name)):
        (rows, *rest), dtype = store.columns[name]
        row_bytes = max(1, math.prod(rest)) * dtype.itemsize
        step = max(1, PIECE_BYTES // row_bytes)
        if name == "pixels" and isinstance(store, PreparedStore):
            step = read_about(store.path).get("chunk_rows", rows)
        for first in range(0, rows, step):
            last = min(first + step, rows)
            yield Piece(name, first, last, (last - first) * row_bytes)


def total_bytes(store: Store) -> int:
    """What reading all of it comes to; an error for a file that says to hold more than it can."""
    total = sum(math.prod(shape) * dtype.itemsize for shape, dtype in store.columns.values())
    stored = stored_bytes(store.path)
    if total > CREDIBLE * stored + 2**30:
        wrong = f"it says to hold {total / 2**30:,.0f} GiB, in a file of {stored / 2**20:,.1f} MiB"
        raise damaged(store.path, wrong, "collect or download it again")
    return total


def check_piece(store: Store, piece: Piece) -> None:
    """An error that names the first row that cannot be read, or is not what was written."""
    if piece.column == "pixels" and isinstance(store, PreparedStore):
        _check_prepared(store.path, piece)
        return
    try:
        store.read(piece.column, piece.first, piece.last)
    except UserError:
        for row in range(piece.first, piece.last):
            store.read(piece.column, row, row + 1)
        raise


def record_digest(record: Mapping[str, Any]) -> str:
    """Of what a prepared set's record says."""
    said = {name: value for name, value in record.items() if name != RECORD_DIGEST}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def check_record(path: Path) -> None:
    """An error if the record of a prepared set is not the one that was written; earlier versions wrote no digest of it."""
    about = read_about(path)
    if RECORD_DIGEST in about and about[RECORD_DIGEST] != record_digest(about):
        raise damaged(path / ABOUT, "it does not match its own checksum", "prepare the set again")


def _check_prepared(path: Path, piece: Piece) -> None:
    about = read_about(path)
    rows = about.get("chunk_rows") or max(1, EARLIER_CHUNK_BYTES // math.prod(about["plan"]["source_frames"]))
    row_bytes = piece.size // (piece.last - piece.first)
    found = []
    with (path / FRAMES).open("rb") as handle:
        handle.seek(piece.first * row_bytes)
        for first in range(piece.first, piece.last, rows):
            found.append(_sha256(handle, (min(first + rows, piece.last) - first) * row_bytes))
    if "sha256" in about:
        equal = found == about["sha256"][piece.first // rows :][: len(found)]
    else:
        equal = hashlib.sha256("".join(found).encode()).hexdigest() == about["sha256_of_chunks"]
    if not equal:
        raise UserError(
            f"the frames in rows {piece.first} to {piece.last - 1} of {path} do not match their SHA-256 in {ABOUT}: "
            f"the set is damaged; delete it and prepare it again"
        )


def _sha256(handle: Any, size: int) -> str:
    digest = hashlib.sha256()
    while size and (block := handle.read(min(size, PIECE_BYTES))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()
