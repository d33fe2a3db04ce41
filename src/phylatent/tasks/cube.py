"""OGBench-Cube: an arm moves a cube to a place (`swm/OGBCube-v0`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from phylatent.errors import UserError
from phylatent.schema import PhysicalTarget, Row, Rule, TaskSpec
from phylatent.tasks._mujoco import small_renderer

SUCCESS_RADIUS = 0.04
STRICT_RADIUS = 0.03
STRICT_DEGREES = 15.0
STRICT_HOLD = 3

ACTION_NOISE = 0.1
NOISE_SHAPE = np.array([1.0, 1.0, 1.0, 3.0, 10.0])
STRAYS = 1 / 30
"""The chance, at every step, that the behaviour strays for a while, at most: each episode draws its own below it."""
STRAY_STEPS = (5, 26)
STRAY_MEMORY = 0.9
"""How much of a straying action is that of the step before."""
RESTING_HEIGHT = 0.02
QUARTER = math.pi / 2

PAD, FULL_CONTACT = "ur5e/robotiq/right_pad", 50.0
"""The body whose contact force the environment observes, and the force it calls 1."""


def read_columns(env: Any) -> Row:
    data, pinch = env._data, env._pinch_site_id
    cube, marker = data.joint("object_joint_0").qpos, env._cube_target_mocap_ids[0]
    return {
        "observation": env.compute_observation().astype(np.float32),
        "qpos": data.qpos.copy(),
        "qvel": data.qvel.copy(),
        "qacc_warmstart": data.qacc_warmstart.copy(),
        "effector_pose": np.concatenate([data.site_xpos[pinch], data.site_xmat[pinch]]),
        "privileged_block_0_pos": cube[:3].copy(),
        "privileged_block_0_quat": cube[3:].copy(),
        "goal_pos": data.mocap_pos[marker].copy(),
        "goal_quat": data.mocap_quat[marker].copy(),
    }


def restore(env: Any, row: Row) -> None:
    """Exact for rows of ours. Of other people's data `qpos` and `qvel` are enough, and are set as their evaluations do.

    Within a step MuJoCo moves the joints last: poses, which frames show and the next action starts from, are one small step
    behind. So they are computed where the joints were, and what cannot be recomputed to the bit comes from its column.
    """
    import mujoco

    model, data = env._model, env._data
    qpos, qvel = _joints(row, model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    if "goal_pos" in row:
        env.set_target_pos(0, row["goal_pos"], row["goal_quat"])
    if "effector_pose" not in row:
        data.ctrl[:], data.qacc_warmstart[:] = 0, 0
        mujoco.mj_forward(model, data)
        mujoco.mj_rnePostConstraint(model, data)
        return
    mujoco.mj_integratePos(model, data.qpos, data.qvel, -model.opt.timestep)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)
    data.qpos[:], data.qacc_warmstart[:] = qpos, row["qacc_warmstart"]
    data.site_xpos[env._pinch_site_id] = row["effector_pose"][:3]
    data.site_xmat[env._pinch_site_id] = row["effector_pose"][3:]
    data.body(PAD).cfrc_ext[:] = [FULL_CONTACT * row["observation"][18], 0, 0, 0, 0, 0]


def _joints(row: Row, model: Any) -> tuple[np.ndarray, np.ndarray]:
    for name, size in (("qpos", model.nq), ("qvel", model.nv)):
        found = f"{row[name].size} values" if name in row else "nothing"
        if found != f"{size} values":
            raise UserError(
                f"a Cube row holds {found} as {name!r}, where one arm and one cube have {size} values; "
                "use data of OGBench's single-cube task that records qpos and qvel"
            )
    return np.asarray(row["qpos"], dtype=np.float64), np.asarray(row["qvel"], dtype=np.float64)


def render_fast(env: Any, size: int) -> np.ndarray:
    """The published camera at twice the size, averaged down, without shadows, reflections, multisampling or fine detail."""
    import mujoco

    renderer = small_renderer(env, env._model, 2 * size)
    for effect in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
        renderer.scene.flags[effect] = 0
    renderer.update_scene(env._data, camera="front_pixels", scene_option=env._scene_option)
    return np.asarray(Image.fromarray(renderer.render()).resize((size, size), Image.Resampling.BOX))


def distance(row: Row, goal_row: Row) -> float:
    """From the cube's centre to its target, in metres."""
    return float(np.linalg.norm(row["privileged_block_0_pos"] - goal_row["goal_pos"]))


def misalignment(a: np.ndarray, b: np.ndarray) -> float:
    """The angle in degrees between two orientations (wxyz) of a cube whose faces all look the same.

    Of the 24 rotations that map a cube onto itself, the nearest to a rotation q has the cosine of half its angle to q in closed
    form: the group's quaternions are (1,0,0,0), (1,1,0,0)/√2 and (1,1,1,1)/2 up to signs and order.
    """
    (aw, *_), (bw, *_) = a, b
    av, bv = np.asarray(a[1:]), np.asarray(b[1:])
    between = np.array([aw * bw + av @ bv, *(aw * bv - bw * av - np.cross(av, bv))])
    w, x, y, z = np.sort(np.abs(between / np.linalg.norm(between)))[::-1]
    return math.degrees(2 * math.acos(min(1.0, max(w, (w + x) / math.sqrt(2), (w + x + y + z) / 2))))


def with_goal(row: Row, goal: Row) -> Row:
    return row | {"goal_pos": goal["privileged_block_0_pos"], "goal_quat": goal["privileged_block_0_quat"]}


def placed(row: Row) -> bool:
    return distance(row, row) <= SUCCESS_RADIUS


def not_placed(row: Row) -> bool:
    return not placed(row)


def placed_exactly(row: Row) -> bool:
    turned = misalignment(row["privileged_block_0_quat"], row["goal_quat"])
    return distance(row, row) <= STRICT_RADIUS and turned <= STRICT_DEGREES


def not_placed_exactly(row: Row) -> bool:
    return not placed_exactly(row)


def begin(env: Any, rng: np.random.Generator) -> None:
    """A scene that `rng` alone decides: the environment's reset drops its seed, and leaves the scene to chance."""
    import mujoco

    # Its test for a changed arm colour is the wrong way round, and would compile the same model anew at every reset.
    env.mark_dirty = lambda: None
    env.np_random = rng
    for name in ("start_position", "start_yaw"):
        space = env.variation_space["cube"][name]
        space.set_value(rng.uniform(space.low, space.high))
    mujoco.mj_resetData(env._model, env._data)
    env.initialize_episode()
    send_elsewhere(env, rng)


def send_elsewhere(env: Any, rng: np.random.Generator) -> None:
    """A new target on the table: the environment's own has one per episode, and would give the same again."""
    half = rng.uniform(0, math.pi)
    place = rng.uniform(*env._target_sampling_bounds)
    env.set_target_pos(0, (*place, RESTING_HEIGHT), (math.cos(half), 0, 0, math.sin(half)))


def oracle(simulator: Any, rng: np.random.Generator) -> Any:
    """OGBench's Markov oracle, its draws from `rng`, not from numpy's global generator."""
    env = simulator.env
    guide = simulator.load("ogbench.manipspace.oracles.markov.cube_markov:CubeMarkovOracle")(env=env)
    start_anew(guide, env, rng)
    return guide


def start_anew(guide: Any, env: Any, rng: np.random.Generator) -> None:
    guide.reset(None, None)
    guide._final_pos = rng.uniform(*env._arm_sampling_bounds)
    guide._final_yaw = rng.uniform(-math.pi, math.pi)


def behaviour(simulator: Any, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """The oracle with as much noise as the episode's draw says, given a new target whenever it is done.

    Now and then it strays: smooth random motion, as a planner's candidates have it, whatever is in the gripper. A model that
    knows the oracle's ways only believes that any other leads anywhere.
    """
    env = simulator.env
    begin(env, rng)
    guide = oracle(simulator, rng)
    noise, chance = rng.uniform(0, ACTION_NOISE) * NOISE_SHAPE, rng.uniform(0, STRAYS)
    straying, stray = 0, np.zeros(len(NOISE_SHAPE))

    def act() -> np.ndarray:
        nonlocal straying, stray
        if straying == 0 and rng.random() < chance:
            straying, stray = int(rng.integers(*STRAY_STEPS)), rng.normal(0, 1, len(stray))
        if straying:
            straying -= 1
            stray = STRAY_MEMORY * stray + math.sqrt(1 - STRAY_MEMORY**2) * rng.normal(0, 1, len(stray))
            return np.clip(stray, -1, 1).astype(np.float32)
        if guide.done:
            send_elsewhere(env, rng)
            start_anew(guide, env, rng)
        action = guide.select_action(None, env.compute_ob_info()) + rng.normal(0, noise)
        return np.clip(action, -1, 1).astype(np.float32)

    return act


def expert(simulator: Any, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """The oracle without noise, which lets go only of a cube that lies as it should: goals may be in the air, or turned."""
    env = simulator.env
    guide = oracle(simulator, rng)

    def act() -> np.ndarray:
        info, row = env.compute_ob_info(), simulator.columns()
        turn = info["privileged/target_block_yaw"][0] - info["privileged/block_0_yaw"][0]
        turn = (turn + QUARTER / 2) % QUARTER - QUARTER / 2
        lifted = row["goal_pos"][2] > RESTING_HEIGHT + 0.01
        if info["proprio/gripper_contact"] > 0.5 and placed(row) and (lifted or abs(turn) > 0.1):
            away = row["goal_pos"] - row["privileged_block_0_pos"]
            action = np.array([*away, turn, 1.0]) / env.action_high
        else:
            action = guide.select_action(None, info)
        return np.clip(action, -1, 1).astype(np.float32)

    return act


TASK = TaskSpec(
    name="cube",
    title="OGBench-Cube",
    env_id="swm/OGBCube-v0",
    env_kwargs={
        "env_type": "single",
        "ob_type": "states",
        "permute_blocks": True,
        "multiview": False,
        "height": 224,
        "width": 224,
        "physics_timestep": 0.002,
        "control_timestep": 0.05,
        "terminate_at_goal": False,
        "success_timing": "post",
        "mode": "data_collection",
        "visualize_info": False,
        "pixel_transparent_arm": True,
        "reward_task_id": None,
        "use_oracle_rep": False,
    },
    action_low=(-1.0,) * 5,
    action_high=(1.0,) * 5,
    target=PhysicalTarget(
        columns=("observation",),
        names=(
            *(f"joint_{i}" for i in range(6)),
            *(f"joint_velocity_{i}" for i in range(6)),
            *("effector_x", "effector_y", "effector_z", "effector_yaw_cos", "effector_yaw_sin"),
            *("gripper_opening", "gripper_contact"),
            *("cube_x", "cube_y", "cube_z", "cube_qw", "cube_qx", "cube_qy", "cube_qz", "cube_yaw_cos", "cube_yaw_sin"),
        ),
        angles={5: 2 * math.pi},  # the last wrist joint turns beyond ±π, and looks the same one turn further
    ),
    objectives={
        "psg": {"weight": 0.25},
        "fra": {"weight": 0.10},
        "svic": {"weight": 0.05, "brightness": 0.040, "channel": 0.030},
        "casc": {"weight": 0.02, "action_noise": 0.100, "margin_scale": 0.080, "max_margin": 1.00},
        "ld": {"weight": 0.01, "sigma_min": 0.03, "sigma_max": 0.35},
        "inverse": {"weight": 1.0},
    },
    episode_steps=200,
    # A frame costs three times a step: one per block of actions is drawn where time is short.
    presets={
        "laptop": {
            "collect": {"episodes": 2400, "frame_stride": 5, "shard_episodes": 25},
            "train": {"steps": 4000, "predictor_steps": 3000},
            # Five values a step: most failures of a smaller search are the search's own (docs/experiments.md).
            "plan": {"candidates": 256, "elites": 24, "iterations": 16, "warm_iterations": 6},
        },
        "quick": {"collect": {"frame_stride": 5}},
        "smoke": {"collect": {"frame_stride": 5}},
    },
    columns=(
        *("observation", "qpos", "qvel", "qacc_warmstart", "effector_pose"),
        *("privileged_block_0_pos", "privileged_block_0_quat", "goal_pos", "goal_quat"),
    ),
    severities={"brightness": 8.0, "colour": 0.8, "texture": 1.1, "noise": 0.05},
    moving_dims=(19, 20, 21),
    moving_tolerance=0.05,
    behaviour=behaviour,
    expert=expert,
    read_columns=read_columns,
    restore=restore,
    render_fast=render_fast,
    with_goal=with_goal,
    distance=distance,
    distance_unit="m",
    rules={
        "paper": Rule(solved=placed, meaning="cube at most 4 cm from its target"),
        "moderate": Rule(
            solved=placed,
            meaning="cube at most 4 cm from its target, pairs solved at the start left out",
            asks=not_placed,
        ),
        "strict": Rule(
            solved=placed_exactly,
            meaning="cube at most 3 cm and 15° from its target pose, held 3 steps, pairs solved at the start left out",
            asks=not_placed_exactly,
            hold=STRICT_HOLD,
        ),
    },
)
