"""The newest film of each run, drawn by a process of its own that never takes more than a small part of the time."""

from __future__ import annotations

import base64
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from phylatent.runs import CONFIG, MODEL
from phylatent.texts import printable
from phylatent.watching.state import Watched

SHARE_OF_TIME = 1 / 20
"""Of the time that passes, what drawing may take at most, whatever the model's size."""
LOOK = 2.0
"""Seconds from one look for new weights to the next."""


@dataclass(frozen=True)
class Shown:
    """What the page gets of a film: an image, or a sentence why there is none."""

    version: int
    weights: str = ""
    sentence: str = ""
    image: str = ""
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    size: tuple[int, int] = (0, 0)


class Films(threading.Thread):
    """Looks for new weights, and has them drawn. It ends with `stop`; the process ends with it, and with its parent."""

    def __init__(self, runs: Sequence[Watched], task: str | None) -> None:
        super().__init__(daemon=True)
        self.runs, self.task = runs, task
        self.shown: dict[int, Shown] = {}
        self.drawn: dict[int, tuple[str, float]] = {}
        self.ended = threading.Event()
        self.process: Any = None
        self.pipe: Any = None

    def stop(self) -> None:
        self.ended.set()
        self.join(LOOK)
        self._end_process()

    def run(self) -> None:
        # Ctrl-C reaches every process of a terminal; this thread's child inherits that it is blocked.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        while not self.ended.wait(LOOK):
            began = time.monotonic()
            new = [self._look(at, run) for at, run in enumerate(self.runs)]
            if any(new):
                self.ended.wait((time.monotonic() - began) / SHARE_OF_TIME)

    def _look(self, at: int, run: Watched) -> bool:
        """Whether there were new weights, and so something to draw."""
        weights = run.newest_weights()
        if weights is None or self.ended.is_set():
            return False
        try:
            found = str(weights), weights.stat().st_mtime
            modified = (run.directory / CONFIG).stat().st_mtime
        except OSError:  # a checkpoint that made room for a newer one
            return False
        if self.drawn.get(at) == found:
            return False
        self.drawn[at] = found
        answer = self._ask(run.directory, weights, modified)
        version = self.shown[at].version + 1 if at in self.shown else 1
        named = "the exported model" if weights.name == MODEL else weights.stem
        if isinstance(answer, str):
            self.shown[at] = Shown(version, named, printable(answer))
        else:
            run.planned = answer.planned
            image = f"data:image/webp;base64,{base64.b64encode(answer.image).decode('ascii')}"
            self.shown[at] = Shown(version, named, "", image, answer.rows, answer.columns, answer.size)
        return True

    def _ask(self, run: Path, weights: Path, modified: float) -> Any:
        """A film, or a sentence why there is none."""
        try:
            if self.process is None:
                self._start_process()
            self.pipe.send((run.resolve(), weights.resolve(), modified, self.task))
            while not self.pipe.poll(0.2):
                if self.ended.is_set():
                    return "the watching ended"
            return self.pipe.recv()
        except (EOFError, OSError) as error:
            code = self._end_process()
            return f"the process that draws it ended by itself (exit code {code}): {type(error).__name__}"

    def _start_process(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def _end_process(self) -> int | None:
        if self.process is None:
            return None
        self.pipe.close()
        self.process.terminate()
        self.process.join()
        code, self.process = self.process.exitcode, None
        return int(code)


def _serve(pipe: Any) -> None:
    """In the new process: torch is imported there, with the lowest priority, and not where the page is served."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(19)

    from phylatent.watching.imagine import serve

    serve(pipe)
