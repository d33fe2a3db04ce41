"""protocol=ordering: the paper's later version asks whether latent distances keep the *order* of physical ones."""

# a anchors, R references, M starts, b actions, K horizons, D latent, T pairs of actions

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phylatent.diagnostics import perturbations
from phylatent.diagnostics.branches import Branches
from phylatent.diagnostics.coordinates import Coordinates
from phylatent.diagnostics.held_out import HeldOutRows
from phylatent.diagnostics.latents import encode, predict
from phylatent.diagnostics.ordering_sample import MISSING, Neighbours
from phylatent.diagnostics.rates import Counts, Measured, count
from phylatent.models.latent import LatentModel

SHIFTS = {"brightness": perturbations.brightness, "colour": perturbations.colour, "texture": perturbations.texture}
CONDITIONS = (
    *(("brightness", strength) for strength in (1.0, 2.0, 3.0)),
    *(("colour", strength) for strength in (0.5, 1.0, 1.5)),
    *(("texture", strength) for strength in (0.5, 1.0, 1.5)),
)
"""Brightness ×0.92+0.035, ×0.84+0.07, ×0.76+0.105; tint and checker at 0.5, 1 and 1.5. Fixed: `severity` leaves them alone."""
COMPARED = 5


@dataclass(frozen=True, eq=False)
class Comparisons:
    eligible: np.ndarray
    failed: np.ndarray


def unit(z: np.ndarray) -> np.ndarray:
    """L2-normalised over the last axis; 0 stays 0."""
    z = z.astype(np.float64)
    length = np.linalg.norm(z, axis=-1, keepdims=True)
    return np.divide(z, length, out=np.zeros_like(z), where=length > 0)


def reversed_order(
    near: np.ndarray, far: np.ndarray, near_shifted: np.ndarray, far_shifted: np.ndarray, *, present: np.ndarray
) -> Comparisons:
    """Invariance: of comparisons ordered rightly on clean frames, those reversed or tied after both images are shifted."""
    return Comparisons(present & (near < far), far_shifted <= near_shifted)


def confused(near: np.ndarray, far: np.ndarray, *, present: np.ndarray) -> Comparisons:
    """Distinguishability: a physically far state is as near as a near one, or nearer."""
    return Comparisons(present, far <= near)


def lost_order(d_phys_T: np.ndarray, d_true_T: np.ndarray, d_pred_T: np.ndarray, *, compared: int = COMPARED) -> Comparisons:
    """Counterfactual, [..., T] → [..., compared²]: the physically closest pairs of actions against the farthest.

    Eligible where physics and encoded truth agree; a tie or a reversal in the prediction fails.
    """
    order = np.argsort(d_phys_T, axis=-1, kind="stable")
    closest, farthest = order[..., :compared], order[..., -compared:]

    def both(distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        near = np.take_along_axis(distances, closest, axis=-1)[..., :, None]
        return near, np.take_along_axis(distances, farthest, axis=-1)[..., None, :]

    (phys_near, phys_far), (true_near, true_far), (near, far) = both(d_phys_T), both(d_true_T), both(d_pred_T)
    eligible, failed = (phys_near < phys_far) & (true_near < true_far), far <= near
    return Comparisons(*(values.reshape(*values.shape[:-2], -1) for values in (eligible, failed)))


def measure_neighbours(model: LatentModel, neighbours: Neighbours, held: HeldOutRows) -> tuple[Measured, Measured]:
    """Invariance (beside it: each condition) and distinguishability."""
    frames, anchors = held.episodes.frames, neighbours.references.shape[1]
    episode = held.episode_of(neighbours.rows[:anchors])
    q1, q3, q4 = neighbours.references != MISSING
    present = np.stack([q1 & q3, q1 & q4])

    def distances(kind: str | None = None, strength: float = 0.0) -> np.ndarray:
        def read(rows: np.ndarray) -> np.ndarray:
            return SHIFTS[kind](frames(rows), strength=strength) if kind else frames(rows)

        z = unit(encode(model, read, neighbours.rows))
        return np.stack([np.linalg.norm(z[:anchors, None] - z[quartile], axis=-1) for quartile in neighbours.references])

    def near_and_far(d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.stack([d[0], d[0]]), d[1:]

    clean = distances()
    conditions = {}
    for kind, strength in CONDITIONS:
        shifted = distances(kind, strength)
        found = reversed_order(*near_and_far(clean), *near_and_far(shifted), present=present)
        conditions[f"{kind} {strength:g}"] = _count(found, episode[None, :, None], held)
    distinct = confused(clean[0], clean[2], present=present[1])
    return (
        Measured(headline=sum(conditions.values(), _none(held)), beside=conditions, arrays={}),
        Measured(
            headline=_count(distinct, episode[:, None], held),
            beside={},
            arrays={
                "failures": (distinct.failed & distinct.eligible).sum(axis=1).astype(np.int32),
                "eligible": distinct.eligible.sum(axis=1).astype(np.int32),
                "row": neighbours.rows[:anchors].astype(np.int32),
            },
        ),
    )


def measure_branches(
    model: LatentModel,
    branches: Branches,
    held: HeldOutRows,
    coordinates: Coordinates,
    *,
    horizons: Sequence[int],
    headline: int,
) -> Measured:
    shape = branches.targets.shape[:3]
    ends = unit(encode(model, branches.frames, np.arange(len(branches.packed))).reshape(*shape, -1))
    predicted = unit(predict(model, held.episodes.frames, branches.rows, branches.windows)[:, :, np.array(horizons) - 1])
    found = lost_order(*(_pairwise(points) for points in (coordinates(branches.targets), ends, predicted)))
    episode = held.episode_of(branches.rows)[:, None]
    counts = {
        str(horizon): _count(Comparisons(found.eligible[:, column], found.failed[:, column]), episode, held)
        for column, horizon in enumerate(horizons)
    }
    return Measured(
        headline=counts[str(headline)],
        beside=counts,
        arrays={
            "failures": (found.failed & found.eligible).sum(axis=-1).astype(np.int32),
            "eligible": found.eligible.sum(axis=-1).astype(np.int32),
            "row": branches.rows.astype(np.int32),
        },
    )


def _pairwise(points_MbKD: np.ndarray) -> np.ndarray:
    """[M, K, T]: the distance between the ends of every two actions."""
    first, second = np.triu_indices(points_MbKD.shape[1], k=1)
    return np.moveaxis(np.linalg.norm(points_MbKD[:, first] - points_MbKD[:, second], axis=-1), 1, -1)


def _count(found: Comparisons, episode: np.ndarray, held: HeldOutRows) -> Counts:
    episode = np.broadcast_to(episode, found.eligible.shape)
    return count(found.failed.ravel(), found.eligible.ravel(), episode.ravel(), episodes=len(held.ids))


def _none(held: HeldOutRows) -> Counts:
    return Counts(np.zeros(len(held.ids), dtype=np.int64), np.zeros(len(held.ids), dtype=np.int64))
