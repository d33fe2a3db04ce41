"""PushT's behaviour policy: go round the block to where a push helps, push, go round again.

The block slides without friction and stops at once (the environment damps everything), so a push moves it by a twist that
its shape alone decides. The policy looks at every place it could push from and takes the one that brings the block nearest
to a random pose, away from walls.
"""

# N candidate pushes, K points; world coordinates in px, y down; the block's own frame is the environment's (y along the stem)

from __future__ import annotations

from typing import Any

import numpy as np

RADIUS = 15.0
"""The pusher's radius, px."""
BOXES = np.array([[[-60.0, 0.0], [60.0, 30.0]], [[-15.0, 30.0], [15.0, 120.0]]])
"""The T in its own frame: bar and stem, as lower and upper corner."""
HULL = np.array([[-60.0, 0.0], [60.0, 0.0], [60.0, 30.0], [15.0, 120.0], [-15.0, 120.0], [-60.0, 30.0]])
CENTRE = np.array([0.0, 45.0])
"""The T's centre of gravity, in its own frame."""
INERTIA = 3000.0
"""Moment of inertia about the centre of gravity, for mass 1."""
_OUTSIDE = (HULL - CENTRE) * (1 + 42.0 / np.linalg.norm(HULL - CENTRE, axis=1, keepdims=True))
DETOURS = np.concatenate([CENTRE + _OUTSIDE, [[70.0, 80.0], [-70.0, 80.0]]])
"""Where the pusher turns on its way round: off the corners, and in front of the two pockets."""

CLEAR = RADIUS + 5.0
"""How far the pusher's centre stays from the block while it goes round it."""
STAND_OFF = RADIUS + 11.0
ARENA = (24.0, 488.0)
"""The lowest and highest coordinate the pusher goes to."""
ROOM = (34.0, 478.0)
"""The lowest and highest coordinate the block's corners should stay between."""
PIXELS_PER_RADIAN = 60.0
JITTER = 0.25
LENGTHS = np.arange(1, 11) * 12.0
"""The lengths a push may have, in px of the pusher's way."""


def _places() -> tuple[np.ndarray, np.ndarray]:
    """Where the T can be touched [N, 2] and the outward normals there [N, 2], in its own frame."""
    along = np.linspace(-52, 52, 14)
    under = np.array([40.0, 46.0, 53.0])
    beside = np.linspace(56, 114, 8)
    across = np.array([-8.0, 0.0, 8.0])
    sides = [
        (np.stack([along, np.zeros_like(along)], 1), (0, -1)),
        (np.stack([across, np.full_like(across, 120)], 1), (0, 1)),
    ]
    for sign in (-1, 1):
        sides += [
            (np.stack([np.full(3, sign * 60.0), 15 + across], 1), (sign, 0)),
            (np.stack([sign * under, np.full(3, 30.0)], 1), (0, 1)),
            (np.stack([np.full(8, sign * 15.0), beside], 1), (sign, 0)),
        ]
    normals = [np.tile(np.array(normal, dtype=np.float64), (len(points), 1)) for points, normal in sides]
    return np.concatenate([points for points, _ in sides]), np.concatenate(normals)


TOUCH, NORMAL = _places()


def clearance(points_K2: np.ndarray) -> np.ndarray:
    """The distance from each point of the block's frame to the T; negative inside it."""
    middle, half = BOXES.mean(axis=1), np.diff(BOXES, axis=1)[:, 0] / 2
    beyond = np.abs(points_K2[..., None, :] - middle) - half
    outside = np.hypot(*np.moveaxis(np.maximum(beyond, 0), -1, 0))
    return (outside + np.minimum(beyond.max(axis=-1), 0)).min(axis=-1)


def rotated(vectors: np.ndarray, angle: Any) -> np.ndarray:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([cos * vectors[..., 0] - sin * vectors[..., 1], sin * vectors[..., 0] + cos * vectors[..., 1]], -1)


def wrapped(angle: Any) -> Any:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def pushed(pose: np.ndarray) -> np.ndarray:
    """Where the block's centre and angle go under every push: [lengths, N, 3]."""
    arm = TOUCH - CENTRE
    lever = arm[:, 1] * NORMAL[:, 0] - arm[:, 0] * NORMAL[:, 1]
    give = 1 / (1 + lever**2 / INERTIA)
    centre = np.tile(pose[:2] + rotated(CENTRE, pose[2]), (len(TOUCH), 1))
    angle = np.full(len(TOUCH), pose[2])
    passed = []
    for step in np.diff(LENGTHS, prepend=0.0):
        centre = centre - rotated(NORMAL, angle) * (give * step)[:, None]
        angle = angle + lever * give / INERTIA * step
        passed.append(np.concatenate([centre, angle[:, None]], axis=1))
    return np.stack(passed)


def _beyond(points: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """How far each point is out of bounds, 0 inside."""
    return np.maximum(np.maximum(bounds[0] - points, points - bounds[1]), 0).max(axis=-1)


class Pusher:
    """Acts on a PushT environment; call it once before each step."""

    def __init__(self, env: Any, rng: np.random.Generator) -> None:
        self.env, self.rng = env, rng
        self.noise = np.zeros(2)
        self.jitter = rng.uniform(0, JITTER)
        """How jerky this episode is: a planner's candidates are, and a model must have seen what becomes of them."""
        self.way = np.zeros(2)
        self.new_target()
        self.choose()

    @property
    def agent(self) -> np.ndarray:
        return np.array(self.env.agent.position)

    @property
    def pose(self) -> np.ndarray:
        """The block's origin and angle."""
        return np.array([*self.env.block.position, self.env.block.angle])

    @property
    def goal(self) -> np.ndarray:
        """The pose it is going for, in the environment's terms: the block's origin, and its angle in [0, 2π)."""
        return np.append(self.target[:2] - rotated(CENTRE, self.target[2]), self.target[2] % (2 * np.pi))

    def new_target(self) -> None:
        self.target = np.array([*self.rng.uniform(130, 382, 2), self.rng.uniform(-np.pi, np.pi)])
        """The block's centre of gravity and angle to work towards."""
        self.patience = int(self.rng.integers(45, 90))

    def error(self, poses: np.ndarray) -> np.ndarray:
        """How far centres and angles [..., 3] are from the target, in px: an angle counts as the way a corner turns."""
        turn = PIXELS_PER_RADIAN * wrapped(poses[..., 2] - self.target[2])
        return np.hypot(np.hypot(poses[..., 0] - self.target[0], poses[..., 1] - self.target[1]), turn)

    def choose(self) -> None:
        """The push to make next, or now and then a few steps of wandering about."""
        pose, agent = self.pose, self.agent
        ends = pushed(pose)
        corners = ends[..., None, :2] + rotated(HULL - CENTRE, ends[..., 2, None])
        out = np.maximum.accumulate(_beyond(corners, ROOM).max(axis=-1), axis=0)
        stand = pose[:2] + rotated(TOUCH + STAND_OFF * NORMAL, pose[2])
        trip = np.linalg.norm(stand - agent, axis=1)
        cost = self.error(ends) + 3 * out + 5 * _beyond(stand, ARENA) + 0.3 * trip
        cost = cost + self.rng.normal(0, 8, len(TOUCH))
        length, self.place = np.unravel_index(int(cost.argmin()), cost.shape)
        self.length = float(LENGTHS[length])
        self.speed = self.rng.uniform(4, 13)
        self.phase = "wander" if self.rng.random() < 0.12 else "approach"
        self.heading = self.rng.uniform(*ARENA, 2) * 0.4 + pose[:2] * 0.6
        self.left = int(self.rng.integers(4, 10)) if self.phase == "wander" else 45

    def __call__(self) -> np.ndarray:
        self.left -= 1
        self.patience -= 1
        reached = self.error(np.append(self.pose[:2] + rotated(CENTRE, self.pose[2]), self.pose[2])) < 20
        if self.patience < 0 or reached:
            self.new_target()
            self.choose()
        elif self.left < 0:
            self.choose()
        way = {"approach": self.approach, "push": self.push, "wander": self.wander}[self.phase]()
        self.way = 0.35 * self.way + 0.65 * way
        return self.towards(self.way)

    def towards(self, way: np.ndarray) -> np.ndarray:
        """The action that keeps up a pace of `way` px a step, with noise.

        The environment's control covers 0.264 of an action's way in its own step and 0.135 in the next.
        """
        self.noise = 0.8 * self.noise + self.rng.normal(0, 0.035, 2)
        inside = np.clip(self.agent + way, *ARENA) - self.agent
        steady = np.clip(inside / (0.4 * self.env.action_scale) + self.noise, -0.8, 0.8)
        return np.clip(steady + self.rng.normal(0, self.jitter, 2), -1, 1)

    def wander(self) -> np.ndarray:
        way = self.heading - self.agent
        return way * min(1.0, self.speed / (np.linalg.norm(way) + 1e-6))

    def approach(self) -> np.ndarray:
        """Round the block to the place to push from."""
        pose, agent = self.pose, self.agent
        here = rotated(agent - pose[:2], -pose[2])
        there = TOUCH[self.place] + STAND_OFF * NORMAL[self.place]
        if np.linalg.norm(there - here) < 9:
            self.phase, self.left = "push", int(self.length / self.speed * 1.3) + 3
            return self.push()
        way = rotated(self.round(here, there) - here, pose[2])
        return way * min(1.0, (self.speed + 7) / (np.linalg.norm(way) + 1e-6))

    def round(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """The next point on the shortest clear way over the detours, in the block's frame."""
        if clearance(here) < CLEAR:
            spread = here + 2.0 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
            room = clearance(spread)
            return here + 12 * np.array([room[0] - room[1], room[2] - room[3]])
        nodes = np.concatenate([[here], DETOURS, [there]])
        along = nodes[:, None, None] + np.linspace(0, 1, 14)[:, None] * (nodes[None, :] - nodes[:, None])[:, :, None]
        length = np.linalg.norm(nodes[:, None] - nodes[None], axis=-1)
        length[clearance(along).min(axis=-1) < CLEAR - 1] = 1e4
        world = self.pose[:2] + rotated(nodes, self.pose[2])
        length = length + 1e3 * (_beyond(world, ARENA) > 0)
        left = length[:, -1]
        for _ in nodes:
            left = np.minimum(left, (length + left).min(axis=1))
        return nodes[1 + int((length[0] + left)[1:].argmin())]

    def push(self) -> np.ndarray:
        """Through the place to push at, keeping to it as the block turns."""
        pose, agent = self.pose, self.agent
        normal = rotated(NORMAL[self.place], pose[2])
        place = pose[:2] + rotated(TOUCH[self.place] + RADIUS * NORMAL[self.place], pose[2])
        aside = place - agent
        aside = aside - normal * (aside @ normal)
        corners = pose[:2] + rotated(HULL, pose[2])
        squeezed = _beyond(corners - 12 * normal, (ROOM[0] - 8, ROOM[1] + 8)).max() > _beyond(corners, ROOM).max()
        if squeezed or np.linalg.norm(aside) > 14:
            self.choose()
            return np.zeros(2)
        return 0.7 * aside - self.speed * normal
