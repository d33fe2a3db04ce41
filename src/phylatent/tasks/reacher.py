"""Reacher: a two-joint arm takes a joint configuration (`swm/ReacherDMControl-v0`). The environment's side of it follows later.

`to_target` is part of the paper's physical target although the frames hardly show it: the target is transparent.
"""

from __future__ import annotations

from phylatent.schema import PhysicalTarget, TaskSpec

TASK = TaskSpec(
    name="reacher",
    title="Reacher",
    env_id="swm/ReacherDMControl-v0",
    env_kwargs={"task": "qpos_match"},
    action_low=(-1.0, -1.0),
    action_high=(1.0, 1.0),
    target=PhysicalTarget(
        columns=("observation",),
        names=("shoulder", "wrist", "to_target_x", "to_target_y", "shoulder_velocity", "wrist_velocity"),
    ),
    objectives={
        "psg": {"weight": 0.045},
        "fra": {"weight": 0.025},
        "svic": {"weight": 0.030, "brightness": 0.012, "channel": 0.008},
        "casc": {"weight": 0.015, "action_noise": 0.025, "margin_scale": 0.025, "max_margin": 0.35},
        "ld": {"weight": 0.005, "sigma_min": 0.05, "sigma_max": 0.10},
    },
    episode_steps=200,
    moving_dims=(0, 1),
    presets={"paper": {"train": {"max_steps_per_epoch": 10_000}}},
)
