"""Paths that can be used, files and directories that appear whole or not at all, locks that go away with their process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from phylatent.errors import PhylatentError, UserError

NAME_BYTES = 255
"""The longest name that the file systems in use can hold."""
BESIDE_BYTES = 32
"""What a target's name is extended by while it is written: `.parts`, `.json`, `.partial` and a number."""
WHY = {
    errno.ELOOP: "it is a link that leads back to itself",
    errno.ENAMETOOLONG: "it is longer than a path can be",
    errno.ENOTDIR: "a part of it is a file, not a directory",
    errno.EISDIR: "it is a directory",
    errno.EROFS: "the disk can only be read from",
    errno.ENOTEMPTY: "something is there by now",
    errno.EEXIST: "something of another kind is there",
    errno.ENOENT: "its directory is not there, or no longer",
}
"""What the system's words for an error leave open."""


def check_path(path: str | Path) -> None:
    """An error for what no file can be read from or written to: a link to itself, too long a name, a path below a file.

    Whether there is anything at that path does not matter.
    """
    path = Path(path)
    if "\0" in str(path):
        raise UserError(f"{_shown(path)} holds a NUL character, which no path can")
    if long := next((part for part in path.parts if len(os.fsencode(part)) > NAME_BYTES), None):
        raise UserError(
            f"{_shown(path)} cannot be used: a name of {len(long)} characters is too long, {NAME_BYTES} bytes is the most"
        )
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UserError(f"{_shown(path)} cannot be used: {why(error)}") from error


def in_full(path: str | Path | None) -> Path | None:
    """A path as it was given, with `~` spelled out; None stays None."""
    return None if path is None else Path(path).expanduser()


def check_target(path: Path, *, directory: bool = False) -> None:
    """An error for a place where a file (or directory) cannot be put without doing away with something of another kind."""
    check_path(path)
    if len(os.fsencode(path.name)) > NAME_BYTES - BESIDE_BYTES:
        raise UserError(f"{_shown(path)} cannot be written: its name is too long; give it a shorter one")
    _check_kind(path, "a directory" if directory else "a file")


def _check_kind(path: Path, wanted: str) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            leads = f"{path} is a link to {os.readlink(path)}, where there is nothing"
            raise UserError(f"{leads}; nothing was overwritten: remove the link, or choose another place") from None
        return
    found = "a directory" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "a device, pipe or socket"
    if found != wanted:
        raise UserError(
            f"{path} is {found}, but {wanted} is to be written there; nothing was overwritten: choose another place"
        )


def why(error: OSError) -> str:
    """What went wrong, in words."""
    return WHY.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__


def _shown(path: Path) -> str:
    text = str(path).replace("\0", "\\0")
    return text if len(text) <= 200 else f"{text[:100]}…{text[-60:]}"


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Write to the yielded temporary path; it takes the name `path` only once it is whole and on disk."""
    check_target(path)
    temporary = _partial(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if is_disk_full(error):
            raise PhylatentError(
                f"no space left on the disk while writing {path}; nothing was overwritten. Free some space and run again"
            ) from error
        if isinstance(error, OSError) and _is_about(error, temporary, path, *path.parents):
            raise UserError(f"cannot write {path}: {why(error)}; nothing was overwritten: choose another place") from error
        raise


def _is_about(error: OSError, *paths: Path) -> bool:
    """Whether an error is about one of these paths, or about an open file, which it does not name."""
    return error.filename is None or str(error.filename) in map(str, paths)


def is_disk_full(error: BaseException) -> bool:
    """HDF5 and safetensors wrap the operating system's error: look for it in the chain and in their texts."""
    seen: BaseException | None = error
    known: set[int] = set()  # an error that was raised again elsewhere can be its own cause
    while seen is not None and id(seen) not in known:
        known.add(id(seen))
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if "No space left on device" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


@contextlib.contextmanager
def whole_directory(out: Path, *, replace: bool = False) -> Iterator[Path]:
    """Fill the yielded temporary directory; it takes the name `out` once it is whole, in place of an older one if asked.

    What a killed process left of it is taken away: whoever fills a directory of this name holds its lock.
    """
    out = out.absolute()
    check_target(out, directory=True)
    busy = f"another process is writing {out} right now; wait for it, or choose another out="
    with locked(out.parent, f".{out.name}.lock", busy=busy, elsewhere="choose another out=", tidy=True):
        remove_partials(out.parent, f"{out.name}.")
        with _filled(out, replace=replace) as temporary:
            yield temporary


@contextlib.contextmanager
def _filled(out: Path, *, replace: bool) -> Iterator[Path]:
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
            raise UserError(f"cannot write to {out}: {why(error)}; choose another out=") from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(older, ignore_errors=True)


LOCK_ATTEMPTS = 20


@contextlib.contextmanager
def locked(directory: Path, name: str, *, busy: str, elsewhere: str, tidy: bool = False) -> Iterator[None]:
    """Hold the lock file `name` in a directory, which is made if need be. The lock ends with its process, however that ends.

    `busy` is the sentence when another process holds it, `elsewhere` the advice when the directory cannot be written to. `tidy`
    takes the file away at the end, and what directories were made for it if nothing came to be in them.
    """
    check_target(directory, directory=True)
    made = [place for place in (directory, *directory.parents) if not place.exists()]
    _check_kind(directory / name, "a file")
    try:
        handle = _lock(directory / name)
    except BlockingIOError as error:
        raise UserError(busy) from error
    except OSError as error:
        if is_disk_full(error):
            raise PhylatentError(f"no space left on the disk for {directory}; free some space and run again") from error
        raise UserError(f"cannot write to {directory}: {why(error)}; {elsewhere}") from error
    with handle:
        try:
            yield
        finally:
            if tidy:
                with contextlib.suppress(OSError):
                    (directory / name).unlink()
                    for place in made:
                        place.rmdir()


def _lock(path: Path) -> IO[str]:
    """The lock file, open and locked. It may be gone again at any moment: a process that is done deletes it with the rest."""
    for attempt in range(LOCK_ATTEMPTS):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as unless_locked:
                handle = unless_locked.enter_context(path.open("w"))
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(path.stat(), os.fstat(handle.fileno())):  # a lock on a deleted file keeps nobody out
                    unless_locked.pop_all()
                    return handle
        except FileNotFoundError:
            if attempt == LOCK_ATTEMPTS - 1:
                raise
    raise BlockingIOError


def check_space(path: Path, size: int | None, place: Path | None = None, advice: str = "or choose another place") -> None:
    """An error if what is to be written to `path` does not fit its disk (that of `place`, where given); None fits."""
    free = shutil.disk_usage(place or path.parent).free
    if size is not None and size > free:
        raise PhylatentError(
            f"{path} will take {size_in_words(size)}, but the disk has {size_in_words(free)} left; free some space, {advice}"
        )


def size_in_words(size: int) -> str:
    """Bytes in the unit that people would take."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**27 else f"{size / 2**20:.2f} MiB"


def stored_bytes(path: Path) -> int:
    """The size on disk; of a directory, all its files count."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def remove_partials(directory: Path, name: str = "") -> None:
    """What a killed process left half-written in a directory: everything, or of the file `name` only."""
    for stale in directory.glob(f".{glob.escape(name)}*.partial"):
        shutil.rmtree(stale, ignore_errors=True) if stale.is_dir() else stale.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    """Two processes can have one number, in two containers that share a disk."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(3)}.partial")
