"""Reachability collapse: along a recorded path to a goal, the latent distance to that goal does not decrease.

A planner walks down the latent distance. Where a path that really led to the goal does not look like a way down, a planner
stalls before it, however well states are told apart and actions are predicted.
"""

# N paths, L rows of a path (goal included), D latent, C physical coordinates

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from phylatent.diagnostics.diagnostic import Diagnostic, Points, ScatterAxes, shortfall
from phylatent.diagnostics.findings import Findings
from phylatent.diagnostics.rates import Measured, count
from phylatent.errors import UserError
from phylatent.schema import DiagnoseConfig
from phylatent.statistics import rank_correlation

if TYPE_CHECKING:
    from phylatent.diagnostics.held_out import HeldOutRows
    from phylatent.diagnostics.latents import JudgedModel
    from phylatent.diagnostics.material import Material

TOGETHER = 0.5
"""Time and distance to the goal must be correlated at least so much, by rank."""
PHYSICAL = "physical"
HORIZONS_AHEAD = 2
"""A goal lies so many of the longest horizons ahead: what a planner has to reach with more than one plan."""


def goal_distances(z_NLD: np.ndarray) -> np.ndarray:
    """‖z_t − z_goal‖₂ of every row before a path's last, which is the goal: float64 [N, L − 1]."""
    z = z_NLD.astype(np.float64)
    return np.linalg.norm(z[:, :-1] - z[:, -1:], axis=-1)


def descent(distances_NL: np.ndarray) -> np.ndarray:
    """Spearman's correlation of time and distance left to the goal, float64 [N]: 1 where the distance falls at every row.

    0 where the distance is the same at every row: it does not show the way at all.
    """
    left = np.arange(distances_NL.shape[1], 0, -1)
    return np.array([rank_correlation(left, distances) or 0.0 for distances in distances_NL])


def reachability_failures(correlation: np.ndarray, *, together: float = TOGETHER) -> np.ndarray:
    """ρ < 0.5."""
    return correlation < together


@dataclass(frozen=True, eq=False)
class Paths:
    rows: np.ndarray
    """int64 [N, L]: a block apart, in one episode; the last one is the goal."""


def draw_paths(held_out: HeldOutRows, rng: np.random.Generator, *, count: int, blocks: int) -> Paths:
    """Distinct starts, each with the rows of its episode that lead to a goal `blocks` later."""
    candidates = held_out.rows_before(blocks)
    if not len(candidates):
        raise UserError(
            f"no held-out episode of {held_out.episodes.path} is as long as {blocks} blocks of actions, which reachability "
            "takes; collect longer ones, or give smaller diagnose.horizons"
        )
    starts = rng.choice(candidates, min(count, len(candidates)), replace=False)
    return Paths(starts[:, None] + held_out.block_rows * np.arange(blocks + 1))


class Reachability(Diagnostic[Paths]):
    name = "reachability"
    title = "Goal reachability"
    meaning = (
        "Share of recorded paths to a goal along which the latent distance to it hardly falls with the time left "
        "(rank correlation below 0.5)."
    )
    failure = "the way to a goal does not bring its latent nearer"
    counted = "paths"
    axes = ScatterAxes(
        x="d start",
        y="d max",
        z="ρ",
        colour="#CC79A7",
        limits=(-1.0, 1.0),
        caption="d_start and d_max: latent distance to the goal at the start of a recorded path, and the largest on the way; "
        "ρ: rank correlation of time and distance left, a failure below 0.5.",
    )

    def draw(self, material: Material, seed: int) -> Paths:
        settings = material.settings
        rng, blocks = material.rng(seed, self.name), blocks_ahead(settings)
        return draw_paths(material.held_out, rng, count=settings.states, blocks=blocks)

    def identity(self, sample: Paths) -> tuple[np.ndarray, ...]:
        return (sample.rows,)

    def notes(self, sample: Paths, material: Material) -> list[str]:
        return shortfall("paths to a goal", len(sample.rows), material.settings.states)

    def measure(self, model: JudgedModel, sample: Paths, material: Material, seed: int) -> Measured:
        held_out = material.held_out
        rows, place = np.unique(sample.rows, return_inverse=True)
        z_NLD = model.encode(held_out.episodes.frames, rows)[place.reshape(sample.rows.shape)]
        distances = goal_distances(z_NLD)
        correlation = descent(distances)
        s_NLC = material.coordinates(held_out.episodes.targets[sample.rows])
        known = np.isfinite(s_NLC).all(axis=(1, 2))
        physical = reachability_failures(descent(goal_distances(np.nan_to_num(s_NLC))))
        episode, episodes = held_out.episode_of(sample.rows[:, 0]), len(held_out.ids)
        return Measured(
            headline=count(reachability_failures(correlation), np.ones_like(known), episode, episodes=episodes),
            beside={PHYSICAL: count(physical, known, episode, episodes=episodes)},
            arrays={
                "distance": distances.astype(np.float32),
                "correlation": correlation.astype(np.float32),
                "row": sample.rows[:, 0],
                "goal": sample.rows[:, -1],
            },
            facts={"median_correlation": float(np.median(correlation))},
        )

    def beside_rate(self, found: Findings[Paths], settings: DiagnoseConfig) -> dict[str, Any]:
        """The median is over the paths of all seeds; `physical` is the rate that the physical distance itself would have."""
        correlations = [one.arrays["correlation"] for one in found.measured]
        median = float(np.median(np.concatenate(correlations))) if correlations else None
        return {"blocks": blocks_ahead(settings), "median_correlation": median} | found.rates([PHYSICAL])

    def remark(self, section: Mapping[str, Any]) -> str:
        median, physical = section.get("median_correlation"), (section.get(PHYSICAL) or {}).get("rate")
        if median is None or physical is None:
            return ""
        return f"median correlation {median:.2f}, and {100 * physical:.1f} % of paths fail by physical distance"

    def points(self, arrays: Mapping[str, np.ndarray], section: Mapping[str, Any]) -> Points | None:
        if not {"distance", "correlation"} <= arrays.keys():
            return None
        distance, correlation = arrays["distance"], arrays["correlation"]
        failed = reachability_failures(correlation)
        return Points(distance[:, 0], distance.max(axis=1), correlation, failed, (("z", TOGETHER),), len(correlation))


def blocks_ahead(settings: DiagnoseConfig) -> int:
    return HORIZONS_AHEAD * settings.horizons[-1]


DIAGNOSTIC = Reachability()
