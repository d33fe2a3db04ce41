"""Reacher: rules on hand-made states, exact restore, replay, and what its behaviour policy covers."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest

from phylatent.data.shards import Plan, record_episode
from phylatent.planning.protocols import Watch
from phylatent.schema import Row
from phylatent.simulator import Simulator
from phylatent.tasks import get_task
from phylatent.tasks.reacher import fingertip, joint_errors

TASK = get_task("reacher")


def at(shoulder: float, wrist: float, goal: tuple[float, float] = (0.0, 0.0)) -> Row:
    return {"qpos": np.array([shoulder, wrist]), "goal_qpos": np.array(goal)}


@pytest.mark.parametrize(
    ("row", "paper", "moderate"),
    [
        (at(0.049, -0.049), True, True),
        (at(0.051, 0.0), False, False),
        (at(0.0, 0.051), False, False),
        (at(2 * math.pi + 0.01, 0.0), False, True),  # a whole turn further: raw difference against modulo
        (at(-4 * math.pi, 0.0), False, True),
        (at(math.pi - 0.01, 0.0, goal=(-math.pi + 0.01, 0.0)), False, True),
        (at(0.0, 2 * math.pi), False, False),  # the wrist cannot turn round
    ],
)
def test_joints_match(row: Row, paper: bool, moderate: bool) -> None:
    assert TASK.rules["paper"].solved(row) is paper
    assert TASK.rules["moderate"].solved(row) is moderate


def test_fingertip_counts_under_strict_whichever_way_the_elbow_points() -> None:
    rule = TASK.rules["strict"]
    elbow = math.pi / 3  # both links are as long: shoulder + wrist/2 decides where the tip points
    assert rule.solved(at(0.0, 2 * elbow, goal=(2 * elbow, -2 * elbow)))
    assert not rule.solved(at(0.0, 0.0, goal=(0.05, 0.0)))  # 12 mm
    assert rule.solved(at(0.0, 0.0, goal=(0.04, 0.0)))  # 9.6 mm
    assert rule.solved(at(2 * math.pi, 0.0))


def test_strict_holds_for_two_steps() -> None:
    watch = Watch(TASK.rules["strict"])
    for shoulder in (0.0, 1.0, 0.0, 0.0):
        watch.see(at(shoulder, 0.0))
    assert watch.success == 3


def test_pairs_solved_at_the_start_are_left_out() -> None:
    assert TASK.rules["paper"].asks is None
    for protocol in ("moderate", "strict"):
        asks = TASK.rules[protocol].asks
        assert asks is not None
        assert not asks(at(0.0, 0.0))
        assert not asks(at(2 * math.pi, 0.0))
        assert asks(at(1.0, 0.0))


def test_distance_is_the_larger_error_the_short_way_round() -> None:
    assert TASK.distance is not None
    row = at(2 * math.pi - 0.1, 0.3)
    assert TASK.distance(row, row) == pytest.approx(0.3)
    row = at(2 * math.pi - 0.5, 0.3)
    assert TASK.distance(row, row) == pytest.approx(0.5)
    assert joint_errors(row, row, turns_count=True) == pytest.approx([2 * math.pi - 0.5, 0.3])


@pytest.fixture(scope="module")
def simulators() -> dict[str, Simulator]:
    made = {render: Simulator(TASK, 32, render) for render in ("fast", "as-published")}
    for simulator in made.values():
        simulator.reset(seed=3)
    return made


def plan(steps: int, render: str) -> Plan:
    return Plan("reacher", TASK.env_id, dict(TASK.env_kwargs), 0, 9, steps, 32, 1, 9, render)


def row_of(episode: Row, index: int) -> Row:
    return {name: episode[name][index] for name in TASK.columns}


@pytest.mark.parametrize("render", ["fast", "as-published"])
def test_a_restored_state_is_the_recorded_frame_to_the_pixel(simulators: dict[str, Simulator], render: str) -> None:
    simulator = simulators[render]
    episode, _ = (record_episode(simulator, TASK, plan(12, render), i) for i in (0, 1))
    for index in (0, 5, 12):
        simulator.restore(row_of(episode, index))
        np.testing.assert_array_equal(simulator.frame(), episode["pixels"][index])
        np.testing.assert_array_equal(simulator.columns()["observation"], episode["observation"][index])


def test_replaying_recorded_actions_lands_on_the_recorded_states(simulators: dict[str, Simulator]) -> None:
    episode = record_episode(simulators["fast"], TASK, plan(200, "fast"), 2)
    for start in range(0, 176, 25):
        simulators["as-published"].restore(row_of(episode, start))
        for action in episode["action"][start : start + 25]:
            simulators["as-published"].step(action)
        after = simulators["as-published"].columns()
        np.testing.assert_allclose(after["qpos"], episode["qpos"][start + 25], atol=1e-9)
        np.testing.assert_allclose(after["observation"], episode["observation"][start + 25], atol=1e-6)


def test_nothing_resets_past_the_environments_time_limit_or_at_a_success(simulators: dict[str, Simulator]) -> None:
    simulator = simulators["fast"]
    start = {"qpos": np.array([1.0, 0.5]), "qvel": np.zeros(2), "goal_qpos": np.array([1.0, 0.5])}
    for _ in range(6):  # 600 steps in all; the limit is 500
        simulator.restore(start)
        for _ in range(100):
            simulator.step(np.zeros(2, dtype=np.float32))
        np.testing.assert_allclose(simulator.columns()["qpos"], start["qpos"], atol=1e-6)


def test_the_fingertip_is_where_the_simulator_has_it(simulators: dict[str, Simulator]) -> None:
    simulator = simulators["fast"]
    simulator.restore({"qpos": np.array([0.7, -1.9]), "qvel": np.zeros(2)})
    found = simulator.env.env.physics.named.data.geom_xpos["finger", :2]
    np.testing.assert_allclose(fingertip(np.array([0.7, -1.9])), found, atol=1e-9)


def test_the_expert_reaches_its_goal(simulators: dict[str, Simulator]) -> None:
    simulator = simulators["fast"]
    assert TASK.expert is not None
    simulator.restore({"qpos": np.array([3.0, -2.0]), "qvel": np.array([4.0, -4.0]), "goal_qpos": np.array([0.0, 2.0])})
    act = TASK.expert(simulator, np.random.default_rng(0))
    reached = False
    for _ in range(50):
        simulator.step(act())
        reached |= TASK.rules["paper"].solved(simulator.columns())
    assert reached


def test_exploration_covers_the_joint_space_smoothly(simulators: dict[str, Simulator]) -> None:
    simulator = simulators["fast"]
    assert TASK.behaviour is not None
    angles, actions = [], []
    for episode in range(12):
        simulator.reset(seed=episode)
        act = TASK.behaviour(simulator, np.random.default_rng(episode))
        for _ in range(200):
            actions.append(act())
            simulator.step(actions[-1])
            angles.append(simulator.columns()["qpos"])
    shoulder, wrist = np.stack(angles).T
    visited, _, _ = np.histogram2d(shoulder % (2 * math.pi), wrist, bins=(8, 6), range=((0, 2 * math.pi), (-2.8, 2.8)))
    assert (visited > 0).mean() > 0.9
    series = np.stack(actions)
    assert np.corrcoef(series[:-1, 0], series[1:, 0])[0, 1] > 0.4, "jerky at times, but going somewhere"
    assert np.abs(series).max() <= 1


def test_a_simulator_that_is_dropped_leaves_the_others_frames_alone(simulators: dict[str, Simulator]) -> None:
    before = simulators["fast"].frame()
    other = Simulator(TASK, 32, "fast")
    other.reset(seed=0)
    other.frame()
    del other
    gc.collect()
    np.testing.assert_array_equal(simulators["fast"].frame(), before)
