"""What a model is compared with: acting at random, not at all, and as the task's expert does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from phylatent.planning.pairs import Pair
from phylatent.randomness import derive_seed
from phylatent.schema import TaskSpec
from phylatent.simulator import Simulator

Act = Callable[[], np.ndarray]


def random(task: TaskSpec, pair: Pair, simulator: Simulator) -> Act:
    rng = np.random.default_rng(derive_seed("random policy", pair.seed, pair.episode, pair.start))
    return lambda: rng.uniform(task.action_low, task.action_high).astype(np.float32)


def nothing(task: TaskSpec, pair: Pair, simulator: Simulator) -> Act:
    still = np.clip(0.0, task.action_low, task.action_high).astype(np.float32)
    return lambda: still


def expert(task: TaskSpec, pair: Pair, simulator: Simulator) -> Act:
    assert task.expert is not None
    return task.expert(simulator, np.random.default_rng(derive_seed("expert policy", pair.seed, pair.episode, pair.start)))


WITHOUT_MODEL = {"random": random, "nothing": nothing, "expert": expert}
