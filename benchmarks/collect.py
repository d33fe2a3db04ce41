"""Frames a second: `phylatent collect` at laptop settings against stable-worldmodel's `World.collect` as shipped.

    python benchmarks/collect.py [TASK ...]     # about four minutes; writes benchmarks/results/collect.json

What differs is what is compared. The peer steps one environment after the other in one process, draws every step at 224 px
as published and writes HDF5 (its default, Lance, asks for episodes from another thread, where MuJoCo's renderer fails). Its
policy is the one it ships for the task, on Reacher random actions, since its expert there needs weights it does not ship.
Ours steps in two processes, draws 64-px frames (Cube, Reacher and PushT with `collect.render=fast`) and writes compressed
HDF5; on Cube it draws one step in five, as the laptop preset does, so that its frames are dearer than the peer's: `steps_ratio`
compares environment steps. Starting our processes counts, making the peer's `World` does not.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness

from phylatent.composition import compose
from phylatent.data.collect import collect
from phylatent.simulator import prepare_renderer
from phylatent.tasks import get_task

REPETITIONS = 3


@dataclass(frozen=True)
class Case:
    episodes: int
    """Of ours, for some ten seconds."""
    peer_episodes: int
    peer_steps: int
    """The longest an episode of the peer may be."""
    policy: str
    asked: float | None = None


CASES = {
    "tworooms": Case(200, 12, 100, "stable_worldmodel.envs.two_room.expert_policy:ExpertPolicy", 3.0),
    "pusht": Case(120, 4, 100, "stable_worldmodel.envs.pusht.expert_policy:WeakPolicy"),
    "reacher": Case(60, 2, 50, "stable_worldmodel.policy:RandomPolicy", 10.0),
    "cube": Case(24, 2, 20, "stable_worldmodel.envs.ogbench.expert_policy:ExpertPolicy", 8.0),
}


def measure(name: str, folder: Path) -> harness.Row:
    prepare_renderer()
    import stable_worldmodel as swm

    case, task = CASES[name], get_task(name)
    shards = f"collect.shard_episodes={-(-case.episodes // 8)}"  # a few for each process, as in a long collection
    config = compose(task=name, preset="laptop", overrides=[f"collect.episodes={case.episodes}", shards]).collect
    frames = case.episodes * (config.steps // config.frame_stride + 1)
    world = swm.World(task.env_id, num_envs=1, image_shape=(224, 224), max_episode_steps=case.peer_steps, **task.env_kwargs)
    module, _, policy_name = case.policy.partition(":")
    policy = getattr(importlib.import_module(module), policy_name)()
    world.set_policy(policy)
    calls = counted(policy)

    def ours() -> float:
        seconds = harness.seconds(lambda: collect(task, config, seed=0, path=folder / f"{name}.h5"))
        (folder / f"{name}.h5").unlink()
        return frames / seconds

    def peer() -> float:
        before, begun = calls["steps"], time.perf_counter()
        world.collect(folder / f"{name}-peer.h5", episodes=case.peer_episodes, seed=0, format="hdf5", progress=False)
        seconds = time.perf_counter() - begun
        (folder / f"{name}-peer.h5").unlink()
        return (calls["steps"] - before) / seconds

    peer()  # its first frames pay for the renderer
    pairs = harness.in_turns(ours, peer, REPETITIONS)
    steps_ratio = config.frame_stride * statistics.median(mine / theirs for mine, theirs in pairs)
    return harness.compared(
        task.title,
        pairs,
        unit="frames/s",
        peer_name="World.collect",
        more_is_better=True,
        asked=case.asked,
        steps_ratio=steps_ratio,
    )


def counted(policy: Any) -> dict[str, int]:
    """How often the policy is asked for an action: once for every frame of the peer's."""
    calls, act = {"steps": 0}, policy.get_action

    def counting(*given: Any, **named: Any) -> Any:
        calls["steps"] += 1
        return act(*given, **named)

    policy.get_action = counting
    return calls


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        harness.write("collect", [measure(name, Path(folder)) for name in sys.argv[1:] or CASES])
