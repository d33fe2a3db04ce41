"""TwoRooms: a dot finds its way through the door between two rooms (`swm/TwoRoom-v1`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from phylatent.schema import PhysicalTarget, Row, Rule, TaskSpec

SUCCESS_RADIUS = 16.0
STRICT_RADIUS = 8.0
ACTION_NOISE = 2.0

WALL_X, WALL_HALF = 112.0, 5.0
DOOR_Y, DOOR_HALF = 49.0, 14.0
RADIUS = 7.0


def read_columns(env: Any) -> Row:
    agent = np.asarray(env.agent_position, dtype=np.float32).copy()
    goal = np.asarray(env.target_position, dtype=np.float32).copy()
    return {"proprio": agent, "state": agent.copy(), "goal_state": goal}


def restore(env: Any, row: Row) -> None:
    env._set_state(row["state"])
    if "goal_state" in row:
        env._set_goal_state(row["goal_state"])


def render_same(env: Any) -> np.ndarray:
    """The environment's own frame, to the bit, in a third of the time: from one to the next only the disk moves.

    The disk is a Gaussian. Six of its radii away it is too faint to change a colour that is blended in single precision.
    """
    import torch

    space = env.variation_space
    if env.render_target_flag or space["rendering"]["render_target"].value:
        return np.asarray(env.render())
    frame, (x, y) = _empty_room(env).copy(), env.agent_position.tolist()
    radius = float(space["agent"]["radius"].value.item())
    left, top = (max(0, int(place - 6 * radius)) for place in (x, y))
    right, bottom = (int(place + 6 * radius) + 2 for place in (x, y))
    window = slice(top, bottom), slice(left, right)
    away = (env.grid_x[window] - x).square() + (env.grid_y[window] - y).square()
    dot = torch.exp(-away / (2.0 * radius * radius))
    alpha = (dot / dot.max())[..., None].clamp(0, 1).numpy()
    colour = np.array(space["agent"]["color"].value, dtype=np.float32)
    frame[window] = (frame[window].astype(np.float32) * (1 - alpha) + colour * alpha).astype(np.uint8)
    return frame


def _empty_room(env: Any) -> np.ndarray:
    """Walls and doors [H, W, 3], drawn once for as long as they look the same."""
    space = env.variation_space
    colours = [np.array(space[name]["color"].value) for name in ("background", "door", "wall")]
    doors = tuple(env.door_positions.tolist()), tuple(env.door_sizes.tolist())
    look = (np.stack(colours).tobytes(), env.wall_thickness, env.wall_axis, doors)
    drawn = getattr(env, "_phylatent_room", None)
    if drawn is None or drawn[0] != look:
        walls, ways = (mask.numpy() for mask in env._wall_and_door_masks())
        room = np.empty((*walls.shape, 3), dtype=np.uint8)
        for where, colour in zip((..., ways, walls), colours, strict=True):
            room[where] = colour
        drawn = env._phylatent_room = look, room
    return drawn[1]


def distance(row: Row, goal_row: Row) -> float:
    return float(np.linalg.norm(row["state"] - goal_row["goal_state"]))


def with_goal(row: Row, goal: Row) -> Row:
    return row | {"goal_state": goal["state"]}


def reached(row: Row) -> bool:
    return distance(row, row) < SUCCESS_RADIUS


def not_reached(row: Row) -> bool:
    return not reached(row)


def reached_closely(row: Row) -> bool:
    return distance(row, row) < STRICT_RADIUS


def asks_for_the_door(start: Row) -> bool:
    """Start and goal lie in different rooms, both clear of the wall, and it is not solved yet."""
    here, there = start["state"], start["goal_state"]
    apart = (here[0] < WALL_X) != (there[0] < WALL_X) and not reached_closely(start)
    return bool(apart and min(_distance_to_wall(here), _distance_to_wall(there)) >= RADIUS)


def stopped_by_walls(before: Row, after: Row) -> Row:
    """The step as a solid disk would take it: up to the wall, then along it.

    The environment looks at the end point's centre only, and lets a disk cut the door's corners.
    """
    start, end = (np.asarray(row["state"], dtype=np.float64) for row in (before, after))
    if _clear(start, end):
        return after
    here = _advance(start, end)
    here = _advance(here, np.array([end[0], here[1]]))
    here = _advance(here, np.array([here[0], end[1]]))
    stopped = here.astype(np.float32)
    return after | {"state": stopped, "proprio": stopped.copy()}


def _advance(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """As far towards `end` as the way is clear, to a hundredth of a step."""
    if _clear(start, end):
        return end
    reach = np.linspace(0, 1, 101)
    free = _distance_to_wall(start + reach[:, None] * (end - start)) >= RADIUS
    return start + reach[max(int(np.argmin(free)) - 1, 0)] * (end - start)


def _clear(start: np.ndarray, end: np.ndarray) -> bool:
    if max(start[0], end[0]) <= WALL_X - WALL_HALF - RADIUS or min(start[0], end[0]) >= WALL_X + WALL_HALF + RADIUS:
        return True
    return bool((_distance_to_wall(start + np.linspace(0, 1, 101)[:, None] * (end - start)) >= RADIUS).all())


def _distance_to_wall(point: np.ndarray) -> np.ndarray:
    """From the centre [..., 2] to the nearest solid point of the wall between the rooms."""
    aside = np.maximum(np.abs(point[..., 0] - WALL_X) - WALL_HALF, 0.0)
    into_door = np.maximum(DOOR_HALF - np.abs(point[..., 1] - DOOR_Y), 0.0)
    return np.hypot(aside, into_door)


def expert(simulator: Any, rng: np.random.Generator, action_noise: float | None = None) -> Callable[[], np.ndarray]:
    """The environment's own expert, on its way to the goal in force."""
    settings = {} if action_noise is None else {"action_noise": action_noise, "seed": int(rng.integers(2**31))}
    policy = simulator.load("stable_worldmodel.envs.two_room.expert_policy:ExpertPolicy")(**settings)
    policy.set_env(simulator.env)
    return lambda: policy.get_action(simulator.columns())


def behaviour(simulator: Any, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """The noisy expert, sent to a new target whenever it arrives, so that an episode never ends early."""
    go = expert(simulator, rng, action_noise=ACTION_NOISE)
    position = simulator.env.variation_space["target"]["position"]

    def act() -> np.ndarray:
        row = simulator.columns()
        if reached(row):
            simulator.env._set_goal_state(rng.uniform(position.low, position.high).astype(np.float32))
        return go()

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
        "inverse": {"weight": 0.1},
    },
    episode_steps=100,
    columns=("proprio", "state", "goal_state"),
    aliases={"proprio": ("pos_agent",), "state": ("pos_agent",), "goal_state": ("pos_target",)},
    severities={"brightness": 2.8, "colour": 1.6, "texture": 3.2, "noise": 0.14},
    moving_dims=(0, 1),
    moving_tolerance=1.0,
    presets={"paper": {"train": {"max_steps_per_epoch": 10_000}}},
    behaviour=behaviour,
    expert=expert,
    read_columns=read_columns,
    restore=restore,
    render_same=render_same,
    with_goal=with_goal,
    distance=distance,
    distance_unit="px",
    rules={
        "paper": Rule(solved=reached, meaning="closer than 16 px"),
        "moderate": Rule(solved=reached, meaning="closer than 16 px, pairs solved at the start left out", asks=not_reached),
        "strict": Rule(
            solved=reached_closely,
            meaning="into the other room, closer than 8 px, walls stop the whole disk",
            asks=asks_for_the_door,
            corrected=stopped_by_walls,
        ),
    },
)
