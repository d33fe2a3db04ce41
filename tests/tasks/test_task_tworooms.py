"""TwoRooms: our drawing is the environment's own."""

from __future__ import annotations

import numpy as np
import pytest

from phylatent.simulator import Simulator
from phylatent.tasks.tworooms import TASK, render_same


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    made = Simulator(TASK, 224)
    made.reset(seed=3)
    return made


def test_our_drawing_is_the_environment_s_to_the_bit(simulator: Simulator) -> None:
    rng = np.random.default_rng(0)
    for place in [*rng.uniform(14, 210, (60, 2)), (0.5, 223.0), (112.0, 49.0)]:
        simulator.restore({"state": np.asarray(place, dtype=np.float32)})
        np.testing.assert_array_equal(render_same(simulator.env), simulator.env.render())


def test_a_room_that_looks_otherwise_is_drawn_anew(simulator: Simulator) -> None:
    """Another wall, other colours, a target: whatever the environment may vary."""
    seen = []
    for seed in range(4):
        simulator.env.reset(seed=seed, options={"variation": ["all"]})
        np.testing.assert_array_equal(render_same(simulator.env), simulator.env.render())
        seen.append(simulator.env.render().mean())
    assert np.std(seen) > 1
