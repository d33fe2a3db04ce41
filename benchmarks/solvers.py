"""Which solver gets how far with equally many rollouts of the model: costs reached and success on a run's validation pairs.

    python benchmarks/solvers.py RUN [key=value ...]     # minutes; writes benchmarks/results/solvers-TASK.json, prints a table

Keys are those of `phylatent plan`, and those of every solver (`icem.beta=3`); `solvers=cem,icem` measures these alone, `out=`
is another place for the result. The run is only read.

Every search may spend `plan.candidates` × `plan.iterations` rollouts. A step down the gradient counts as three: once forward,
and backward about twice as much. Rollouts are counted here as they happen, not computed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from phylatent.errors import PhylatentError
from phylatent.judging.subject import Subject, judging_overrides, load_subject
from phylatent.planning.closed_loop import Trajectory
from phylatent.planning.evaluate import Course, lay_out, run_policies
from phylatent.planning.planner import Planner
from phylatent.planning.record import summarise
from phylatent.planning.solvers import SOLVERS
from phylatent.records import provenance, write_json

HERE = Path(__file__).parent
GIVEN = ("plan.split=validation", "plan.pairs=60", "plan.seeds=[0]", "plan.policy=[model]")
QUIETLY = ("plan.filmstrips=0", "plan.workers=1")
BUDGETS = (0.25, 1)
"""Of the run's own iterations, for the costs that a first plan reaches."""
BACKWARD = 2
"""Rollouts that going backward through one counts as."""


@dataclass
class Counter:
    rollouts: int = 0


@contextmanager
def counted() -> Iterator[Counter]:
    """Counts what planners have their models roll out, and what is differentiated through it."""
    counter, imagine = Counter(), Planner.imagine

    @functools.wraps(imagine)
    def counting(planner: Planner, z: Any, *rest: Any) -> Any:
        counter.rollouts += len(z)
        imagined = imagine(planner, z, *rest)
        if imagined.requires_grad:
            imagined.register_hook(functools.partial(backward, len(z)))
        return imagined

    def backward(count: int, gradient: Any) -> None:
        counter.rollouts += BACKWARD * count

    with patch.object(Planner, "imagine", counting):
        yield counter


def first_plans(course: Course, subject: Subject, budget: float) -> dict[str, Any]:
    """What the plans of the starts promise: the same problems for every solver."""
    iterations = max(1, round(course.settings.iterations * budget))
    short = replace(course, settings=replace(course.settings, iterations=iterations, budget=course.stride))
    with counted() as counter:
        done = run_policies(["model"], short, model=subject.model)["model"]
    plans = [trajectory.plans[0] for trajectory in done if trajectory.plans]
    return {
        "allowed": iterations * course.settings.candidates,
        # Each problem is rolled out twice more: the plan that was found, and the recorded actions.
        "rollouts": counter.rollouts / len(plans) - 2,
        "cost": float(np.mean([plan.planned_cost / plan.start_cost for plan in plans])),
        "recorded": float(np.mean([plan.recorded_cost / plan.start_cost for plan in plans if plan.recorded_cost is not None])),
    }


def episodes(course: Course, subject: Subject) -> dict[str, Any]:
    with counted() as counter:
        results: Mapping[str, Sequence[Trajectory]] = run_policies(["model"], course, model=subject.model)
    plans = sum(len(trajectory.plans) for trajectory in results["model"])
    seconds = sum(trajectory.planning_seconds for trajectory in results["model"])
    found: dict[str, Any] = {}
    for protocol in course.lists:
        record = summarise(course, protocol, results)
        found[protocol] = {name: record["policies"]["model"][name] for name in ("rate", "interval", "successes", "count")}
    settings = {name: value for name, value in record["settings"].items() if name != "workers"}
    return {"success": found, "rollouts": counter.rollouts / plans, "seconds": seconds / plans, "settings": settings}


def measure(run: str, solver: str, keys: Sequence[str]) -> tuple[Subject, dict[str, Any]]:
    others = [name for name in SOLVERS if name != solver]
    mine = [key for key in keys if key.partition(".")[0] not in others]
    subject = load_subject(run, overrides=judging_overrides([*GIVEN, *mine, *QUIETLY, f"solver={solver}"], "plan", ()))
    settings, stride = subject.config.plan, subject.model.config.clip.stride
    course = lay_out(subject.task, subject.episodes, subject.split, settings, stride, subject.config.solver)
    first = [first_plans(course, subject, budget) for budget in BUDGETS]
    return subject, {"first": first, **episodes(course, subject)}


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    some = next(iter(found.values()))
    heads = [f"cost, {first['allowed']} rollouts" for first in some["first"]]
    heads += [f"success, {protocol}" for protocol in some["success"]] + ["rollouts of a plan", "seconds of a plan"]
    lines = [f"| solver | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for solver, one in found.items():
        cells = [f"{first['cost']:.3f}" for first in one["first"]]
        for success in one["success"].values():
            low, high = success["interval"]
            cells.append(f"{100 * success['rate']:.0f} % [{100 * low:.0f}, {100 * high:.0f}]")
        lines.append(f"| `{solver}` | {' | '.join([*cells, format(one['rollouts'], '.0f'), format(one['seconds'], '.2f')])} |")
    return "\n".join(lines)


def main(run: str, *keys: str) -> None:
    own = {key.partition("=")[0]: key.partition("=")[2] for key in keys if key.startswith(("out=", "solvers="))}
    keys = tuple(key for key in keys if key.partition("=")[0] not in own)
    found = {}
    for solver in own["solvers"].split(",") if "solvers" in own else list(SOLVERS):
        subject, found[solver] = measure(run, solver, keys)
        print(f"{solver} is measured", file=sys.stderr, flush=True)
    path = Path(own.get("out") or HERE / "results" / f"solvers-{subject.task.name}.json")
    made = {name: value for name, value in provenance().items() if name != "command"}  # it holds paths of this machine
    write_json(path, {"model": subject.facts, "solvers": found, "provenance": made})
    print(table(found))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except PhylatentError as error:
        sys.exit(f"error: {error}")
