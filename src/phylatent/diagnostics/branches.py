"""Action branches executed for real: from one restored state, several windows of actions, and where each leads."""

# M starts, b branches of a start, k blocks, A raw action values of a block, K horizons, d_s physical target, H height, W width

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from phylatent.data.readers import Episodes
from phylatent.diagnostics.coordinates import physical_target
from phylatent.errors import UserError
from phylatent.processes import Tick, Work, run
from phylatent.schema import Row, TaskSpec
from phylatent.simulator import Simulator, check_installed

STARTS_PER_JOB = 10


@dataclass(frozen=True, eq=False)
class Branches:
    """Windows of actions from recorded starts, and the states and frames they really lead to."""

    rows: np.ndarray
    """int64 [M]: the starts."""
    windows: np.ndarray
    """float32 [M, b, k, A]: raw action blocks."""
    targets: np.ndarray
    """float32 [M, b, K, d_s]: the physical target at each horizon."""
    packed: tuple[bytes, ...]
    """M·b·K compressed frames: thousands of them would not fit in memory at 224 px."""
    frame_shape: tuple[int, int, int]

    def frames(self, indices: np.ndarray) -> np.ndarray:
        """uint8 [n, H, W, 3] of flat indices into [M, b, K]."""
        raw = (np.frombuffer(zlib.decompress(self.packed[i]), np.uint8).reshape(self.frame_shape) for i in indices)
        return np.stack(list(raw))


@dataclass(frozen=True)
class Execution:
    """What a simulating process needs to know, besides its starts."""

    task: TaskSpec
    frame_size: int
    render: str
    stride: int
    horizons: tuple[int, ...]


Job = tuple[list[Row], np.ndarray]
Ends = tuple[np.ndarray, list[bytes]]


def execute(
    rows_M: np.ndarray, windows_MbkA: np.ndarray, *, execution: Execution, episodes: Episodes, workers: int, tick: Tick
) -> Branches:
    """`tick` after each start. The outcome does not depend on the number of workers."""
    check_installed(execution.task, "a diagnostic that executes branches of actions, such as counterfactual,")
    height, width, _ = episodes.frame_shape
    if height != width:
        raise UserError(f"frames of {episodes.path} are {height} × {width}; branches are simulated with square frames only")
    jobs: list[Job] = [
        ([episodes.row(int(row)) for row in rows_M[i : i + STARTS_PER_JOB]], windows_MbkA[i : i + STARTS_PER_JOB])
        for i in range(0, len(rows_M), STARTS_PER_JOB)
    ]
    work = Work(_executor, (execution,), name=f"simulating branches of {execution.task.name}")
    results: list[Ends] = run(work, jobs, workers, tick)
    return Branches(
        rows=rows_M,
        windows=windows_MbkA,
        targets=np.concatenate([targets for targets, _ in results]),
        packed=tuple(frame for _, frames in results for frame in frames),
        frame_shape=episodes.frame_shape,
    )


def _executor(execution: Execution, tick: Tick) -> Callable[[Job], Ends]:
    simulator = Simulator(execution.task, execution.frame_size, execution.render)
    simulator.reset(seed=0)  # an environment wants one before anything else; every branch restores its own state

    def do(job: Job) -> Ends:
        targets, frames = [], []
        for start, windows_bkA in zip(*job, strict=True):
            for window_kA in windows_bkA:
                simulator.restore(start)
                for horizon, block in enumerate(window_kA, start=1):
                    for action in block.reshape(execution.stride, -1):
                        simulator.step(action)
                    if horizon in execution.horizons:
                        targets.append(physical_target(execution.task, simulator.columns()))
                        frames.append(zlib.compress(simulator.frame().tobytes(), level=1))
            tick()
        starts, branches = job[1].shape[:2]
        return np.stack(targets).reshape(starts, branches, len(execution.horizons), -1), frames

    return do
