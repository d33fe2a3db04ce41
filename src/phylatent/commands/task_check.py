"""`doctor task=…`: a task's declaration, tried in its simulator. Each check ends in a finding and, if need be, advice."""

# R rows of one episode, d_s physical target

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from rich.console import Console

from phylatent.commands.findings import Finding, check_out, show, write
from phylatent.data.collect import make_plan
from phylatent.data.shards import record_episode
from phylatent.diagnostics.coordinates import physical_target
from phylatent.schema import AS_PUBLISHED, FAST, CollectConfig, Row, TaskSpec
from phylatent.simulator import Simulator
from phylatent.tasks import get_task

STEPS, AHEAD, FRAME_SIZE, SEED = 50, 25, 64, 7
REPLAY_TOLERANCE = 0.01
"""Of a dimension's spread in the episode: columns may hold less precision than the physics, and that grows with time."""


Outcome = tuple[bool, str, str]
"""Whether it is as it should be, what was found, what to do."""


def right(found: str) -> Outcome:
    return True, found, ""


def wrong(found: str, advice: str) -> Outcome:
    return False, found, advice


class Bench:
    """A task, one recorded episode of it, and a second simulator to repeat it in."""

    def __init__(self, task: TaskSpec, render: str = AS_PUBLISHED) -> None:
        self.task, self.render = task, render

    def simulator(self, seed: int = SEED + 1) -> Simulator:
        simulator = Simulator(self.task, FRAME_SIZE, self.render)
        simulator.reset(seed)
        return simulator

    def record(self) -> Row:
        settings = CollectConfig(steps=STEPS, frame_size=FRAME_SIZE, render=self.render)
        return record_episode(self.simulator(), self.task, make_plan(self.task, settings, SEED), episode=0)

    @cached_property
    def episode(self) -> Row:
        return self.record()

    def row(self, index: int) -> Row:
        return {name: self.episode[name][index].copy() for name in self.task.columns}

    def target(self, row: Row) -> np.ndarray:
        return physical_target(self.task, row).astype(np.float64)


def environment(bench: Bench) -> Outcome:
    simulator, task = bench.simulator(), bench.task
    space = simulator.env.action_space
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if low is None or high is None:
        advice = "phylatent plans continuous actions; wrap or choose an environment with a Box action space"
        return wrong(f"its actions are {space}", advice)
    if np.shape(low) != (task.action_dim,):
        advice = "give action_low and action_high one value for each action dimension"
        return wrong(f"actions have shape {list(np.shape(low))}, {task.action_dim} declared", advice)
    if (np.asarray(task.action_low) < low - 1e-6).any() or (np.asarray(task.action_high) > high + 1e-6).any():
        found = f"bounds {list(task.action_low)} to {list(task.action_high)} declared, {low.tolist()} to {high.tolist()} there"
        return wrong(found, "declare bounds that the environment does not cut")
    return right(f"{task.env_id} makes, resets and takes {task.action_dim} continuous actions")


def columns(bench: Bench) -> Outcome:
    simulator, task = bench.simulator(), bench.task
    row = simulator.columns()
    missing = [name for name in task.columns if name not in row]
    if missing:
        return wrong(f"read_columns gives no {missing[0]!r}", "let it, or take it out of columns")
    odd = [name for name in task.columns if np.asarray(row[name]).dtype.kind not in "iufb"]
    if odd:
        return wrong(f"{odd[0]!r} holds no numbers", "columns are arrays of numbers")
    sizes = {name: np.size(row[name]) for name in task.target.columns}
    if sum(sizes.values()) != task.target.dim:
        found = f"the physical target's columns hold {sizes}, but {task.target.dim} dimensions are named"
        return wrong(found, "name each dimension in PhysicalTarget.names")
    if not np.isfinite(bench.target(row)).all():
        return wrong(f"the physical target is {bench.target(row).tolist()} after a reset", "read finite numbers")
    before = {name: np.array(row[name]) for name in task.columns}
    for _ in range(3):
        simulator.step(np.asarray(task.action_high, dtype=np.float32))
    changed = [name for name in task.columns if not np.array_equal(row[name], before[name], equal_nan=True)]
    if changed:
        found = f"{changed[0]!r} of an earlier row changed when the environment stepped"
        return wrong(found, "read_columns must return copies: np.array(…, copy=True)")
    return right(f"{', '.join(task.columns)}; physical target: {', '.join(task.target.names)}")


def behaviour(bench: Bench) -> Outcome:
    actions, task = bench.episode["action"][:-1], bench.task
    if actions.shape[1] != task.action_dim or not np.isfinite(actions).all():
        found = f"its actions have {actions.shape[1]} finite values or fewer, {task.action_dim} declared"
        return wrong(found, "return a finite value for each action dimension")
    low, high = np.asarray(task.action_low), np.asarray(task.action_high)
    if (actions < low - 1e-6).any() or (actions > high + 1e-6).any():
        found = f"actions reach from {actions.min(axis=0).tolist()} to {actions.max(axis=0).tolist()}"
        return wrong(found, "clip them to the bounds: what is recorded must be what was done")
    if (np.ptp(actions, axis=0) == 0).any():
        return wrong("an action dimension never changes", "explore every dimension")
    again = bench.record()
    differs = [name for name, values in again.items() if not np.array_equal(values, bench.episode[name], equal_nan=True)]
    if differs:
        found = f"the same episode recorded twice differs in {', '.join(differs)}"
        return wrong(found, "draw from the rng that behaviour is given, and from nothing else")
    return right(f"{STEPS} actions within the bounds, the same when the episode is recorded again")


def frames(bench: Bench) -> Outcome:
    pixels = bench.episode["pixels"]
    if pixels.shape[1:] != (FRAME_SIZE, FRAME_SIZE, 3) or pixels.dtype != np.uint8:
        return wrong(f"{pixels.dtype} {list(pixels.shape[1:])}", "draw uint8 [height, width, 3]")
    if (pixels == pixels[0]).all():
        return wrong("every frame of an episode is the same", "draw what moves, large enough to be seen")
    return right("drawn, and they change with the state")


def restore(bench: Bench) -> Outcome:
    """In an order that leaves nothing of a row's own past in the simulator."""
    simulator, rows = bench.simulator(), len(bench.episode["pixels"])
    for index in np.random.default_rng(SEED).permutation(rows).tolist():
        recorded = bench.row(index)
        simulator.restore(recorded)
        found = simulator.columns()
        differ = [c for c in bench.task.columns if not _same(found[c], recorded[c])]
        if differ:
            said = (
                f"row {index} restored reads {differ[0]} = {_short(found[differ[0]])}, recorded: {_short(recorded[differ[0]])}"
            )
            return wrong(said, "restore must set all that read_columns reads, in full precision")
        off = np.abs(simulator.frame().astype(int) - bench.episode["pixels"][index]).max(axis=-1)
        if off.any():
            said = f"row {index} restored is drawn otherwise: {int((off > 0).sum())} pixels differ, by up to {int(off.max())}"
            return wrong(said, "record and restore whatever else the drawing shows")
    return right(f"{rows} rows restored: the recorded columns, and the recorded frames to the pixel")


def replay(bench: Bench) -> Outcome:
    task, simulator = bench.task, bench.simulator()
    recorded = np.stack([bench.target(bench.row(index)) for index in range(STEPS + 1)])
    spread = np.where(recorded.std(axis=0) > 1e-8, recorded.std(axis=0), 1.0)
    worst = np.zeros(task.target.dim)
    for start in range(0, STEPS, STEPS // 5):
        simulator.restore(bench.row(start))
        for step in range(start, STEPS):
            simulator.step(bench.episode["action"][step])
            error = np.abs(bench.target(simulator.columns()) - recorded[step + 1])
            for dimension, period in {**task.target.angles, **task.target.modulo}.items():
                error[dimension] = min(error[dimension] % period, -error[dimension] % period)
            worst = np.maximum(worst, error / spread)
    dimension = int(worst.argmax())
    off = f"{worst[dimension]:.2g} of the spread off ({task.target.names[dimension]})"
    found = f"recorded actions from a restored row end up to {off}"
    if worst[dimension] > REPLAY_TOLERANCE or not np.isfinite(worst).all():
        return wrong(found, "record and restore all that the physics uses: velocities, contacts, counters")
    return right(found)


def rules(bench: Bench) -> Outcome:
    task = bench.task
    assert task.with_goal is not None
    assert task.distance is not None
    first, later = bench.row(0), bench.row(AHEAD)
    asked = task.with_goal(first, later)
    kept = [row[c] for row in (first, asked) for c in task.target.columns]
    if not all(np.array_equal(a, b) for a, b in zip(kept, [bench.row(0)[c] for c in task.target.columns] * 2, strict=True)):
        return wrong("with_goal changes the row's own state", "add the goal under a column of its own")
    there = task.with_goal(later, later)
    for protocol, rule in task.rules.items():
        if not rule.solved(there):
            return wrong(f"a state is not solved under {protocol!r} with itself as its goal", "mend that rule")
    if abs(task.distance(there, there)) > 1e-3:
        found = f"a state is {task.distance(there, there):.3g} {task.distance_unit} from itself as its goal"
        return wrong(found, "distance must be 0 there")
    pairs = [task.with_goal(bench.row(t), bench.row(t + AHEAD)) for t in range(STEPS - AHEAD + 1)]
    share = float(np.mean([task.rules["paper"].solved(pair) for pair in pairs]))
    found = f"{', '.join(task.rules)}; {share:.0%} of goals {AHEAD} steps ahead are solved at the start"
    return right(found) if share < 1 else wrong(found, "no goal asks for anything: ask for more precision")


def _same(found: np.ndarray, recorded: np.ndarray) -> bool:
    """Up to the last bits: a column may be computed from the state, by a way that rounds otherwise after a restore."""
    return np.shape(found) == np.shape(recorded) and np.allclose(found, recorded, rtol=1e-6, atol=1e-6, equal_nan=True)


def _short(value: np.ndarray) -> str:
    return np.array2string(np.asarray(value), precision=6, threshold=8)


CHECKS: dict[str, Callable[[Bench], Outcome]] = {
    "environment": environment,
    "columns": columns,
    "behaviour": behaviour,
    "frames": frames,
    "restore": restore,
    "replay": replay,
    "rules": rules,
}
DRAWN = ("frames", "restore")
"""Checks that look at frames, and so at each way of drawing them."""


def examine_task(task: TaskSpec, checks: Sequence[str] = tuple(CHECKS)) -> list[Finding]:
    """Every check; one that breaks is a finding, and the others go on."""
    published = Bench(task)
    findings = []
    for name in checks:
        findings.append(_tried(name, published))
        if name in DRAWN and task.render_fast is not None:
            findings.append(_tried(name, Bench(task, FAST)))
    return findings


def _tried(name: str, bench: Bench) -> Finding:
    title = name if bench.render == AS_PUBLISHED else f"{name}, {bench.render}"
    try:
        good, found, advice = CHECKS[name](bench)
        return Finding(title, found, good, advice)
    except Exception as error:  # the declaration's own code can raise anything
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Finding(title, said, False, "mend this, or what is wrong above, first")


def check_task(name: str, console: Console, out: Path | None = None) -> None:
    """Show the findings about a task, named or by its file; an error unless all are good."""
    check_out(out)
    task = get_task(name)
    findings = examine_task(task)
    if out is not None:
        write(out, findings, task=task.name)
    show(f"phylatent doctor task={task.name}", findings, console, bad="wrong")
