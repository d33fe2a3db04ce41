"""Shards collected by several processes, which never outlive the one that started them."""

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
from pathlib import Path
from typing import Any

import torch

from phylatent.data.shards import Plan, write_shard
from phylatent.errors import PhylatentError
from phylatent.schema import TaskSpec
from phylatent.simulator import Simulator

READY, EPISODE = "ready", "episode"


@dataclass(frozen=True)
class Job:
    task: TaskSpec
    plan: Plan
    parts: Path


@dataclass(frozen=True)
class Failure:
    """A worker's last message. Exceptions themselves need not pickle."""

    kind: type[PhylatentError]
    sentence: str
    trace: str


def run_here(job: Job, shards: Sequence[int], on_episode: Callable[[], None]) -> None:
    with _one_thread():
        try:
            simulator = Simulator(job.task, job.plan.frame_size)
            for shard in shards:
                write_shard(simulator, job.task, job.plan, job.parts, shard, on_episode)
            simulator.close()
        except Exception as error:
            raise _told(error, job) from error


def _told(error: Exception, job: Job) -> PhylatentError:
    """What environments and policies raise can be anything; the user gets a sentence."""
    if isinstance(error, PhylatentError):
        return type(error)(str(error))
    return PhylatentError(f"collecting {job.task.name} failed: {type(error).__name__}: {error}")


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Drawing a frame is too little work to share: several threads mostly wait for each other, and for other programs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run_in_processes(job: Job, shards: Sequence[int], workers: int, on_episode: Callable[[], None]) -> None:
    """Each worker asks for a shard when it has none, so that a slow one does not hold up the rest."""
    waiting = deque(shards)
    with _started(job, workers) as processes:
        busy = dict(processes)
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                message = _receive(pipe, busy[pipe])
                if isinstance(message, Failure):
                    raise message.kind(message.sentence) from RuntimeError(message.trace)
                if message == EPISODE:
                    on_episode()
                elif waiting:
                    pipe.send(waiting.popleft())
                else:
                    pipe.send(None)
                    del busy[pipe]


def _receive(pipe: Connection, process: Any) -> Any:
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError) as error:
        process.join()
        raise PhylatentError(
            f"a collecting process ended by itself (exit code {process.exitcode}); finished shards are kept: "
            "run the same command to go on, with fewer collect.workers if memory ran out (exit code -9). "
            'A script must call collect under `if __name__ == "__main__":`, or with collect.workers=1'
        ) from error


@contextlib.contextmanager
def _started(job: Job, workers: int) -> Iterator[list[tuple[Connection, Any]]]:
    context = multiprocessing.get_context("spawn")
    processes: list[tuple[Connection, Any]] = []
    # Ctrl-C reaches every process of a terminal; only this one should answer. Children inherit what is blocked, unless
    # multiprocessing's own helper starts in between: it unblocks everything.
    resource_tracker.ensure_running()
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(job, theirs), daemon=True)
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


def _work(job: Job, pipe: Connection) -> None:
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        with _one_thread():
            simulator = Simulator(job.task, job.plan.frame_size)
            pipe.send(READY)
            while (shard := pipe.recv()) is not None:
                write_shard(simulator, job.task, job.plan, job.parts, shard, lambda: pipe.send(EPISODE))
                pipe.send(READY)
            simulator.close()
    except Exception as error:
        told = _told(error, job)
        pipe.send(Failure(type(told), str(told), traceback.format_exc()))


def _exit_with_parent() -> None:
    """A parent that was killed cannot say so."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
