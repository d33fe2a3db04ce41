"""TwoRooms: a dot finds its way through the door between two rooms (`swm/TwoRoom-v1`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phylatent.schema import PhysicalTarget, Row, TaskSpec

SUCCESS_RADIUS = 16.0
ACTION_NOISE = 2.0


def read_columns(env: Any) -> Row:
    agent = np.asarray(env.agent_position, dtype=np.float32).copy()
    goal = np.asarray(env.target_position, dtype=np.float32).copy()
    return {"proprio": agent, "state": agent.copy(), "goal_state": goal}


def restore(env: Any, row: Row) -> None:
    env._set_state(row["state"])
    if "goal_state" in row:
        env._set_goal_state(row["goal_state"])


def solved(row: Row, goal_row: Row) -> bool:
    return bool(np.linalg.norm(row["state"] - goal_row["goal_state"]) < SUCCESS_RADIUS)


def behaviour(simulator: Any, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """The noisy expert, sent to a new target whenever it arrives, so that an episode never ends early."""
    expert = simulator.expert(action_noise=ACTION_NOISE, seed=int(rng.integers(2**31)))
    position = simulator.env.variation_space["target"]["position"]

    def act() -> np.ndarray:
        row = simulator.columns()
        if solved(row, row):
            simulator.env._set_goal_state(rng.uniform(position.low, position.high).astype(np.float32))
        return expert.get_action(simulator.columns())

    return act


TASK = TaskSpec(
    name="tworooms",
    title="TwoRooms",
    env_id="swm/TwoRoom-v1",
    action_low=(-1.0, -1.0),
    action_high=(1.0, 1.0),
    target=PhysicalTarget(columns=("proprio",), names=("x", "y")),
    objectives={
        "psg": {"weight": 0.20},
        "fra": {"weight": 0.08},
        "svic": {"weight": 0.03, "brightness": 0.030, "channel": 0.020},
        "casc": {"weight": 0.02, "action_noise": 0.100, "margin_scale": 0.080, "max_margin": 1.00},
        "ld": {"weight": 0.01, "sigma_min": 0.05, "sigma_max": 0.35},
    },
    episode_steps=100,
    columns=("proprio", "state", "goal_state"),
    moving_dims=(0, 1),
    moving_tolerance=1.0,
    presets={"paper": {"train": {"max_steps_per_epoch": 10_000}}},
    expert="stable_worldmodel.envs.two_room.expert_policy:ExpertPolicy",
    behaviour=behaviour,
    read_columns=read_columns,
    restore=restore,
    solved=solved,
)
