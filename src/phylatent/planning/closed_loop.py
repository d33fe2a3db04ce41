"""Episodes in the real environment: plan, execute, look, plan again.

Several episodes are planned side by side, each in a simulator of its own. A frame is rendered only where a plan, its real cost
or a film needs it, and encoded once.
"""

# P episodes side by side, k blocks, h past frames, D latent, A values of a raw action block

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from phylatent.planning.pairs import Pair
from phylatent.planning.planner import History, Planner
from phylatent.planning.policies import WITHOUT_MODEL
from phylatent.planning.protocols import Watch
from phylatent.schema import PlanConfig, Row, Rule, TaskSpec
from phylatent.simulator import Simulator


@dataclass(frozen=True)
class Start:
    """A pair, with all of the data file that an episode needs."""

    pair: Pair
    row: Row
    goal: Row
    goal_frame: np.ndarray
    recorded_kA: np.ndarray
    """The raw blocks that led from start to goal in the data."""
    past: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
    """Frames before the start and the blocks taken at them, at block spacing, oldest first."""
    rules: tuple[Rule, ...] = ()
    """Of the protocols that ask for this pair: the episode goes on until all are satisfied, or the budget is spent."""
    film: str = "none"
    """Which frames to keep: `none`, `blocks`, or `all`."""


@dataclass(frozen=True)
class PlanTrace:
    """One plan: what was expected of it and what came of it, as the planner's cost."""

    step: int
    start_cost: float
    planned_cost: float
    """Expected at the plan's end."""
    imagined_cost: float
    """Expected where its execution ended."""
    real_cost: float
    recorded_cost: float | None
    """What the model expects of the recorded actions, which are known to lead to the goal (first plan only)."""
    imagined_kD: np.ndarray


@dataclass
class Trajectory:
    pair: Pair
    rows: list[Row]
    plans: list[PlanTrace] = field(default_factory=list)
    planning_seconds: float = 0.0
    frames: dict[int, np.ndarray] = field(default_factory=dict)
    """Step → frame, for films."""


class Stage:
    """One episode under way."""

    def __init__(self, start: Start, simulator: Simulator, task: TaskSpec, settings: PlanConfig, stride: int) -> None:
        self.start, self.simulator, self.task, self.settings, self.stride = start, simulator, task, settings, stride
        simulator.restore(start.row)
        self.trajectory = Trajectory(start.pair, [])
        self.past: list[tuple[Tensor, np.ndarray]] = []
        """Latents at block spacing and the blocks taken at them, oldest first."""
        self.now = torch.empty(0)
        self.left: np.ndarray | None = None
        """Raw blocks of the last plan that were not executed."""
        self.watches = [Watch(rule) for rule in start.rules]
        self._record()

    @property
    def steps(self) -> int:
        return len(self.trajectory.rows) - 1

    @property
    def over(self) -> bool:
        return self.steps >= self.settings.budget or all(watch.success is not None for watch in self.watches)

    def step(self, action: np.ndarray) -> None:
        before = self.trajectory.rows[-1]
        self.simulator.step(action)
        for rule in self.start.rules:
            if rule.corrected is not None:
                self.simulator.restore(rule.corrected(before, self.simulator.columns()))
        self._record()

    def execute(self, blocks_kA: np.ndarray, history: int) -> list[tuple[np.ndarray, np.ndarray | None]]:
        """Take the plan's actions, as far as the budget goes.

        Returns frames to encode: those at which the last `history` blocks began, each with its block, and the one at the end.
        """
        frames: list[tuple[np.ndarray, np.ndarray | None]] = []
        for index, block in enumerate(blocks_kA):
            if self.steps >= self.settings.budget:
                break
            if 0 < len(blocks_kA) - index <= history and index > 0 and not self.over:
                frames.append((self.simulator.frame(), block))
            for action in block.reshape(self.stride, -1)[: self.settings.budget - self.steps]:
                self.step(action)
        return [*frames, (self.simulator.frame(), None)]

    def _record(self) -> None:
        assert self.task.with_goal is not None
        row = self.task.with_goal(self.simulator.columns(), self.start.goal)
        self.trajectory.rows.append(row)
        for watch in self.watches:
            watch.see(row)
        film = self.start.film
        if film == "all" or (film == "blocks" and self.steps % self.stride == 0):
            self.trajectory.frames[self.steps] = self.simulator.frame()


def follow(
    policy: str, starts: Sequence[Start], simulator: Simulator, task: TaskSpec, settings: PlanConfig, stride: int
) -> list[Trajectory]:
    """Episodes of a policy that needs no model."""
    done = []
    for start in starts:
        stage = Stage(start, simulator, task, settings, stride)
        act = WITHOUT_MODEL[policy](task, start.pair, simulator)
        while not stage.over:
            stage.step(act())
        done.append(stage.trajectory)
    return done


def plan_and_execute(
    planner: Planner, starts: Sequence[Start], simulators: Sequence[Simulator], task: TaskSpec
) -> list[Trajectory]:
    """Episodes of the planner, side by side."""
    settings, stride = planner.settings, planner.actions.stride
    stages = [Stage(start, sim, task, settings, stride) for start, sim in zip(starts, simulators, strict=False)]
    goals = dict(zip(map(id, stages), planner.encode(np.stack([start.goal_frame for start in starts])), strict=True))
    for stage in stages:
        if not stage.over:
            frames = [*stage.start.past, (stage.simulator.frame(), None)]
            _look(planner, stage, frames)
    while waiting := [stage for stage in stages if not stage.over]:
        # Windows of one length are searched side by side; episodes without a recorded past before those with one.
        waiting.sort(key=_alike)
        for _, group in groupby(waiting, key=_alike):
            together = list(group)
            _plan_once(planner, together, torch.stack([goals[id(stage)] for stage in together]))
    return [stage.trajectory for stage in stages]


def _alike(stage: Stage) -> tuple[int, int]:
    return len(stage.past), stage.steps


def _look(planner: Planner, stage: Stage, frames: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> None:
    """Encode what was seen; all but the last frame join the past."""
    *before, stage.now = planner.encode(np.stack([frame for frame, _ in frames]))
    stage.past += [(z, block) for z, (_, block) in zip(before, frames, strict=False) if block is not None]
    stage.past = stage.past[max(0, len(stage.past) - planner.frames_before) :]


def _plan_once(planner: Planner, stages: Sequence[Stage], goal_PD: Tensor) -> None:
    started = time.perf_counter()
    now = torch.stack([stage.now for stage in stages])
    history = _history(stages, planner.device)
    generators = [planner.generator(stage.start.pair.episode, stage.start.pair.start, stage.steps) for stage in stages]
    horizon = planner.horizon(stages[0].steps // planner.actions.stride)
    kept = [stage.left for stage in stages if stage.left is not None]
    left = torch.as_tensor(np.stack(kept)) if len(kept) == len(stages) else None
    found = planner.search(now, goal_PD, generators, history, horizon=horizon, left_PkA=left)
    seconds = (time.perf_counter() - started) / len(stages)
    recorded = _recorded_costs(planner, stages, now, goal_PD, history)
    whole = found.blocks_PkA.cpu().numpy()
    blocks = whole[:, : planner.settings.receding]
    for index, stage in enumerate(stages):
        step = stage.steps
        stage.left = whole[index, len(blocks[index]) :] if len(whole[index]) > len(blocks[index]) else None
        if len(blocks[index]) <= planner.frames_before:  # a short plan: what was seen before it still counts
            stage.past.append((stage.now, blocks[index, 0]))
        else:
            stage.past = []
        _look(planner, stage, stage.execute(blocks[index], planner.frames_before))
        executed = -(-(stage.steps - step) // stage.stride)
        imagined = found.imagined_PkD[index]
        stage.trajectory.planning_seconds += seconds
        stage.trajectory.plans.append(
            PlanTrace(
                step=step,
                start_cost=float(planner.cost.of_latents(now[index], goal_PD[index])),
                planned_cost=float(planner.cost.of_latents(imagined[-1], goal_PD[index])),
                imagined_cost=float(planner.cost.of_latents(imagined[executed - 1], goal_PD[index])),
                real_cost=float(planner.cost.of_latents(stage.now, goal_PD[index])),
                recorded_cost=None if recorded is None else recorded[index],
                imagined_kD=imagined.cpu().numpy(),
            )
        )


def _history(stages: Sequence[Stage], device: torch.device) -> History | None:
    if not stages[0].past:
        return None
    latents = torch.stack([torch.stack([z for z, _ in stage.past]) for stage in stages])
    blocks = np.stack([np.stack([block for _, block in stage.past]) for stage in stages])
    return History(latents, torch.as_tensor(blocks, dtype=torch.float32, device=device))


@torch.no_grad()
def _recorded_costs(
    planner: Planner, stages: Sequence[Stage], now_PD: Tensor, goal_PD: Tensor, history: History | None
) -> list[float] | None:
    """At the first plan only: later on, the recorded actions no longer lead to the goal."""
    if any(stage.steps for stage in stages):
        return None
    blocks = torch.as_tensor(np.stack([stage.start.recorded_kA for stage in stages]), dtype=torch.float32)
    ends = planner.imagine(now_PD, blocks.to(planner.device), history)[:, -1]
    return planner.cost.of_latents(ends, goal_PD).tolist()
