"""PushT: a round pusher moves a T-shaped block to a pose (`swm/PushT-v1`). The environment's side of it follows later."""

from __future__ import annotations

import math

from phylatent.schema import PhysicalTarget, TaskSpec

TASK = TaskSpec(
    name="pusht",
    title="PushT",
    env_id="swm/PushT-v1",
    action_low=(-1.0, -1.0),
    action_high=(1.0, 1.0),
    target=PhysicalTarget(
        columns=("state",),
        names=("agent_x", "agent_y", "block_x", "block_y", "block_angle", "agent_vx", "agent_vy"),
        modulo={4: 2 * math.pi},
    ),
    objectives={
        "psg": {"weight": 0.090},
        "fra": {"weight": 0.035},
        "svic": {"weight": 0.060, "brightness": 0.012, "channel": 0.008},
        "casc": {"weight": 0.010, "action_noise": 0.015, "margin_scale": 0.018, "max_margin": 0.25},
        "ld": {"weight": 0.005, "sigma_min": 0.05, "sigma_max": 0.10},
    },
    episode_steps=125,
    moving_dims=(2, 3, 4),
    presets={"paper": {"train": {"max_steps_per_epoch": 10_000}}},
)
