"""PushT: a round pusher moves a T-shaped block to a pose (`swm/PushT-v1`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from phylatent.schema import PhysicalTarget, Row, Rule, TaskSpec
from phylatent.tasks._pusher import BOXES, HULL, RADIUS, Pusher, clearance, rotated

SUCCESS_RADIUS, SUCCESS_ANGLE = 20.0, math.pi / 9
STRICT_RADIUS, STRICT_ANGLE = 10.0, math.radians(10)
STRICT_HOLD = 3
WINDOW = 512
"""The side of the environment's world, px."""
WALLS = (5.0, 506.0)
WALL_COLOUR = np.array([211, 211, 211])
LINE = 2.0
"""Half the width of walls and outlines."""
BRUSH = 0.6
"""How far OpenCV's smooth edges reach beyond a shape, in px of what it draws on (measured by the area)."""


def read_columns(env: Any) -> Row:
    state = env._get_obs()
    block = env.block
    return {
        "state": state,
        "proprio": state[[0, 1, 5, 6]],
        "block_motion": np.array([*block.velocity, block.angular_velocity]),
        "goal_state": np.array(env.goal_state, dtype=np.float64),
    }


def restore(env: Any, row: Row) -> None:
    """The state in a fresh space, with the contacts it has (they are drawn, and the solver goes on from them).

    Contacts come from a physics step. So the state is taken back by the pusher's last substep and stepped: the pusher moves
    to its place, the block, at rest, stays in its own, and what touches there is found and solved as when it was recorded.
    The environment's own setter lets the step move things on instead.
    """
    state = np.asarray(row["state"], dtype=np.float64)
    place, velocity = state[:2], state[5:7]
    env._setup()
    agent, block = env.agent, env.block
    agent.position, agent.velocity = tuple(place - velocity * env.dt), tuple(velocity)
    # The origin is not the centre of gravity, about which turning turns: angle first.
    block.angle = float(state[4])
    block.position = tuple(state[2:4])
    for body in (agent, block):
        env.space.reindex_shapes_for_body(body)
    env.space.step(env.dt)
    agent.position = tuple(place)
    if "block_motion" in row:
        motion = np.asarray(row["block_motion"], dtype=np.float64)
        block.velocity, block.angular_velocity = tuple(motion[:2]), float(motion[2])
    if "goal_state" in row:
        env._set_goal_state(np.asarray(row["goal_state"], dtype=np.float64))


def render_fast(env: Any, size: int) -> np.ndarray:
    """The published drawing at twice the size and between pixels, averaged down; without its contact marks and target.

    The published target stands still. Ours is wherever the behaviour is heading, and would be most of what moves in a frame.
    """
    import cv2  # slow to import, and nothing but drawing needs it

    scale = 2 * size / WINDOW
    agent, block = (np.array(env.variation_space[name]["color"].value) for name in ("agent", "block"))
    canvas = np.empty((2 * size, 2 * size, 3), dtype=np.uint8)
    canvas[:] = env.variation_space["background"]["color"].value

    def sixteenths(points: Any) -> np.ndarray:
        return np.rint(((np.asarray(points) + 0.5) * scale - 0.5) * 16).astype(np.int32)

    def disk(centre: Any, radius: float, colour: np.ndarray) -> None:
        x, y = sixteenths(centre).tolist()
        cv2.circle(canvas, (x, y), round((radius * scale - BRUSH) * 16), colour.tolist(), -1, cv2.LINE_AA, 4)

    def box(corners: np.ndarray, pose: np.ndarray, colour: np.ndarray, grown: float = 0.0) -> None:
        edge = grown - BRUSH / scale
        (left, top), (right, bottom) = corners + np.array([[-edge], [edge]])
        points = rotated(np.array([[left, top], [right, top], [right, bottom], [left, bottom]]), pose[2])
        cv2.fillConvexPoly(canvas, sixteenths(pose[:2] + points), colour.tolist(), cv2.LINE_AA, 4)

    low, high = WALLS
    for wall in (low, high):
        box(np.array([[low, wall], [high, wall]]), np.zeros(3), WALL_COLOUR, LINE)
        box(np.array([[wall, low], [wall, high]]), np.zeros(3), WALL_COLOUR, LINE)
    disk(env.agent.position, RADIUS, agent)
    disk(env.agent.position, RADIUS - 4, _light(agent))
    pose = np.array([*env.block.position, env.block.angle])
    for part in BOXES:
        box(part, pose, block, LINE)
        box(part, pose, _light(block), -LINE)
    return cv2.resize(canvas, (size, size), interpolation=cv2.INTER_AREA)


def _light(colour: np.ndarray) -> np.ndarray:
    """What the environment fills a shape with, inside its outline."""
    return np.minimum(1.2 * colour, 255)


def wrapped(angle: float) -> float:
    """The same angle in [−π, π)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


def object_error(row: Row, goal_row: Row) -> tuple[float, float]:
    """How far the block is from its goal, in px, and how much it is turned, in rad."""
    state, goal = row["state"], goal_row["goal_state"]
    return float(np.linalg.norm(state[2:4] - goal[2:4])), abs(wrapped(float(state[4]) - float(goal[4])))


def distance(row: Row, goal_row: Row) -> float:
    """How far the block is from its goal in px, whatever its angle and wherever the pusher."""
    return object_error(row, goal_row)[0]


def with_goal(row: Row, goal: Row) -> Row:
    return row | {"goal_state": goal["state"]}


def reached(row: Row) -> bool:
    """The environment's rule: pusher and block together, and the angle."""
    both = np.linalg.norm(row["state"][:4] - row["goal_state"][:4])
    return bool(both < SUCCESS_RADIUS and object_error(row, row)[1] < SUCCESS_ANGLE)


def not_reached(row: Row) -> bool:
    return not reached(row)


def object_reached(row: Row) -> bool:
    away, turned = object_error(row, row)
    return away < SUCCESS_RADIUS and turned < SUCCESS_ANGLE


def object_reached_closely(row: Row) -> bool:
    away, turned = object_error(row, row)
    return away < STRICT_RADIUS and turned < STRICT_ANGLE


def object_not_reached_closely(row: Row) -> bool:
    return not object_reached_closely(row)


def _overlaps(state: np.ndarray) -> bool:
    """Whether the block lies on the pusher or on a wall."""
    corners = state[2:4] + rotated(HULL, state[4])
    on_wall = corners.min() < WALLS[0] + LINE or corners.max() > WALLS[1] - LINE
    return bool(on_wall or clearance(rotated(state[:2] - state[2:4], -state[4])) < RADIUS)


def behaviour(simulator: Any, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """Pushes the block from one random pose towards the next; the goal in force is the pose it is going for."""
    env = simulator.env
    state = simulator.columns()["state"]
    if _overlaps(state):
        # The environment draws such starts, too, and its physics would throw pusher, block and walls apart.
        while _overlaps(state):
            state[:2], state[2:4] = rng.uniform(50, 450, 2), rng.uniform(100, 400, 2)
        simulator.restore({"state": state})
    pusher = Pusher(env, rng)

    def act() -> np.ndarray:
        action = pusher()
        env._set_goal_state(np.concatenate([env.goal_state[:2], pusher.goal, env.goal_state[5:]]))
        return action

    return act


TASK = TaskSpec(
    name="pusht",
    title="PushT",
    env_id="swm/PushT-v1",
    env_kwargs={
        "block_cog": None,
        "damping": None,
        "render_action": False,
        "resolution": 224,
        "with_target": True,
        "relative": True,
        "init_value": None,
    },
    action_low=(-1.0, -1.0),
    action_high=(1.0, 1.0),
    target=PhysicalTarget(
        columns=("state",),
        names=("agent_x", "agent_y", "block_x", "block_y", "block_angle", "agent_vx", "agent_vy"),
        modulo={4: 2 * math.pi},
        angles={4: 2 * math.pi},
    ),
    objectives={
        "psg": {"weight": 0.090},
        "fra": {"weight": 0.035},
        "svic": {"weight": 0.060, "brightness": 0.012, "channel": 0.008},
        "casc": {"weight": 0.010, "action_noise": 0.015, "margin_scale": 0.018, "max_margin": 0.25},
        "ld": {"weight": 0.005, "sigma_min": 0.05, "sigma_max": 0.10},
        "inverse": {"weight": 30.0},
        "subspaces": {"count": 16},
    },
    episode_steps=125,
    columns=("state", "proprio", "block_motion", "goal_state"),
    severities={"brightness": 8.0, "colour": 0.57, "texture": 1.6, "noise": 0.071},
    moving_dims=(2, 3),
    moving_tolerance=1.0,
    turning_dims=(4,),
    turning_tolerance=math.radians(3),
    settings={"plan": {"iterations": 30}},
    presets={
        "paper": {"train": {"max_steps_per_epoch": 10_000}},
        "laptop": {
            "collect": {"episodes": 1000},
            "train": {"steps": 2000, "predictor_steps": 2000},
            "psg": {"weight": 4.0},
        },
    },
    behaviour=behaviour,
    read_columns=read_columns,
    restore=restore,
    render_fast=render_fast,
    with_goal=with_goal,
    distance=distance,
    distance_unit="px",
    rules={
        "paper": Rule(solved=reached, meaning="pusher and block together closer than 20 px, angle by 20°"),
        "object": Rule(solved=object_reached, meaning="block closer than 20 px, angle by 20°, wherever the pusher"),
        "moderate": Rule(
            solved=reached,
            meaning="pusher and block together closer than 20 px, angle by 20°, pairs solved at the start left out",
            asks=not_reached,
        ),
        "strict": Rule(
            solved=object_reached_closely,
            meaning=f"block closer than 10 px, angle by 10°, for {STRICT_HOLD} steps, pairs solved at the start left out",
            asks=object_not_reached_closely,
            hold=STRICT_HOLD,
        ),
    },
)
