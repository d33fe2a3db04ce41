"""`verify`: whether a data set is what was written, to the byte.

The reading is done in processes of its own: over some damaged files HDF5 ends its process, or never comes back.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from phylatent.data.formats import Store, open_store
from phylatent.data.formats.prepared import PreparedStore
from phylatent.data.integrity import check_piece, check_record, pieces, total_bytes
from phylatent.errors import PhylatentError
from phylatent.files import stored_bytes
from phylatent.reading import damaged, first_line

AGAIN = "collect or download it again"
LARGE = 256 * 2**20
"""A data set of at least this size is read by several processes."""
PATIENCE_SECONDS = 30.0
"""Without a single piece read: a slow disk takes a second for one, a damaged file can take for ever."""
TELL_SECONDS = 0.1
Progress = Callable[[int, int], None]
"""(bytes read, bytes in all)"""


@dataclass(frozen=True)
class Verified:
    """What was found to be whole."""

    rows: int
    columns: int
    """Beside the frames."""
    checked: int
    """Of these, those with checksums."""
    frames: str | None
    """The kind of checksum that frames have; None: that they could be decoded is all that is known."""
    attributes: bool
    """Whether what the file says about itself has checksums."""

    def __str__(self) -> str:
        if not self.checked and self.frames is None:
            can = f"{self.rows:,} rows and {self.columns} columns beside the frames can be read and decoded"
            return f"{can}; there are no checksums to compare them with"
        some = f"{self.checked} of {self.columns}" if self.checked < self.columns else f"{self.columns}"
        frames = f"frames with {self.frames}" if self.frames else "frames without (they can be decoded)"
        return f"{self.rows:,} rows, {some} columns with checksums, {frames}" + (", attributes" if self.attributes else "")


def verify(path: Path, progress: Progress | None = None, *, workers: int | None = None) -> Verified:
    """Read everything in a data set once; an error that names the first damage found."""
    if workers is None:
        workers = (os.cpu_count() or 1) if stored_bytes(path) >= LARGE else 1
    done, total, verified = [0] * workers, 0, None
    with _started(path, workers) as processes:
        busy = {pipe: worker for worker, (pipe, _) in enumerate(processes)}
        while busy:
            ready = wait(list(busy), PATIENCE_SECONDS)
            if not ready:
                raise damaged(path, f"reading it does not come to an end (nothing for {PATIENCE_SECONDS:.0f} s)", AGAIN)
            for pipe in ready:
                assert isinstance(pipe, Connection)
                worker = busy[pipe]
                message = _receive(pipe, processes[worker][1], path)
                if isinstance(message, PhylatentError):
                    raise message
                if isinstance(message, Verified):
                    verified = message
                    del busy[pipe]
                    continue
                done[worker], total = message
                if progress is not None:
                    progress(sum(done), total)
    assert verified is not None
    return verified


def read_all(path: Path, tell: Progress = lambda done, total: None, worker: int = 0, workers: int = 1) -> Verified:
    """One worker's share of the pieces, read in this process; an error for the first one that is damaged."""
    store = open_store(path)
    if isinstance(store, PreparedStore):
        check_record(path)
    total, done, told = total_bytes(store), 0, time.monotonic()
    for piece in islice(pieces(store), worker, None, workers):
        check_piece(store, piece)
        done += piece.size
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            tell(done, total)
    tell(done, total)
    return _verified(store)


def _verified(store: Store) -> Verified:
    beside = set(store.columns) - {"pixels"}
    kind = "SHA-256" if isinstance(store, PreparedStore) else "Fletcher-32"
    return Verified(
        rows=max((shape[0] for shape, _ in store.columns.values()), default=0),
        columns=len(beside),
        checked=len(beside & store.checksums),
        frames=kind if "pixels" in store.checksums else None,
        attributes=getattr(store, "sealed", False),
    )


def _receive(pipe: Connection, process: Any, path: Path) -> Any:
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError) as error:
        process.join()
        if process.exitcode == -signal.SIGKILL:
            why = "it was killed, as happens when memory runs out: run the same command again"
        elif process.exitcode < 0:
            raise damaged(path, f"reading it ended the process that read it (signal {-process.exitcode})", AGAIN) from error
        else:
            why = 'a script must call this under `if __name__ == "__main__":`'
        raise PhylatentError(f"verifying {path}: a process ended by itself (exit code {process.exitcode}); {why}") from error


@contextlib.contextmanager
def _started(path: Path, workers: int) -> Iterator[list[tuple[Connection, Any]]]:
    context = multiprocessing.get_context("spawn")
    processes: list[tuple[Connection, Any]] = []
    resource_tracker.ensure_running()  # it would unblock what is blocked here
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for this process to answer
    try:
        for worker in range(workers):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_serve, args=(path, theirs, worker, workers), daemon=True)
            process.start()
            theirs.close()
            processes.append((ours, process))
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        yield processes
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        for pipe, process in processes:
            process.kill()
            process.join()
            pipe.close()


def _serve(path: Path, pipe: Connection, worker: int, workers: int) -> None:
    """Whatever goes wrong in here is the file's fault, as nothing else is done. Where the parent is gone, nobody is told."""
    try:
        pipe.send(read_all(path, lambda done, total: pipe.send((done, total)), worker, workers))
    except BrokenPipeError:
        return
    except PhylatentError as error:
        pipe.send(type(error)(str(error)))
    except Exception as error:
        pipe.send(damaged(path, f"{type(error).__name__}: {first_line(error)}", AGAIN))
