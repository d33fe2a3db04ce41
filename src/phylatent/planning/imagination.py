"""Did it come as imagined? A plan's expected cost against the real one, and why a failed episode failed."""

# F frames of a bank, D latent

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from phylatent.planning.closed_loop import Trajectory
from phylatent.statistics import rank_correlation

AGREEMENT = 0.1
"""Imagined and real cost agree when they differ by less than this share of the cost at the start."""


def failure_cause(trajectory: Trajectory) -> str | None:
    """Why the first attempt of a failed episode failed: the first plan, and those that shrink towards the same arrival.

    `search`: the model itself rates the recorded actions, which lead to the goal, above the plan that was found.
    `model`: a plan was expected to come closer than it did.
    `latent`: it came as close as expected, in latent space; physically it is elsewhere.
    """
    if not trajectory.plans:
        return None
    first = trajectory.plans[0]
    if first.recorded_cost is not None and first.recorded_cost < first.planned_cost:
        return "search"
    attempt = [first]
    for plan in trajectory.plans[1:]:
        if len(plan.imagined_kD) >= len(attempt[-1].imagined_kD):
            break
        attempt.append(plan)
    missed = max(plan.real_cost - plan.imagined_cost for plan in attempt)
    return "model" if missed > AGREEMENT * first.start_cost else "latent"


def imagination(trajectories: Sequence[Trajectory], successes: Sequence[bool]) -> dict[str, object] | None:
    """Over all plans: how many came as imagined, how the two costs rank together, and why episodes failed."""
    plans = [plan for trajectory in trajectories for plan in trajectory.plans]
    if not plans:
        return None
    costs = np.array([(plan.start_cost, plan.imagined_cost, plan.real_cost) for plan in plans])
    agreed = np.abs(costs[:, 2] - costs[:, 1]) <= AGREEMENT * costs[:, 0]
    failed = Counter(failure_cause(t) for t, success in zip(trajectories, successes, strict=True) if not success)
    return {
        "plans": len(plans),
        "agreed": float(agreed.mean()),
        "correlation": rank_correlation(costs[:, 1], costs[:, 2]),
        "failures": {name: failed.get(name, 0) for name in ("search", "model", "latent")},
    }


def nearest(latents: np.ndarray, bank_FD: np.ndarray) -> np.ndarray:
    """For each latent [..., D], the index of the bank's nearest one."""
    flat = latents.reshape(-1, latents.shape[-1])
    distances = (flat**2).sum(-1)[:, None] - 2 * flat @ bank_FD.T + (bank_FD**2).sum(-1)
    return distances.argmin(-1).reshape(latents.shape[:-1])
