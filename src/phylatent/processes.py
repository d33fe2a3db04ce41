"""Work shared among processes, which never outlive the one that started them.

A job's result must not depend on which process does it, nor on how many there are: each works with one thread.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from phylatent.errors import PhylatentError

Tick = Callable[[], None]
Prepare = Callable[..., Callable[[Any], Any]]
"""(*arguments, tick) → a function that does one job. Called once in each process; `tick` tells of progress within a job."""


@dataclass(frozen=True)
class Work:
    """What there is to do. `prepare` and `arguments` must pickle."""

    prepare: Prepare
    arguments: tuple[Any, ...]
    name: str
    """What it is called in sentences, such as "collecting tworooms"."""
    advice: str = "run the same command again"
    """What to do when a process is killed."""


@dataclass(frozen=True)
class Failure:
    """A worker's last message. Exceptions themselves need not pickle."""

    kind: type[PhylatentError]
    sentence: str
    trace: str


@dataclass(frozen=True)
class Done:
    job: int
    result: Any


READY, TICK = "ready", "tick"


def run(work: Work, jobs: Sequence[Any], workers: int, on_tick: Tick = lambda: None) -> list[Any]:
    """The jobs' results, in the jobs' order. One worker is this very process."""
    workers = min(workers, len(jobs))
    return _run_here(work, jobs, on_tick) if workers <= 1 else _run_in_processes(work, jobs, workers, on_tick)


def _run_here(work: Work, jobs: Sequence[Any], on_tick: Tick) -> list[Any]:
    with one_thread():
        try:
            do = work.prepare(*work.arguments, on_tick)
            return [do(job) for job in jobs]
        except Exception as error:
            raise _as_sentence(error, work) from error


def _as_sentence(error: Exception, work: Work) -> PhylatentError:
    """What environments, policies and models raise can be anything; the user gets a sentence."""
    if isinstance(error, PhylatentError):
        return type(error)(str(error))
    return PhylatentError(f"{work.name} failed: {type(error).__name__}: {error}")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread inside: several threads for little work mostly wait for each other, and for other programs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _run_in_processes(work: Work, jobs: Sequence[Any], workers: int, on_tick: Tick) -> list[Any]:
    """Each worker asks for a job when it has none, so that a slow one does not hold up the rest."""
    waiting = deque(enumerate(jobs))
    results: dict[int, Any] = {}
    with _started(work, workers) as processes:
        busy = dict(processes)
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                message = _receive(pipe, busy[pipe], work)
                if isinstance(message, Failure):
                    raise message.kind(message.sentence) from RuntimeError(message.trace)
                if message == TICK:
                    on_tick()
                    continue
                if isinstance(message, Done):
                    results[message.job] = message.result
                if waiting:
                    pipe.send(waiting.popleft())
                else:
                    pipe.send(None)
                    del busy[pipe]
    return [results[index] for index in range(len(jobs))]


def _receive(pipe: Connection, process: Any, work: Work) -> Any:
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError) as error:
        process.join()
        raise PhylatentError(
            f"{work.name}: a process ended by itself (exit code {process.exitcode}); {work.advice}, with fewer workers if "
            'memory ran out (exit code -9). A script must call this under `if __name__ == "__main__":`, or with one worker'
        ) from error


@contextlib.contextmanager
def _started(work: Work, workers: int) -> Iterator[list[tuple[Connection, Any]]]:
    context = multiprocessing.get_context("spawn")
    processes: list[tuple[Connection, Any]] = []
    # Ctrl-C reaches every process of a terminal; only this one should answer. Children inherit what is blocked, unless
    # multiprocessing's own helper starts in between: it unblocks everything.
    resource_tracker.ensure_running()
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(work, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append((ours, process))
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        yield processes
        for _, process in processes:
            process.join()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        for pipe, process in processes:
            process.terminate()
            process.join()
            pipe.close()


def _serve(work: Work, pipe: Connection) -> None:
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        with one_thread():
            do = work.prepare(*work.arguments, lambda: pipe.send(TICK))
            pipe.send(READY)
            while (task := pipe.recv()) is not None:
                index, job = task
                pipe.send(Done(index, do(job)))
    except Exception as error:
        failure = _as_sentence(error, work)
        pipe.send(Failure(type(failure), str(failure), traceback.format_exc()))


def _exit_with_parent() -> None:
    """End this process when its parent is gone: a parent that was killed cannot say so."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
