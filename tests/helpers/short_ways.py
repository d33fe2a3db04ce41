"""Starts and goals in TwoRooms, and an exact model that remembers what it was asked."""

from __future__ import annotations

import json

import numpy as np
import torch
from exact_model import ExactTwoRooms

from phylatent.planning.actions import Actions
from phylatent.planning.closed_loop import Start, Trajectory
from phylatent.planning.evaluate import Course
from phylatent.planning.pairs import Pair
from phylatent.planning.record import summarise
from phylatent.schema import Normaliser
from phylatent.simulator import Simulator
from phylatent.tasks.tworooms import TASK

ACTIONS = Actions((-1.0, -1.0), (1.0, 1.0), Normaliser((0.0, 0.0), (0.87, 0.87)))


def state(x: float, y: float) -> dict[str, np.ndarray]:
    place = np.array([x, y], dtype=np.float32)
    return {"state": place, "proprio": place.copy(), "goal_state": place.copy()}


def start(simulator: Simulator, here: tuple[float, float], there: tuple[float, float], **settings) -> Start:
    simulator.restore(state(*there))
    return Start(
        pair=Pair(seed=0, episode=0, start=int(here[0]), goal=int(there[0])),
        row=TASK.with_goal(state(*here), state(*there)),
        goal=state(*there),
        goal_frame=simulator.frame(),
        recorded_kA=np.zeros((5, 10), np.float32),
        rules=(TASK.rules["paper"],),
        **settings,
    )


FREE = [((40, 100), (80, 170)), ((60, 180), (40, 100)), ((170, 160), (190, 60)), ((150, 90), (190, 180))]
"""Ways within one room, clear of every wall."""
FAR = ((40, 150), (190, 150))
"""Through the wall: a model that knows none never arrives, and plans to the end."""


class Recorder(ExactTwoRooms):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.encoded = 0
        self.rollouts: list[tuple[int, int]] = []
        self.pasts: list[tuple[torch.Tensor, torch.Tensor] | None] = []

    def encode(self, frames):
        self.encoded += len(frames)
        return super().encode(frames)

    def rollout(self, z_ND, blocks_NkA, *, past_NhD=None, past_blocks_NhA=None):
        self.rollouts.append((len(z_ND), 0 if past_NhD is None else past_NhD.shape[1]))
        self.pasts.append(None if past_NhD is None else (past_NhD, past_blocks_NhA))
        return super().rollout(z_ND, blocks_NkA)


def numbers(course: Course, results: dict[str, list[Trajectory]]) -> str:
    """All of a planning's records but times and processes."""
    record = [summarise(course, protocol, results) for protocol in course.lists]

    def timeless(value):
        if isinstance(value, dict):
            return {k: timeless(v) for k, v in value.items() if k not in ("planning_seconds", "workers")}
        return [timeless(v) for v in value] if isinstance(value, list) else value

    return json.dumps(timeless(record))
