"""`unpack`: the HDF5 file out of a published archive (`.h5.zst`, `.tar.zst`, `.tar`), whole or not at all."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from phylatent.errors import UserError
from phylatent.extras import need
from phylatent.files import atomic, check_path, check_space, check_target, locked, remove_partials

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257
HEAD = 512
# A few bytes of zstd can hold 128 KiB: small steps bound the memory whatever the archive holds.
STEP = 8 * 2**10
COPY = 2**20
SUFFIXES = (".h5", ".hdf5")
Progress = Callable[[int, int], None]
"""(bytes of the archive read, bytes of the archive)"""


def unpack(
    source: Path, target: Path, progress: Progress | None = None, record: Callable[[Path], None] = lambda path: None
) -> Path:
    """Write the archive's data file to `target`, or into it where it is a directory, and return its path.

    Nothing is overwritten, and memory does not grow with the archive. `record` writes what goes with the file, just before it
    appears: a file that is there has its record.
    """
    source, target = Path(source), Path(target)
    check_path(source)
    check_path(target)
    if not source.is_file():
        raise UserError(f"there is no archive {source}; expected a .h5.zst or .tar.zst file")
    path = target / unpacked_name(source) if target.is_dir() else target
    _check_new(path)
    busy = f"another process is unpacking {path} right now; wait for it, or choose another place"
    with locked(path.parent, f".{path.name}.lock", busy=busy, elsewhere="choose another place", tidy=True):
        _check_new(path)
        remove_partials(path.parent, f"{path.name}.")
        _unpack(source, path, progress, record)
    return path


def _check_new(path: Path) -> None:
    if path.exists():
        raise UserError(f"{path} exists; nothing was overwritten: use it as it is, move it away, or choose another place")
    check_target(path)


def _unpack(source: Path, path: Path, progress: Progress | None, record: Callable[[Path], None]) -> None:
    with source.open("rb") as handle, atomic(path) as temporary, temporary.open("wb") as out:
        content = _Content(handle, source, progress)
        head = bytes(content.peek(HEAD)[:HEAD])
        if head.startswith(HDF5_MAGIC):
            check_space(path, content.announced)
            shutil.copyfileobj(content, out, COPY)
        elif head[TAR_MAGIC_AT:].startswith(TAR_MAGIC):
            _copy_member(content, source, path, out)
        else:
            raise UserError(
                f"{source} holds neither an HDF5 file nor a tar of one; data= reads .h5 files and .lance tables as they are"
            )
        record(path)


def unpacked_name(source: Path) -> str:
    """tworoom.tar.zst → tworoom.h5, pusht.h5.zst → pusht.h5"""
    name = source.name.removesuffix(".zst").removesuffix(".tar")
    return name if name.endswith(SUFFIXES) else f"{name}.h5"


class _Content(io.RawIOBase):
    """The archive without its zstd, as a stream that says so when it ends too early."""

    def __init__(self, handle: BinaryIO, source: Path, progress: Progress | None) -> None:
        self._handle, self._source, self._progress = handle, source, progress
        self._size, self._reported = source.stat().st_size, 0
        self._pieces = self._decompressed()
        self._rest = memoryview(b"")
        self.announced: int | None = None
        """Bytes it will hold, where the archive says so."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self.peek(1)[: len(buffer)]
        buffer[: len(piece)] = piece
        self._rest = self._rest[len(piece) :]
        return len(piece)

    def peek(self, size: int) -> memoryview:
        """What comes next: at least `size` bytes of it, unless it ends before."""
        while len(self._rest) < size and (piece := next(self._pieces, b"")):
            self._rest = memoryview(bytes(self._rest) + piece)
        return self._rest

    def _decompressed(self) -> Iterator[bytes]:
        block = self._read()
        if not block.startswith(ZSTD_MAGIC):
            while block:
                yield block
                block = self._read()
            return
        need("archives", f"unpacking {self._source}")
        import zstandard

        frame = _new_frame()
        try:
            size = zstandard.frame_content_size(block)
            self.announced = size if size > 0 else None
            while block:
                if piece := frame.decompress(block):
                    yield piece
                block = frame.unused_data or self._read()
                if frame.eof and block:
                    frame = _new_frame()
        except zstandard.ZstdError as error:
            raise UserError(f"{self._source} is damaged ({error}); download it again") from error
        if not frame.eof:
            raise UserError(f"{self._source} is cut short: its last part is missing; download it again")

    def _read(self) -> bytes:
        block = self._handle.read(STEP)
        done = self._handle.tell()
        if self._progress is not None and (done - self._reported >= COPY or done == self._size):
            self._reported = done
            self._progress(done, self._size)
        return block


def _new_frame() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()


def _copy_member(content: _Content, source: Path, path: Path, out: BinaryIO) -> None:
    """The only data file of a tar. It is read to its end, so that one cut short is not taken for whole."""
    found: str | None = None
    try:
        with tarfile.open(fileobj=content, mode="r|") as archive:
            for member in archive:
                name = Path(member.name).name
                if not member.isfile() or not name.endswith(SUFFIXES) or name.startswith("."):
                    continue
                if found is not None:
                    raise UserError(
                        f"{source} holds several data files ({found}, {member.name}); unpack it with `tar --zstd -xf`"
                    )
                found = member.name
                check_space(path, member.size)
                reader = archive.extractfile(member)
                assert reader is not None
                shutil.copyfileobj(reader, out, COPY)
                if out.tell() != member.size:
                    raise tarfile.ReadError("unexpected end of data")
    except tarfile.TarError as error:
        raise UserError(f"{source} is cut short or damaged ({error}); download it again") from error
    while content.read(COPY):
        pass
    if found is None:
        raise UserError(f"{source} holds no {' or '.join(SUFFIXES)} file; data= reads .h5 files and .lance tables as they are")
