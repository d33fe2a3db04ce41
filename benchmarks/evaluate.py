"""Seconds of evaluating 20 episodes: `phylatent plan`'s machinery against stable-worldmodel's `World.evaluate`.

    python benchmarks/evaluate.py [TASK ...]     # minutes; writes benchmarks/results/evaluate.json

Equal on both sides: the weights (random, of laptop size), the 20 start/goal pairs, budget, candidates, elites, iterations,
horizon, whole plans executed; with random weights hardly an episode ends before its budget does. Both get two cores: ours as
two processes of one thread, the peer as threads. What differs is what is compared: the peer draws a 224-px frame of every
environment at every step, as published, and plans one episode after the other (its LeWM allows no more); ours draws
where a plan looks, on Cube without shadows (`collect.render=fast`, as at laptop size), and plans eight episodes side by side.
Starting our processes and making their simulators counts, making the peer's `World` does not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from peer_lewm import LAPTOP, both

from phylatent.composition import compose
from phylatent.data.collect import collect
from phylatent.data.readers import open_episodes
from phylatent.data.stats import split_episodes
from phylatent.planning.evaluate import Course, lay_out, run_policies
from phylatent.planning.stable_worldmodel import ActionScaler
from phylatent.schema import PlanConfig, SplitConfig, TaskSpec
from phylatent.simulator import prepare_renderer
from phylatent.tasks import get_task

EPISODES = 20
SETTINGS = PlanConfig(
    protocol=("moderate",),  # no pair that is solved at the start: ours would not plan at all there, the peer does
    policy=("model",),
    pairs=EPISODES,
    seeds=(0,),
    candidates=64,
    elites=8,
    iterations=8,
    filmstrips=0,
)
DATA = ["collect.episodes=4", "collect.steps=60", "collect.shard_episodes=2", "collect.frame_stride=1"]
"""Pairs come from a few short episodes. A row for every step: the peer cannot read blocks of actions."""
TASKS = {"tworooms": (3, 2.0), "cube": (1, 10.0)}
"""Repetitions, and the ratio asked for; Cube takes the peer minutes."""
SETTERS: dict[str, list[dict[str, Any]]] = {
    "tworooms": [
        {"method": "_set_state", "args": {"state": {"value": "state"}}},
        {"method": "_set_goal_state", "args": {"goal_state": {"value": "goal_state"}}},
    ],
    "cube": [
        {"method": "set_state", "args": {"qpos": {"value": "qpos"}, "qvel": {"value": "qvel"}}},
        {
            "method": "set_target_pos",
            "args": {"cube_id": {"value": 0, "in_dataset": False}, "target_pos": {"value": "goal_privileged_block_0_pos"}},
        },
    ],
}


def measure(name: str, folder: Path) -> harness.Row:
    task, (repetitions, asked) = get_task(name), TASKS[name]
    settings = compose(task=name, preset="laptop", overrides=DATA).collect
    data = collect(task, settings, seed=0, path=folder / f"{name}.h5")
    theirs, model = both(LAPTOP, len(task.action_low), 1.0)
    episodes = open_episodes(data, task)
    course = lay_out(task, episodes, split_episodes(4, SplitConfig(test=0.5)), SETTINGS, model.config.clip.stride)
    evaluate = peer_evaluation(task, course, data, theirs, model)
    solved: dict[str, int] = {}

    def ours() -> None:
        done = run_policies(["model"], course, model=model)["model"]
        solved["ours"] = sum(len(one.rows) <= SETTINGS.budget for one in done)

    def peer() -> None:
        solved["peer"] = int(evaluate()["episode_successes"].sum())

    pairs = harness.in_turns(lambda: harness.seconds(ours), lambda: harness.seconds(peer), repetitions)
    what = f"{task.title}, {EPISODES} episodes"
    return harness.compared(what, pairs, unit="s", peer_name="World.evaluate", asked=asked, solved=solved)


def peer_evaluation(task: TaskSpec, course: Course, data: Path, theirs: Any, model: Any) -> Any:
    """A function that runs `World.evaluate` on the course's pairs, and returns what it returns."""
    prepare_renderer()
    import stable_worldmodel as swm
    from stable_worldmodel.data.formats.hdf5 import HDF5Dataset
    from stable_worldmodel.policy import PlanConfig as PeerConfig
    from stable_worldmodel.policy import WorldModelPolicy
    from stable_worldmodel.solver import CEMSolver

    def normalised(frame_CHW: Any) -> torch.Tensor:
        return model.normalise_frames(torch.as_tensor(np.asarray(frame_CHW)).permute(1, 2, 0))

    world = swm.World(
        task.env_id,
        num_envs=EPISODES,
        image_shape=(LAPTOP.image,) * 2,
        max_episode_steps=SETTINGS.budget + 1,
        **task.env_kwargs,
    )
    counts = {"num_samples": SETTINGS.candidates, "topk": SETTINGS.elites, "n_steps": SETTINGS.iterations}
    solver = CEMSolver(model=theirs, batch_size=1, **counts)
    config = PeerConfig(horizon=SETTINGS.horizon, receding_horizon=SETTINGS.receding, action_block=5, warm_start=False)
    transform = {"pixels": normalised, "goal": normalised}
    world.set_policy(
        WorldModelPolicy(solver=solver, config=config, process={"action": ActionScaler(model)}, transform=transform)
    )
    pairs = [start.pair for start in course.starts]
    columns = [name for name in ("pixels", "action", *task.columns) if not name.startswith("goal")]
    return lambda: world.evaluate(
        dataset=HDF5Dataset(path=data, keys_to_load=columns),
        episodes_idx=[pair.episode for pair in pairs],
        start_steps=[pair.start for pair in pairs],
        goal_offset=SETTINGS.goal_steps,
        eval_budget=SETTINGS.budget,
        callables=SETTERS[task.name],
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        harness.write("evaluate", [measure(name, Path(folder)) for name in sys.argv[1:] or TASKS])
