"""Files and directories that appear whole or not at all, and locks that go away with their process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from phylatent.errors import PhylatentError, UserError


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Write to the yielded temporary path; it takes the name `path` only once it is whole and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _partial(path)
    try:
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if is_disk_full(error):
            raise PhylatentError(
                f"no space left on the disk while writing {path}; nothing was overwritten. Free some space and run again"
            ) from error
        raise


def is_disk_full(error: BaseException) -> bool:
    """HDF5 and safetensors wrap the operating system's error: look for it in the chain and in their texts."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if "No space left on device" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


@contextlib.contextmanager
def whole_directory(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """Fill the yielded temporary directory; it takes the name `out` once it is whole, in place of an older one if asked."""
    out = out.absolute()
    temporary, older = _partial(out), _partial(out.with_name(f"{out.name}.older"))
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        if replace and out.exists():
            out.replace(older)
        temporary.replace(out)
    except Exception as error:
        if is_disk_full(error):
            raise PhylatentError(f"no space left on the disk while writing {out}; free some space and run again") from error
        if isinstance(error, OSError):
            raise UserError(f"cannot write to {out}: {error.strerror}; choose another out=") from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(older, ignore_errors=True)


@contextlib.contextmanager
def locked(directory: Path, name: str, *, busy: str, elsewhere: str) -> Iterator[None]:
    """Hold the lock file `name` in a directory, which is made if need be. The lock ends with its process, however that ends.

    `busy` is the sentence when another process holds it, `elsewhere` the advice when the directory cannot be written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = (directory / name).open("w")
    except OSError as error:
        if is_disk_full(error):
            raise PhylatentError(f"no space left on the disk for {directory}; free some space and run again") from error
        raise UserError(f"cannot write to {directory}: {error.strerror}; {elsewhere}") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(busy) from error
        yield


def check_space(path: Path, size: int | None, place: Path | None = None, advice: str = "or choose another place") -> None:
    """An error if what is to be written to `path` does not fit its disk (that of `place`, where given); None fits."""
    free = shutil.disk_usage(place or path.parent).free
    if size is not None and size > free:
        raise PhylatentError(
            f"{path} will take {size / 2**30:.2f} GiB, but the disk has {free / 2**30:.2f} GiB left; free some space, {advice}"
        )


def remove_partials(directory: Path, name: str = "") -> None:
    """What a killed process left half-written in a directory: everything, or of the file `name` only."""
    for stale in directory.glob(f".{name}*.partial" if name else ".*.partial"):
        shutil.rmtree(stale, ignore_errors=True) if stale.is_dir() else stale.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.partial")
