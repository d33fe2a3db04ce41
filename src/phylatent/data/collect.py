"""`collect`: episodes of a task's behaviour policy, in a file that is whole or does not exist.

Finished shards wait in `<file>.parts/` until all are there. Whatever stops a collection, the same call goes on with it.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py

from phylatent.data.shards import Plan, merge_shards, shard_path, write_shard
from phylatent.errors import Interrupted, UserError
from phylatent.files import check_space, check_target, locked, remove_partials
from phylatent.machine import check_memory
from phylatent.processes import Tick, Work, run
from phylatent.reading import read_json
from phylatent.records import write_json
from phylatent.schema import AS_PUBLISHED, CollectConfig, TaskSpec
from phylatent.simulator import Simulator, check_installed

log = logging.getLogger(__name__)
Progress = Callable[[int, int], None]
"""(episodes done, episodes in all)"""


@dataclass(frozen=True)
class Job:
    task: TaskSpec
    plan: Plan
    parts: Path


def _collector(job: Job, on_episode: Tick) -> Callable[[int], None]:
    simulator = Simulator(job.task, job.plan.frame_size, job.plan.render)
    return lambda shard: write_shard(simulator, job.task, job.plan, job.parts, shard, on_episode)


def collect(task: TaskSpec, settings: CollectConfig, *, seed: int, path: Path, progress: Progress | None = None) -> Path:
    """Collect into `path` and return it; at once if it already holds exactly this collection."""
    path = Path(path)
    check_target(path)
    plan = make_plan(task, settings, seed)
    _check_extent(plan, task, path)
    parts = path.with_name(path.name + ".parts")
    if is_collected(path, plan) and not parts.exists():
        log.info("%s is already collected", path)
        return path
    check_installed(task, "collect")
    busy = f"another process is collecting {path} right now; wait for it, or choose another file"
    with locked(parts, "lock", busy=busy, elsewhere="choose another place for the data"):
        if not is_collected(path, plan):
            _check_parts(parts, path, plan)
            _collect_shards(Job(task, plan, parts), path, settings.workers, progress)
            if not is_collected(path, plan):
                merge_shards(plan, parts, path)
        shutil.rmtree(parts, ignore_errors=True)  # another process may just have come, to find that all is done
    return path


def make_plan(task: TaskSpec, settings: CollectConfig, seed: int) -> Plan:
    if task.behaviour is None:
        raise UserError(f"task {task.name!r} is declared without a behaviour policy so far, so it cannot be collected")
    if seed < 0:
        raise UserError(f"seed is {seed}; it must be 0 or above")
    return Plan(
        task=task.name,
        env_id=task.env_id,
        env_kwargs=dict(task.env_kwargs),
        seed=seed,
        episodes=settings.episodes,
        steps=settings.steps,
        frame_size=settings.frame_size,
        frame_stride=settings.frame_stride,
        shard_episodes=settings.shard_episodes,
        render=settings.render if task.render_fast is not None else AS_PUBLISHED,
    )


def _check_extent(plan: Plan, task: TaskSpec, path: Path) -> None:
    """An error for a collection that does not fit memory, where an episode is held whole, or the disk."""
    check_memory({"collect.steps and collect.frame_size": plan.rows * 3 * plan.frame_size**2}, "an episode")
    row = 8 + 4 * task.action_dim * plan.frame_stride
    place = next(parent for parent in path.absolute().parents if parent.is_dir())
    check_space(path, plan.episodes * plan.rows * row, place, advice="or take fewer collect.episodes")


def is_collected(path: Path, plan: Plan) -> bool:
    """Whether `path` holds this very collection. Anything else of that name is the user's and never overwritten."""
    if not path.exists():
        return False
    advice = "nothing was overwritten: choose another file, or move this one away"
    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            found = json.loads(file.attrs["plan"])
        if not isinstance(found, dict):
            raise TypeError("a plan is an object")
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:  # RecursionError is one of the last
        raise UserError(f"{path} exists and was not written by `phylatent collect`; {advice}") from error
    changes = differences(found, plan.content())
    if changes:
        raise UserError(f"{path} exists and holds another collection ({changes}); {advice}")
    return True


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """What two plans do not agree on, in words; nothing if they do."""
    wanted = json.loads(json.dumps(wanted))
    names = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    return ", ".join(f"{name} is {found.get(name)} there and {wanted.get(name)} here" for name in names)


def _check_parts(parts: Path, path: Path, plan: Plan) -> None:
    """Go on only with what was begun, and without what a killed process left half-written."""
    record = parts / "plan.json"
    if record.exists():
        changes = differences(read_json(record, again=f"delete {parts} to begin anew"), asdict(plan))
        if changes:
            raise UserError(
                f"{parts} holds an unfinished collection of another kind ({changes}); "
                f"run the command it was begun with to finish it, or delete that directory to begin anew"
            )
    else:
        write_json(record, asdict(plan))
    _remove_partials(parts, path)


def _remove_partials(parts: Path, path: Path) -> None:
    remove_partials(parts)
    remove_partials(path.parent, f"{path.name}.")


def _collect_shards(job: Job, path: Path, workers: int, progress: Progress | None) -> None:
    missing = [shard for shard in range(job.plan.shards) if not shard_path(job.parts, shard).exists()]
    done = job.plan.episodes - sum(len(job.plan.members(shard)) for shard in missing)

    def on_episode(count: int = 1) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, job.plan.episodes)

    on_episode(0)
    work = Work(
        _collector,
        (job,),
        name=f"collecting {job.task.name}",
        advice="finished shards are kept: run the same command to go on",
    )
    try:
        run(work, missing, workers, on_episode)
    except KeyboardInterrupt:
        kept = sum(len(job.plan.members(i)) for i in range(job.plan.shards) if shard_path(job.parts, i).exists())
        raise Interrupted(
            f"collecting {path} was interrupted; {kept} of {job.plan.episodes} episodes are kept in {job.parts}: "
            f"run the same command to go on"
        ) from None
    finally:
        _remove_partials(job.parts, path)
