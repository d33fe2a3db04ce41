"""What an evaluation leaves behind: per policy a rate with its interval, per episode what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from phylatent.planning.closed_loop import Trajectory
from phylatent.planning.evaluate import Course
from phylatent.planning.imagination import failure_cause, imagination
from phylatent.planning.pairs import Pair, rule_of
from phylatent.planning.protocols import Outcome, score
from phylatent.planning.solvers import find_solver, has_settings, make_settings
from phylatent.statistics import EPISODES, spread, success_interval, wilson


def outcomes(course: Course, protocol: str, trajectories: Sequence[Trajectory]) -> list[Outcome]:
    """Of one policy, in the order of the protocol's list."""
    return [score(t.rows, rule_of(course.task, protocol), course.task) for t in course.of(protocol, trajectories)]


def summarise(course: Course, protocol: str, results: Mapping[str, Sequence[Trajectory]]) -> dict[str, Any]:
    pairs = course.lists[protocol]
    policies, episodes, imagined = {}, {}, None
    already = 0
    for policy, trajectories in results.items():
        mine = course.of(protocol, trajectories)
        scored = outcomes(course, protocol, trajectories)
        policies[policy] = _policy(pairs.pairs, mine, scored)
        episodes[policy] = [_episode(i, p, t, o) for i, (p, t, o) in enumerate(zip(pairs.pairs, mine, scored, strict=True))]
        already = sum(outcome.first_success == 0 for outcome in scored)
        if policy == "model":
            imagined = imagination(mine, [outcome.success for outcome in scored])
    return {
        "protocol": protocol,
        "rule": rule_of(course.task, protocol).meaning,
        "notes": _notes(course, protocol),
        "settings": asdict(course.settings) | _own_settings(course),
        "pairs": {
            "file": "pairs.json",
            "hash": pairs.hash,
            "count": len(pairs.pairs),
            "seeds": list(course.settings.seeds),
            "distinct": len({(pair.episode, pair.start) for pair in pairs.pairs}),
        },
        "data": {"fingerprint": pairs.data},
        "split": course.side.facts,
        "unit": course.task.distance_unit,
        "already_solved": already,
        "policies": policies,
        "imagination": imagined,
        "episodes": episodes,
    }


def _own_settings(course: Course) -> dict[str, Any]:
    """The solver's, under its name, as on the command line."""
    solver = find_solver(course.settings.solver)
    return {solver.name: asdict(make_settings(solver, course.solver))} if has_settings(solver) else {}


def _notes(course: Course, protocol: str) -> list[str]:
    """What a reader must know about the list."""
    pairs, settings = course.lists[protocol].pairs, course.settings
    notes = []
    if settings.list is None and len(pairs) < settings.pairs * len(settings.seeds):
        wanted = settings.pairs * len(settings.seeds)
        notes.append(f"the {course.side.name} episodes have only {len(pairs)} of the {wanted} pairs asked for")
    repeated = len(pairs) - len({(pair.episode, pair.start) for pair in pairs})
    if repeated:
        notes.append(f"{repeated} of {len(pairs)} pairs occur under more than one evaluation seed")
    return notes


def _policy(pairs: Sequence[Pair], trajectories: Sequence[Trajectory], scored: Sequence[Outcome]) -> dict[str, Any]:
    per_seed = []
    for seed in dict.fromkeys(pair.seed for pair in pairs):
        won = [outcome.success for pair, outcome in zip(pairs, scored, strict=True) if pair.seed == seed]
        per_seed.append({"seed": seed, "successes": sum(won), "count": len(won), "rate": sum(won) / len(won)})
    successes, count = sum(outcome.success for outcome in scored), len(scored)
    steps = [outcome.first_success for outcome in scored if outcome.first_success is not None]
    planned = [t.planning_seconds for t in trajectories if t.plans]
    return {
        "rate": successes / count,
        "interval": list(success_interval([outcome.success for outcome in scored], [pair.episode for pair in pairs])),
        "interval_of": EPISODES,
        "wilson": list(wilson(successes, count)),
        "successes": successes,
        "count": count,
        "per_seed": per_seed,
        "spread": spread([entry["rate"] for entry in per_seed]),
        "median_steps": float(np.median(steps)) if steps else None,
        "mean_final_distance": float(np.mean([outcome.final_distance for outcome in scored])),
        "planning_seconds": float(np.mean(planned)) if planned else None,
    }


def _episode(index: int, pair: Pair, trajectory: Trajectory, outcome: Outcome) -> dict[str, Any]:
    record = {"pair": index, **asdict(pair), **asdict(outcome)}
    if trajectory.plans:
        costs = ("step", "start_cost", "planned_cost", "imagined_cost", "real_cost", "recorded_cost")
        record["planning_seconds"] = trajectory.planning_seconds
        record["plans"] = [{name: getattr(plan, name) for name in costs} for plan in trajectory.plans]
        record["verdict"] = None if outcome.success else failure_cause(trajectory)
    return record
