"""Commands run in copies of one warmed process: a fork costs milliseconds, the imports of a new process seconds.

A copy is made before its case is prepared, so that nothing of the preparing is in it, and waits for its order. It has its own
session, its own directory and environment, one core, and limits on memory and file size; stdin is closed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
import types
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

MEMORY = 8 * 2**30
"""Bytes of address space that a command may take beyond what the warmed process has: a bomb ends in a MemoryError."""
FILE_SIZE = 4 * 2**30
DEADLINE = 60.0
PATIENCE = 20.0
"""Seconds that a command has for an orderly end after Ctrl-C, and after another one."""


@dataclass(frozen=True)
class Order:
    """What a copy is to run. Standard output and error go to files `stdout` and `stderr` in `logs`."""

    arguments: tuple[str, ...]
    cwd: str
    logs: str
    environment: dict[str, str]
    deadline: float = DEADLINE
    core: int | None = 0
    """None: whichever there are."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: `code` is negative for a signal, as subprocess has it."""

    code: int
    seconds: float
    overdue: bool = False
    """Whether the deadline passed. It is interrupted as by Ctrl-C then, and killed if that does not help."""
    killed: bool = False
    left_processes: bool = False


class Copy:
    """A copy of this process that waits for its order."""

    def __init__(self) -> None:
        theirs, self._pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._pipe)
            _serve(theirs)
        os.close(theirs)

    def send(self, order: Order) -> None:
        """Let it begin."""
        os.write(self._pipe, json.dumps(asdict(order)).encode() + b"\n")
        os.close(self._pipe)

    def run(self, order: Order) -> Ended:
        """Run it to its end, or to the end of our patience."""
        begun = time.monotonic()
        self.send(order)
        overdue = killed = False
        code = self._wait(begun + order.deadline)
        for _ in range(2):  # as one would: the first asks a training to end its step, the second does not wait for it
            if code is None:
                overdue = True
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGINT)
                code = self._wait(time.monotonic() + PATIENCE)
        if code is None:
            killed = True
            os.killpg(self.pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        seconds = time.monotonic() - begun
        return Ended(code, round(seconds, 3), overdue, killed, self._left())

    def kill(self) -> None:
        """End it before or while it works, and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _wait(self, until: float) -> int | None:
        while time.monotonic() < until:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.004)
        return None

    def _left(self) -> bool:
        """Whether processes that it started outlive it by more than two seconds; they are ended in any case."""
        for _ in range(100):
            try:
                os.killpg(self.pid, 0)
            except (ProcessLookupError, PermissionError):
                return False
            time.sleep(0.02)
        self.kill()
        return True


def _serve(pipe: int) -> None:
    """In the copy: wait for the order, do it, and never return."""
    code = 70
    try:
        os.setsid()
        received = b""
        while not received.endswith(b"\n"):
            piece = os.read(pipe, 2**16)
            if not piece:
                os._exit(0)  # whoever was to give the order is gone
            received += piece
        order = Order(**json.loads(received))
        _settle(order)
        code = _call(order.arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _settle(order: Order) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order.core is not None:
        os.sched_setaffinity(0, {order.core})
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.cwd)
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(Path(order.logs) / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(handle, number)
        os.close(handle)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Processes that a command starts import its main module anew, and that is not this harness.
    sys.modules["__main__"] = types.ModuleType("__main__")


def _call(arguments: tuple[str, ...]) -> int:
    from phylatent.cli import main

    sys.argv = ["phylatent", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0
