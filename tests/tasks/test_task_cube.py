"""Cube: rules on hand-made poses, exact restore and replay, frames that hide the goal, and what its oracle does."""

from __future__ import annotations

import itertools
import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from phylatent.data.shards import Plan, record_episode
from phylatent.errors import UserError
from phylatent.planning.protocols import Watch
from phylatent.schema import AS_PUBLISHED, FAST, Row
from phylatent.simulator import Simulator
from phylatent.tasks import get_task
from phylatent.tasks._mujoco import coarse_faces
from phylatent.tasks.cube import misalignment, render_fast

TASK = get_task("cube")
UPRIGHT = np.array([1.0, 0.0, 0.0, 0.0])
PLAN = Plan("cube", TASK.env_id, dict(TASK.env_kwargs), 0, 2, 60, 64, 1, 1, FAST)


def about(axis: int, degrees: float) -> np.ndarray:
    quaternion = np.zeros(4)
    quaternion[0], quaternion[1 + axis] = math.cos(math.radians(degrees) / 2), math.sin(math.radians(degrees) / 2)
    return quaternion


def times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    vector = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.array([a[0] * b[0] - a[1:] @ b[1:], *vector])


def at(x: float, quaternion: np.ndarray = UPRIGHT) -> Row:
    """A cube `x` metres beside its goal."""
    return {
        "privileged_block_0_pos": np.array([0.4 + x, 0.1, 0.02]),
        "privileged_block_0_quat": quaternion,
        "goal_pos": np.array([0.4, 0.1, 0.02]),
        "goal_quat": UPRIGHT,
    }


def symmetries() -> list[np.ndarray]:
    """The cube's 24 rotations: which face is up, and how it is turned."""
    up = [UPRIGHT, *(about(0, degrees) for degrees in (90, 180, 270)), about(1, 90), about(1, 270)]
    return [times(face, about(2, degrees)) for face, degrees in itertools.product(up, (0, 90, 180, 270))]


@pytest.mark.parametrize("pose", [UPRIGHT, about(2, 33.0), times(about(0, 70.0), about(1, 12.0))])
def test_a_cube_looks_the_same_after_its_24_rotations(pose: np.ndarray) -> None:
    rotations = symmetries()
    assert len({tuple(np.round(q * np.sign(q[np.abs(q) > 1e-9][0]), 6) + 0.0) for q in rotations}) == 24
    for rotation in rotations:
        assert misalignment(pose, times(pose, rotation)) == pytest.approx(0, abs=1e-4)
        assert misalignment(-pose, times(pose, rotation)) == pytest.approx(0, abs=1e-4)
        tilted = times(about(0, 20.0), times(pose, rotation))
        assert misalignment(pose, tilted) == misalignment(tilted, pose) == pytest.approx(20)


@pytest.mark.parametrize(("turned", "seen"), [(14, 14), (45, 45), (60, 30), (90, 0), (-100, 10), (200, 20)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_angles_count_to_the_nearest_quarter_turn(axis: int, turned: float, seen: float) -> None:
    assert misalignment(UPRIGHT, about(axis, turned)) == pytest.approx(seen, abs=1e-4)


@pytest.mark.parametrize(
    ("row", "paper", "strict"),
    [
        (at(0.0), True, True),
        (at(0.029), True, True),
        (at(0.031), True, False),
        (at(0.039), True, False),
        (at(0.041), False, False),
        (at(0.0, about(2, 45)), True, False),
        (at(0.0, about(2, 106)), True, False),
        (at(0.029, about(2, 104)), True, True),
        (at(0.0, -about(0, 180)), True, True),
    ],
)
def test_rules(row: Row, paper: bool, strict: bool) -> None:
    rules = TASK.rules
    assert rules["paper"].solved(row) is rules["moderate"].solved(row) is paper
    assert rules["strict"].solved(row) is strict
    assert rules["paper"].asks is None
    assert rules["moderate"].asks is not None
    assert rules["moderate"].asks(row) is not paper
    assert rules["strict"].asks is not None
    assert rules["strict"].asks(row) is not strict


def test_strict_holds_for_three_steps() -> None:
    watch = Watch(TASK.rules["strict"])
    for x in (0.0, 0.0, 0.1, 0.0, 0.0, 0.0):
        watch.see(at(x))
    assert watch.success == 5


def test_another_state_is_the_goal() -> None:
    assert TASK.with_goal is not None
    assert TASK.distance is not None
    row = TASK.with_goal(at(0.0), at(0.3, about(2, 10)))
    assert TASK.distance(row, row) == pytest.approx(0.3)
    assert np.array_equal(row["goal_quat"], about(2, 10))


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    simulator = Simulator(TASK, 64, FAST)
    yield simulator
    simulator.close()


@pytest.fixture(scope="module")
def episode(simulator: Simulator) -> Row:
    return record_episode(simulator, TASK, PLAN, 0)


@pytest.fixture(scope="module")
def long_episode(simulator: Simulator, episode: Row) -> Row:
    return record_episode(simulator, TASK, Plan("cube", TASK.env_id, {}, 0, 9, 200, 64, 25, 1, FAST), 3)


def row_of(episode: Row, step: int) -> Row:
    return {name: episode[name][step] for name in TASK.columns}


def test_an_episode_is_the_same_whatever_ran_before(simulator: Simulator, episode: Row, long_episode: Row) -> None:
    again = record_episode(simulator, TASK, PLAN, 0)
    assert all(np.array_equal(again[name], episode[name], equal_nan=True) for name in episode)
    assert not np.array_equal(long_episode["qpos"][0], episode["qpos"][0])


def test_the_target_is_the_papers(episode: Row) -> None:
    names = dict(zip(TASK.target.names, episode["observation"].T, strict=True))
    joints = np.stack([names[f"joint_{i}"] for i in range(6)], 1)
    assert np.allclose(joints, episode["qpos"][:, :6])
    assert np.allclose(names["joint_velocity_5"], episode["qvel"][:, 5], atol=1e-6)
    cube = np.stack([names["cube_x"], names["cube_y"], names["cube_z"]], 1) / 10 + [0.425, 0, 0]
    assert np.allclose(cube, episode["privileged_block_0_pos"], atol=1e-6)
    effector = np.stack([names["effector_x"], names["effector_y"], names["effector_z"]], 1) / 10 + [0.425, 0, 0]
    assert np.allclose(effector, episode["effector_pose"][:, :3], atol=1e-6)
    assert np.allclose(names["cube_qw"], episode["privileged_block_0_quat"][:, 0])
    assert np.allclose(names["cube_yaw_cos"] ** 2 + names["cube_yaw_sin"] ** 2, 1, atol=1e-5)
    assert names["gripper_contact"].max() > 0.5
    assert names["gripper_opening"].max() > 1


def test_restoring_gives_the_recorded_frame_and_columns(simulator: Simulator, episode: Row) -> None:
    simulator.reset(9)
    for step in (0, 17, 41, 60):
        simulator.restore(row_of(episode, step))
        assert np.array_equal(simulator.frame(), episode["pixels"][step])
        assert all(np.array_equal(value, episode[name][step]) for name, value in simulator.columns().items())


@pytest.mark.parametrize("start", [0, 20, 35])
def test_replaying_lands_on_the_recorded_states(simulator: Simulator, episode: Row, start: int) -> None:
    simulator.restore(row_of(episode, 60))
    simulator.step(np.ones(5))
    simulator.restore(row_of(episode, start))
    for step in range(start, start + 25):
        simulator.step(episode["action"][step])
        now = simulator.columns()
        assert all(np.array_equal(now[name], episode[name][step + 1]) for name in ("qpos", "qvel", "observation"))


FRESH = """
import pickle, sys
from phylatent.simulator import Simulator
from phylatent.tasks import get_task
row, actions = pickle.load(open(sys.argv[1], "rb"))
simulator = Simulator(get_task("cube"), 64, "fast")
simulator.reset(1)
simulator.restore(row)
first = simulator.frame()
for action in actions:
    simulator.step(action)
pickle.dump((first, simulator.columns(), simulator.frame()), open(sys.argv[1], "wb"))
"""


def test_another_process_restores_and_replays_the_same(episode: Row, tmp_path: Path) -> None:
    message = tmp_path / "message.pkl"
    message.write_bytes(pickle.dumps((row_of(episode, 30), episode["action"][30:55])))
    done = subprocess.run([sys.executable, "-c", FRESH, str(message)], capture_output=True, text=True, check=True)
    first, columns, last = pickle.loads(message.read_bytes())
    assert np.array_equal(first, episode["pixels"][30])
    assert np.array_equal(last, episode["pixels"][55])
    assert np.array_equal(columns["qpos"], episode["qpos"][55])
    assert "Error" not in done.stderr  # the renderer is closed before its display


def test_frames_as_published_beside_fast_ones_and_neither_shows_the_goal(simulator: Simulator, episode: Row) -> None:
    assert simulator.env._renderer is None  # nothing so far, stepping included, has drawn the published way
    row = row_of(episode, 40)
    elsewhere = row | {"goal_pos": np.array([0.35, -0.1, 0.02])}
    simulator.restore(row)
    published, fast = simulator.env.render().copy(), simulator.frame()
    assert published.shape == (224, 224, 3)
    assert fast.shape == (64, 64, 3)
    simulator.restore(elsewhere)
    assert np.array_equal(simulator.env.render(), published)
    assert np.array_equal(simulator.frame(), fast)
    assert np.array_equal(simulator.columns()["goal_pos"], elsewhere["goal_pos"])
    simulator.render = AS_PUBLISHED
    as_published = simulator.frame()
    simulator.render = FAST
    assert np.abs(as_published.astype(float) - fast).mean() < 20
    simulator.restore(row_of(episode, 0))
    small = simulator.frame()
    red, green, blue = small.transpose(2, 0, 1).astype(int)
    reddish = (red > 2 * green) & (red > 2 * blue) & (red > 80)
    assert 8 <= reddish.sum() <= 40  # the cube is seen, about 4 pixels wide
    assert render_fast(simulator.env, 96).std() == pytest.approx(small.std(), rel=0.1)  # another size, and back
    assert np.array_equal(simulator.frame(), small)


def test_coarse_faces_by_hand() -> None:
    """Four corners of a unit square and a fifth beside the first: of three triangles the one between the two neighbours goes,
    and of two that become alike the second."""
    vertices = np.array([[0.1, 0.1, 0], [1.1, 0.1, 0], [1.1, 1.1, 0], [0.1, 1.1, 0], [0.2, 0.1, 0], [0.12, 0.1, 0]])
    faces = np.array([[0, 1, 2], [0, 2, 3], [0, 4, 1], [4, 1, 2]])
    kept, corners = coarse_faces(vertices, faces, 0.5)
    assert kept.tolist() == [0, 1]
    assert corners.tolist() == [[5, 1, 2], [5, 2, 3]]  # the fifth and the first are one with the sixth, nearest to their mean


def test_the_meshes_are_coarse_in_the_renderer_only(simulator: Simulator) -> None:
    simulator.frame()
    model = simulator.env._model
    assert model.mesh_facenum.sum() > 180_000
    assert model.mesh_facenum.sum() == len(model.mesh_face)


def test_joints_alone_restore_other_peoples_rows(simulator: Simulator, episode: Row) -> None:
    row = {name: episode[name][40].astype(np.float32) for name in ("qpos", "qvel")}
    simulator.restore(row)
    now = simulator.columns()
    assert np.allclose(now["observation"][:18], episode["observation"][40][:18], atol=0.05)
    assert np.abs(simulator.frame().astype(float) - episode["pixels"][40]).mean() < 1
    with pytest.raises(UserError, match=r"nothing as 'qvel'.*20 values"):
        simulator.restore({"qpos": row["qpos"]})
    with pytest.raises(UserError, match=r"14 values as 'qpos'.*21 values"):
        simulator.restore(row | {"qpos": row["qpos"][:14]})


def test_the_oracle_carries_the_cube_from_target_to_target(long_episode: Row) -> None:
    assert len(np.unique(long_episode["goal_pos"], axis=0)) >= 2
    moved = np.linalg.norm(np.diff(long_episode["privileged_block_0_pos"], axis=0), axis=1)
    assert (moved > 0.005).mean() >= 0.5
    assert long_episode["privileged_block_0_pos"][:, 2].max() > 0.1
    assert np.nanmax(np.abs(long_episode["action"])) <= 1


def test_the_expert_reaches_and_keeps_recorded_goals(simulator: Simulator, long_episode: Row) -> None:
    assert TASK.expert is not None
    assert TASK.with_goal is not None
    solved = []
    for start in range(6):
        goal = row_of(long_episode, start + 1)
        simulator.restore(TASK.with_goal(row_of(long_episode, start), goal))
        act = TASK.expert(simulator, np.random.default_rng(0))
        watches = [Watch(TASK.rules[name]) for name in ("paper", "strict")]
        for _ in range(50):
            simulator.step(act())
            for watch in watches:
                watch.see(TASK.with_goal(simulator.columns(), goal))
        solved.append([watch.success is not None for watch in watches])
    assert np.mean(solved, axis=0)[0] == 1
    assert np.mean(solved, axis=0)[1] >= 0.5
