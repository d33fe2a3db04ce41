"""PushT: states come back to the pixel, actions lead where they led; rules on hand-made states; a policy that pushes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from phylatent.composition import compose
from phylatent.data.collect import make_plan
from phylatent.data.shards import record_episode
from phylatent.errors import UserError
from phylatent.planning.pairs import rule_of
from phylatent.planning.protocols import score
from phylatent.schema import AS_PUBLISHED, FAST
from phylatent.simulator import Simulator
from phylatent.tasks import get_task
from phylatent.tasks._pusher import HULL, rotated
from phylatent.tasks.pusht import TASK, wrapped

STEPS = 75
STATES = ("state", "proprio", "block_motion", "goal_state")


@dataclass(frozen=True)
class Recorded:
    render: str
    episodes: list[dict[str, np.ndarray]]

    def row(self, episode: int, step: int, *names: str) -> dict[str, np.ndarray]:
        return {name: self.episodes[episode][name][step] for name in names or STATES}


def record(render: str, episodes: int) -> Recorded:
    settings = compose(task="pusht", preset="smoke", overrides=[f"collect.steps={STEPS}", f"collect.render={render}"]).collect
    plan = make_plan(TASK, settings, seed=3)
    simulator = Simulator(TASK, plan.frame_size, render)
    return Recorded(render, [record_episode(simulator, TASK, plan, episode) for episode in range(episodes)])


@pytest.fixture(scope="module", params=[AS_PUBLISHED, FAST])
def recorded(request) -> Recorded:
    return record(request.param, 2)


@pytest.fixture(scope="module")
def pushes() -> Recorded:
    return record(FAST, 8)


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    made = Simulator(TASK, 64)
    made.reset(seed=99)
    return made


def test_a_restored_state_is_drawn_as_it_was_recorded(recorded):
    frames = recorded.episodes[0]["pixels"]
    other = Simulator(TASK, frames.shape[1], recorded.render)
    other.reset(seed=99)
    for episode in range(2):
        for step in range(0, STEPS + 1, 3):
            other.restore(recorded.row(episode, step))
            np.testing.assert_array_equal(other.frame(), recorded.episodes[episode]["pixels"][step])
            for name, value in recorded.row(episode, step).items():
                np.testing.assert_allclose(other.columns()[name], value, rtol=1e-12, atol=1e-12)


def test_recorded_actions_lead_from_a_restored_state_to_the_recorded_ones(pushes, simulator):
    turned = []
    for episode, columns in enumerate(pushes.episodes):
        for start in range(0, STEPS - 25 + 1, 10):
            simulator.restore(pushes.row(episode, start))
            for step in range(start, start + 25):
                simulator.step(columns["action"][step])
            reached, expected = simulator.columns()["state"], columns["state"][start + 25]
            np.testing.assert_allclose(reached, expected, atol=1e-6)
            turned.append(abs(wrapped(expected[4] - columns["state"][start][4])) > 0.1)
    assert np.mean(turned) > 0.5, "windows with contact are what is tested here"


def test_the_columns_of_published_files_are_enough(pushes, simulator):
    """Without the block's motion it follows from the contact with the pusher; float32 is what remains."""
    for episode, columns in enumerate(pushes.episodes):
        for start in range(0, STEPS - 10, 10):
            simulator.restore({"state": columns["state"][start].astype(np.float32)})
            np.testing.assert_allclose(simulator.columns()["state"], columns["state"][start], rtol=1e-6, atol=1e-4)
            for step in range(start, start + 10):
                simulator.step(columns["action"][step])
            error = np.abs(simulator.columns()["state"] - columns["state"][start + 10])[:4].max()
            assert error < 0.05, (episode, start)


def test_the_goal_is_not_in_the_picture(pushes, simulator):
    row = pushes.row(0, 20)
    simulator.restore(row)
    frame = simulator.frame()
    simulator.restore(TASK.with_goal(row, pushes.row(1, 40)))
    np.testing.assert_array_equal(simulator.frame(), frame)
    np.testing.assert_array_equal(simulator.columns()["goal_state"], pushes.row(1, 40)["state"])


def test_fast_frames_look_like_the_published_and_show_a_pixel_s_shift(pushes, simulator, monkeypatch):
    monkeypatch.setattr(simulator.env, "with_target", False)  # fast frames never show it
    for step in range(0, STEPS, 15):
        state = pushes.row(0, step)["state"]
        simulator.restore({"state": state})
        fast = TASK.render_fast(simulator.env, 64).astype(int)
        assert np.abs(fast - simulator.frame()).mean() < 2
        np.testing.assert_array_equal(fast, TASK.render_fast(simulator.env, 64))
        for dimension, shift in ((0, 1.0), (2, 1.0), (3, 1.0), (4, 0.02)):
            moved = state.copy()
            moved[dimension] += shift
            simulator.restore({"state": moved})
            assert np.abs(TASK.render_fast(simulator.env, 64) - fast).sum() > 200


def test_fast_frames_do_not_show_where_the_behaviour_is_heading(pushes, simulator):
    state = pushes.row(0, 0)["state"]
    frames = []
    for goal in ((100, 100, 150, 150, 0.0, 0, 0), (100, 100, 350, 350, 1.0, 0, 0)):
        simulator.restore({"state": state, "goal_state": np.array(goal, dtype=np.float64)})
        frames.append(TASK.render_fast(simulator.env, 64))
    np.testing.assert_array_equal(*frames)


def row(state: tuple[float, ...] = (), *, goal: tuple[float, ...] = (100, 100, 200, 200, 0.0)) -> dict[str, np.ndarray]:
    """A row of (agent x, y, block x, y, angle), at its goal unless said otherwise."""
    return {"state": np.array([*(state or goal), 0, 0]), "goal_state": np.array([*goal, 0, 0])}


@pytest.mark.parametrize(
    ("state", "paper", "alone", "strict"),
    [
        ((100, 100, 200, 200, 0.0), True, True, True),
        ((100, 100, 209.9, 200, 0.0), True, True, True),
        ((100, 100, 210, 200, 0.0), True, True, False),
        ((100, 100, 219.9, 200, 0.0), True, True, False),
        ((100, 100, 220, 200, 0.0), False, False, False),
        ((115, 100, 215, 200, 0.0), False, True, False),
        ((300, 300, 200, 200, 0.0), False, True, True),
        ((100, 100, 200, 200, math.radians(9.9)), True, True, True),
        ((100, 100, 200, 200, math.radians(10.1)), True, True, False),
        ((100, 100, 200, 200, math.radians(20.1)), False, False, False),
        ((100, 100, 200, 200, math.radians(350.1)), True, True, True),
        ((100, 100, 200, 200, math.radians(340.1)), True, True, False),
        ((100, 100, 200, 200, math.radians(339.9)), False, False, False),
        ((100, 100, 200, 200, 4 * math.pi - 0.01), True, True, True),
        ((100, 100, 200, 200, -6 * math.pi + 0.3), True, True, False),
        ((100, 100, 200, 200, 3 * math.pi), False, False, False),
    ],
)
def test_when_it_is_solved(state, paper, alone, strict):
    found = {name: rule.solved(row(state)) for name, rule in TASK.rules.items()}
    assert found == {"paper": paper, "moderate": paper, "object": alone, "strict": strict}


def test_an_angle_just_below_the_period_is_near_a_goal_just_above_0_and_the_other_way_round():
    for here, there in ((6.2, 0.05), (0.05, 6.2)):
        assert TASK.rules["strict"].solved(row((100, 100, 200, 200, here), goal=(100, 100, 200, 200, there)))


def test_paper_agrees_with_the_environment(simulator):
    rng = np.random.default_rng(0)
    verdicts = []
    for _ in range(300):
        goal = np.array([*rng.uniform(50, 450, 4), rng.uniform(0, 2 * math.pi)])
        state = goal + rng.normal(0, [7, 7, 7, 7, 0.3])
        state[4] %= 2 * math.pi
        here = row(tuple(state), goal=tuple(goal))
        verdicts.append(TASK.rules["paper"].solved(here))
        assert verdicts[-1] == simulator.env.eval_state(here["goal_state"], here["state"])[0]
    assert 0.2 < np.mean(verdicts) < 0.8


def test_what_the_protocols_ask_for_and_how_long_it_must_hold():
    near, far = row((100, 100, 205, 200, 0.1)), row((100, 100, 215, 200, 0.0))
    asks = {name: rule.asks for name, rule in TASK.rules.items()}
    assert asks["paper"] is None
    assert asks["object"] is None
    assert (asks["moderate"](near), asks["moderate"](row((150, 100, 200, 200, 0.0)))) == (False, True)
    assert (asks["strict"](near), asks["strict"](far)) == (False, True)
    assert not score([far, near, near, far, near, near], TASK.rules["strict"], TASK).success
    outcome = score([far, near, near, near, far], TASK.rules["strict"], TASK)
    assert (outcome.first_success, outcome.start_distance, outcome.final_distance) == (3, 15.0, 5.0)


def test_the_protocol_for_the_object_alone_belongs_to_tasks_that_declare_it():
    config = compose(task="pusht", preset="smoke", overrides=["plan.protocol=[paper,object]"])
    assert config.plan.protocol == ("paper", "object")
    assert rule_of(TASK, "object").solved is TASK.rules["object"].solved
    with pytest.raises(UserError, match="task 'tworooms' has no planning protocol 'object'; it has: paper, moderate, strict"):
        rule_of(get_task("tworooms"), "object")


def test_the_policy_pushes(pushes):
    """Measured over 100 whole episodes: the block moves in 92 % of windows of 25 steps and turns in 89 %."""
    states = np.stack([columns["state"] for columns in pushes.episodes])
    actions = np.stack([columns["action"][:-1] for columns in pushes.episodes])
    starts = range(STEPS - 25 + 1)
    moved = [np.abs(states[:, t : t + 26, 2:4] - states[:, t : t + 1, 2:4]).max((1, 2)) > 1 for t in starts]
    turned = [np.abs(wrapped(states[:, t : t + 26, 4] - states[:, t : t + 1, 4])).max(1) > 0.05 for t in starts]
    assert np.mean(moved) > 0.7
    assert np.mean(turned) > 0.6
    assert np.abs(actions).max() <= 1
    assert 0.1 < actions.std() < 0.35
    assert (states[..., :2] > 5).all()
    assert (states[..., :2] < 507).all()
    corners = states[..., None, 2:4] + rotated(HULL, states[..., 4, None])
    inside = ((corners > 5) & (corners < 507)).all(axis=(-1, -2))
    assert inside.mean() > 0.98, "the block is not squeezed into walls"


def test_an_episode_depends_on_its_seed_alone(pushes):
    """Not on what the simulator did before."""
    settings = compose(task="pusht", preset="smoke", overrides=[f"collect.steps={STEPS}", "collect.render=fast"]).collect
    plan = make_plan(TASK, settings, seed=3)
    again = record_episode(Simulator(TASK, plan.frame_size, FAST), TASK, plan, 4)
    for name, values in pushes.episodes[4].items():
        np.testing.assert_array_equal(again[name], values)


def test_its_search_is_longer():
    assert compose(task="pusht", preset="paper").plan.iterations == 30
