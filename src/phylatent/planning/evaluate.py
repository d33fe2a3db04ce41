"""Every policy on the same start/goal lists: episodes shared among processes, outcomes scored by each protocol."""

# P pairs, k blocks, A values of a raw action block

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from phylatent.data.readers import Episodes
from phylatent.data.stats import Side, Split
from phylatent.errors import UserError
from phylatent.machine import cores
from phylatent.models.latent import LatentModel
from phylatent.planning.actions import Actions
from phylatent.planning.closed_loop import Start, Trajectory, follow, plan_and_execute
from phylatent.planning.pairs import Pair, PairList, Rows, make_list, rule_of
from phylatent.planning.planner import Planner
from phylatent.processes import Tick, Work, run
from phylatent.schema import PlanConfig, TaskSpec
from phylatent.simulator import Simulator, check_installed, side_by_side

SIDE_BY_SIDE, LEAST_GROUPS = 8, 8
"""Episodes that one process plans together at most, and into how many groups few of them are shared out. Fixed: batches, and
so the last bits of a plan, must not depend on the machine."""


@dataclass(frozen=True)
class Course:
    """What every policy has to run: the lists of the protocols, and each distinct pair once."""

    task: TaskSpec
    settings: PlanConfig
    side: Side
    """The episodes that the lists are from."""
    frame_size: int
    render: str
    stride: int
    lists: Mapping[str, PairList]
    starts: tuple[Start, ...]
    solver: Any = None
    """The solver's own settings, if not its defaults."""

    def starts_of(self, protocol: str) -> list[Start]:
        """Those of a protocol's list, in its order."""
        return [self.starts[i] for i in self._places(protocol)]

    def of(self, protocol: str, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Those of a protocol's list, in its order."""
        assert len(trajectories) == len(self.starts)
        return [trajectories[i] for i in self._places(protocol)]

    def _places(self, protocol: str) -> list[int]:
        physics = rule_of(self.task, protocol).corrected
        places = {_place(s.pair): i for i, s in enumerate(self.starts) if s.rules[0].corrected is physics}
        return [places[_place(pair)] for pair in self.lists[protocol].pairs]


def _place(pair: Pair) -> tuple[int, int, int]:
    return pair.episode, pair.start, pair.goal


def lay_out(task: TaskSpec, episodes: Episodes, split: Split, settings: PlanConfig, stride: int, solver: Any = None) -> Course:
    """Draw the lists and read from the data what their episodes need; `solver` are the solver's own settings.

    A pair that several lists share under the same physics is run once.
    """
    check_installed(task, "plan")
    lists = {protocol: make_list(task, episodes, split, protocol, settings) for protocol in settings.protocol}
    if stride % episodes.frame_stride:
        raise UserError(f"the model's blocks of {stride} steps are no multiple of the data's stride {episodes.frame_stride}")
    if settings.goal_steps < stride:
        raise UserError(
            f"plan.goal_steps is {settings.goal_steps}, less than one block of the model's, {stride} steps; give more"
        )
    if "expert" in settings.policy and task.expert is None:
        settings = replace(settings, policy=tuple(name for name in settings.policy if name != "expert"))
    rows = Rows(task, episodes)
    starts: dict[Any, Start] = {}
    for protocol, pairs in lists.items():
        rule = rule_of(task, protocol)
        films = _films(pairs, rows, rule.solved, settings)
        for pair in pairs.pairs:
            key = (*_place(pair), rule.corrected)
            start = starts.get(key) or _start(pair, rows, episodes, settings, stride)
            film = max(start.film, films.get(pair, "none"), key=("none", "blocks", "all").index)
            starts[key] = replace(start, rules=(*start.rules, rule), film=film)
    side, size = split.side(settings.split), episodes.frame_shape[0]
    return Course(task, settings, side, size, episodes.render, stride, lists, tuple(starts.values()), solver)


def _films(pairs: PairList, rows: Rows, solved: Callable[..., bool], settings: PlanConfig) -> dict[Pair, str]:
    """The first pairs of the list that are not solved from the start: the same for every policy."""
    worth = [pair for pair in pairs.pairs if not solved(rows.start(pair))]
    return dict.fromkeys(worth[: settings.filmstrips], "blocks") | dict.fromkeys(worth[: settings.video], "all")


def _start(pair: Pair, rows: Rows, episodes: Episodes, settings: PlanConfig, stride: int) -> Start:
    first, per_block = int(episodes.offsets[pair.episode]), stride // episodes.frame_stride
    ahead = min((pair.goal - pair.start) // per_block, settings.horizon)
    taken = first + pair.start + np.arange(ahead * per_block)
    before = min(pair.start // per_block, settings.context - 1) if settings.history == "recorded" else 0
    past = []
    for block in range(before, 0, -1):
        row = first + pair.start - block * per_block
        past.append((episodes.frames(np.array([row]))[0], episodes.actions[row : row + per_block].reshape(-1)))
    return Start(
        pair=pair,
        row=rows.start(pair),
        goal=rows(pair.episode, pair.goal),
        goal_frame=episodes.frames(np.array([first + pair.goal]))[0],
        recorded_kA=episodes.actions[taken].reshape(ahead, -1),
        past=tuple(past),
    )


def run_policies(
    policies: Sequence[str],
    course: Course,
    *,
    model: LatentModel | None = None,
    actions: Actions | None = None,
    readout_DS: Tensor | None = None,
    on_episode: Tick = lambda: None,
) -> dict[str, list[Trajectory]]:
    """Each policy's episodes on the whole course, in its order; `model` is the policy of that name."""
    assert model is not None or "model" not in policies
    size = group_size(len(course.starts))
    groups = [course.starts[i : i + size] for i in range(0, len(course.starts), size)]
    jobs = [(policy, group) for policy in policies for group in groups]
    bare = replace(course, lists={}, starts=())  # each job brings its own
    work = Work(_runner, (bare, model, actions, readout_DS), name=f"planning {course.task.name}")
    results = run(work, jobs, course.settings.workers or cores(), on_episode)
    done: dict[str, list[Trajectory]] = {policy: [] for policy in policies}
    for (policy, _), trajectories in zip(jobs, results, strict=True):
        done[policy] += trajectories
    return done


def group_size(episodes: int) -> int:
    """Episodes planned side by side. Few are shared out further: every process gets some, and fewer simulators."""
    return max(1, min(SIDE_BY_SIDE, -(-episodes // LEAST_GROUPS)))


def _runner(
    course: Course, model: Any, actions: Actions | None, readout_DS: Tensor | None, on_episode: Tick
) -> Callable[[tuple[str, Sequence[Start]]], list[Trajectory]]:
    task, settings = course.task, course.settings
    planner = None
    if model is not None:
        planner = Planner(model, settings=settings, actions=actions, readout_DS=readout_DS, solver_settings=course.solver)

    def simulators(count: int) -> list[Simulator]:
        return side_by_side(task, course.frame_size, course.render, count)

    def do(job: tuple[str, Sequence[Start]]) -> list[Trajectory]:
        policy, starts = job
        if policy == "model":
            assert planner is not None
            done = plan_and_execute(planner, starts, simulators(len(starts)), task)
        else:
            unfilmed = [replace(start, film="none") for start in starts]
            done = follow(policy, unfilmed, simulators(1)[0], task, settings, course.stride)
        for _ in done:
            on_episode()
        return done

    return do
