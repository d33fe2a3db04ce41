"""Reacher: a two-joint arm takes a joint configuration (`swm/ReacherDMControl-v0`).

`to_target` is part of the paper's physical target although the frames do not show it: the target is transparent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from phylatent.schema import PhysicalTarget, Row, Rule, TaskSpec
from phylatent.tasks._mujoco import small_renderer

JOINT_TOLERANCE = 0.05
FINGERTIP_TOLERANCE = 0.01
LINKS = (0.12, 0.12)
TURN = 2 * math.pi

GOAL = "phylatent_goal_qpos"
"""The environment's own goal would end, and so reset, an episode at its first success: it is never set."""

WRIST_RANGE = 2.6
"""Waypoints stay short of the joint's stop at 2.79."""


def read_columns(env: Any) -> Row:
    physics = env.env.physics
    qpos, qvel = physics.data.qpos.copy(), physics.data.qvel.copy()
    return {
        "observation": np.concatenate([qpos, physics.finger_to_target(), qvel]).astype(np.float32),
        "qpos": qpos,
        "qvel": qvel,
        "target_pos": physics.named.model.geom_pos["target", :2].copy(),
        "goal_qpos": np.array(getattr(env, GOAL, qpos), dtype=np.float64),
    }


def restore(env: Any, row: Row) -> None:
    """Also winds back the environment's clock: past its time limit the next step would be a reset."""
    physics, clock = env.env.physics, env.env._env
    setattr(env, GOAL, np.asarray(row.get("goal_qpos", row["qpos"]), dtype=np.float64))
    clock._step_count, clock._reset_next_step = 0, False
    if "target_pos" in row:
        physics.named.model.geom_pos["target", :2] = row["target_pos"]
    physics.data.qacc_warmstart[:] = 0
    env.set_state(np.asarray(row["qpos"], dtype=np.float64), np.asarray(row["qvel"], dtype=np.float64))


def render_fast(env: Any, size: int) -> np.ndarray:
    """The published camera at twice the size, averaged down, without any effect of light but the light itself."""
    physics = env.env.physics
    renderer = small_renderer(env, physics.model.ptr, 2 * size)
    renderer.update_scene(physics.data.ptr, camera=env.camera_id)
    renderer.scene.flags[:] = 0
    return np.asarray(Image.fromarray(renderer.render()).resize((size, size), Image.Resampling.BOX))


def with_goal(row: Row, goal: Row) -> Row:
    return row | {"goal_qpos": goal["qpos"]}


def wrapped(angle: np.ndarray) -> np.ndarray:
    """The same angle in [−π, π)."""
    return (angle + math.pi) % TURN - math.pi


def joint_errors(row: Row, goal_row: Row, *, turns_count: bool) -> np.ndarray:
    """The absolute errors of shoulder and wrist. The shoulder turns freely: it may count modulo one turn; the wrist cannot."""
    error = np.asarray(row["qpos"]) - np.asarray(goal_row["goal_qpos"])
    if not turns_count:
        error = np.array([wrapped(error[0]), error[1]])
    return np.abs(error)


def fingertip(qpos: np.ndarray) -> np.ndarray:
    shoulder, both = qpos[0], qpos[0] + qpos[1]
    return np.array(
        [LINKS[0] * np.cos(shoulder) + LINKS[1] * np.cos(both), LINKS[0] * np.sin(shoulder) + LINKS[1] * np.sin(both)]
    )


def distance(row: Row, goal_row: Row) -> float:
    """The larger joint error, the shoulder's modulo a turn."""
    return float(joint_errors(row, goal_row, turns_count=False).max())


def matched(row: Row) -> bool:
    return bool((joint_errors(row, row, turns_count=True) < JOINT_TOLERANCE).all())


def matched_modulo(row: Row) -> bool:
    return distance(row, row) < JOINT_TOLERANCE


def not_matched_modulo(start: Row) -> bool:
    return not matched_modulo(start)


def touched(row: Row) -> bool:
    return bool(np.linalg.norm(fingertip(row["qpos"]) - fingertip(row["goal_qpos"])) <= FINGERTIP_TOLERANCE)


def not_touched(start: Row) -> bool:
    return not touched(start)


def drive(row: Row, waypoint: np.ndarray, stiffness: float, damping: float) -> np.ndarray:
    """The torques of a spring and a damper towards a joint configuration."""
    return stiffness * (waypoint - row["qpos"]) - damping * row["qvel"]


def behaviour(simulator: Any, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """From one random joint configuration to the next, at a speed of its own each time, with slowly and quickly varying noise.

    White noise alone would leave the arm where it is. Here it moves most of the time, and rests a while where it arrives. The
    quick part is what a planner's candidates look like, and a model must have seen what becomes of them.
    """
    stiffness, left = 0.0, 0
    level, jitter = rng.uniform(0.0, 0.2), rng.uniform(0.0, 0.5)
    noise = np.zeros(2)

    def act() -> np.ndarray:
        nonlocal stiffness, left, noise
        row = simulator.columns()
        if left == 0:
            turn = row["qpos"][0] + rng.uniform(-math.pi, math.pi)
            setattr(simulator.env, GOAL, np.array([turn, rng.uniform(-WRIST_RANGE, WRIST_RANGE)]))
            stiffness, left = float(np.exp(rng.uniform(np.log(0.15), np.log(1.5)))), int(rng.integers(10, 60))
        left -= 1
        noise = 0.8 * noise + 0.6 * level * rng.normal(size=2)
        pull = drive(row, getattr(simulator.env, GOAL), stiffness, damping=0.1)
        return np.clip(pull + noise + jitter * rng.normal(size=2), -1, 1).astype(np.float32)

    return act


def expert(simulator: Any, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """Straight to the goal in force; it knows the joints' angles and velocities."""

    def act() -> np.ndarray:
        row = simulator.columns()
        return np.clip(drive(row, row["goal_qpos"], stiffness=1.5, damping=0.12), -1, 1).astype(np.float32)

    return act


TASK = TaskSpec(
    name="reacher",
    title="Reacher",
    env_id="swm/ReacherDMControl-v0",
    env_kwargs={"task": "qpos_match"},
    action_low=(-1.0, -1.0),
    action_high=(1.0, 1.0),
    target=PhysicalTarget(
        columns=("observation",),
        names=("shoulder", "wrist", "to_target_x", "to_target_y", "shoulder_velocity", "wrist_velocity"),
        angles={0: TURN, 1: TURN},
    ),
    objectives={
        "psg": {"weight": 0.045},
        "fra": {"weight": 0.025},
        "svic": {"weight": 0.030, "brightness": 0.012, "channel": 0.008},
        "casc": {"weight": 0.015, "action_noise": 0.025, "margin_scale": 0.025, "max_margin": 0.35},
        "ld": {"weight": 0.005, "sigma_min": 0.05, "sigma_max": 0.10},
        "inverse": {"weight": 5.0},
    },
    episode_steps=200,
    columns=("observation", "qpos", "qvel", "target_pos", "goal_qpos"),
    severities={"brightness": 8.0, "colour": 1.6, "texture": 4.5, "noise": 0.1},
    moving_dims=(0, 1),
    moving_tolerance=JOINT_TOLERANCE,
    presets={
        "paper": {"train": {"max_steps_per_epoch": 10_000}},
        "laptop": {"collect": {"episodes": 600}, "train": {"steps": 800, "predictor_steps": 1500}},
    },
    behaviour=behaviour,
    expert=expert,
    read_columns=read_columns,
    restore=restore,
    render_fast=render_fast,
    with_goal=with_goal,
    distance=distance,
    distance_unit="rad",
    rules={
        "paper": Rule(solved=matched, meaning="every joint within 0.05 rad"),
        "moderate": Rule(
            solved=matched_modulo,
            meaning="every joint within 0.05 rad, the shoulder modulo a turn, pairs solved at the start left out",
            asks=not_matched_modulo,
        ),
        "strict": Rule(
            solved=touched,
            meaning="fingertip within 1 cm for 2 steps, pairs solved at the start left out",
            asks=not_touched,
            hold=2,
        ),
    },
)
