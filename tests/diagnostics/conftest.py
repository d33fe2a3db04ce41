"""What the tests of the diagnostics share: drifts in free space, and a sample of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from drifts import EPISODES, SIZE, STEPS, TASK, draw
from episode_files import write_file

from phylatent.data.readers import Episodes, open_episodes
from phylatent.diagnostics.sample import Sample
from phylatent.processes import one_thread
from phylatent.simulator import Simulator


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Small models on a busy machine: several threads would mostly wait for each other."""
    with one_thread():
        yield


@pytest.fixture(scope="module")
def free_space(tmp_path_factory: pytest.TempPathFactory) -> Episodes:
    """Real frames of slow drifts around the middle of the left room: no episode and no branch comes near a wall."""
    rng, simulator = np.random.default_rng(0), Simulator(TASK, SIZE)
    simulator.reset(seed=0)
    states, frames, actions = [], [], []
    for episode in range(EPISODES):
        angle = 2 * math.pi * episode / EPISODES
        drift = rng.uniform(0.1, 0.16) * np.array([math.cos(angle), math.sin(angle)])
        start = np.array([60.0, 112.0]) + rng.uniform(-5, 5, 2)
        simulator.restore({"state": start.astype(np.float32)})
        for step in range(STEPS + 1):
            states.append(simulator.columns()["state"])
            frames.append(simulator.frame())
            action = (drift + rng.normal(0, 0.02, 2)).astype(np.float32)
            actions.append(action if step < STEPS else np.full(2, np.nan, np.float32))
            simulator.step(action)
    state = np.stack(states)
    replaced = {"pixels": np.stack(frames), "action": np.stack(actions), "proprio": state, "state": state, "goal_state": state}
    path = tmp_path_factory.mktemp("free") / "free.h5"
    return open_episodes(write_file(path, [STEPS + 1] * EPISODES, replace=replaced), TASK)


@pytest.fixture(scope="module")
def sample(free_space: Episodes) -> Sample:
    return draw(free_space)
