"""OGBench-Cube: an arm moves a cube to a place (`swm/OGBCube-v0`). The environment's side of it follows later."""

from __future__ import annotations

from phylatent.schema import PhysicalTarget, TaskSpec

TASK = TaskSpec(
    name="cube",
    title="OGBench-Cube",
    env_id="swm/OGBCube-v0",
    env_kwargs={"env_type": "single", "ob_type": "states", "multiview": False, "visualize_info": False},
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
    ),
    objectives={
        "psg": {"weight": 0.25},
        "fra": {"weight": 0.10},
        "svic": {"weight": 0.05, "brightness": 0.040, "channel": 0.030},
        "casc": {"weight": 0.02, "action_noise": 0.100, "margin_scale": 0.080, "max_margin": 1.00},
        "ld": {"weight": 0.01, "sigma_min": 0.03, "sigma_max": 0.35},
    },
    episode_steps=200,
    moving_dims=(19, 20, 21),
)
