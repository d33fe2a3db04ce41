"""Gymnasium's Pendulum as a task for phylatent: swing a rod to a recorded angle and speed.

phylatent collect task=docs/examples/pendulum.py preset=laptop
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from phylatent.schema import PhysicalTarget, Row, Rule, TaskSpec

MAX_TORQUE = 2.0
ANGLE_TOLERANCE, SPEED_TOLERANCE = 0.2, 1.0


def read_columns(env: Any) -> Row:
    """Copies, in full precision: what is restored from them must be the very same state.

    The last torque is no part of the physics, but the environment draws it as an arrow.
    """
    torque = 0.0 if env.last_u is None else env.last_u
    return {"state": np.array(env.state, dtype=np.float64), "torque": np.array([torque], dtype=np.float32)}


def restore(env: Any, row: Row) -> None:
    env.state = np.array(row["state"], dtype=np.float64)
    env.last_u = row["torque"][0]


def behaviour(simulator: Any, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """Smooth noise, and in half of the time a push along the swing: without it the rod would hardly ever come up."""
    noise, pump = 0.0, False

    def act() -> np.ndarray:
        nonlocal noise, pump
        noise = 0.9 * noise + 0.6 * rng.normal()
        if rng.random() < 0.05:
            pump = not pump
        push = 1.5 * np.sign(simulator.env.state[1]) if pump else 0.0
        return np.clip([push + noise], -MAX_TORQUE, MAX_TORQUE).astype(np.float32)

    return act


def with_goal(row: Row, other: Row) -> Row:
    return row | {"goal_state": other["state"]}


def errors(row: Row, goal_row: Row) -> tuple[float, float]:
    """Of the angle, the short way round, and of the speed."""
    angle, speed = row["state"] - goal_row["goal_state"]
    return abs(math.remainder(angle, 2 * math.pi)), abs(float(speed))


def distance(row: Row, goal_row: Row) -> float:
    return errors(row, goal_row)[0]


def reached(row: Row) -> bool:
    angle, speed = errors(row, row)
    return angle < ANGLE_TOLERANCE and speed < SPEED_TOLERANCE


def not_reached(row: Row) -> bool:
    return not reached(row)


TASK = TaskSpec(
    name="pendulum",
    title="Pendulum",
    env_id="Pendulum-v1",
    env_kwargs={"g": 10.0},
    action_low=(-MAX_TORQUE,),
    action_high=(MAX_TORQUE,),
    columns=("state", "torque"),
    target=PhysicalTarget(
        columns=("state",),
        names=("angle", "speed"),
        modulo={0: 2 * math.pi},
        angles={0: 2 * math.pi},
    ),
    episode_steps=100,
    moving_dims=(0,),
    moving_tolerance=0.05,
    behaviour=behaviour,
    read_columns=read_columns,
    restore=restore,
    with_goal=with_goal,
    distance=distance,
    distance_unit="rad",
    rules={
        "paper": Rule(solved=reached, meaning="closer than 0.2 rad and 1 rad/s"),
        "moderate": Rule(solved=reached, meaning="the same, pairs solved at the start left out", asks=not_reached),
    },
)
