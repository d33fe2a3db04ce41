"""protocol=ordering: the paper's later version asks whether latent distances keep the *order* of physical ones.

Its three rates are a protocol of their own: other samples and criteria, two of them under the names of the paper's.
"""

# a anchors, R references, M starts, b actions, K horizons, D latent, T pairs of actions

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from phylatent.diagnostics import perturbations
from phylatent.diagnostics.branches import Branches
from phylatent.diagnostics.counterfactual import draw_starts
from phylatent.diagnostics.diagnostic import Diagnostic, shortfall
from phylatent.diagnostics.findings import Findings
from phylatent.diagnostics.held_out import HeldOutRows
from phylatent.diagnostics.latents import JudgedModel
from phylatent.diagnostics.material import Material
from phylatent.diagnostics.ordering_sample import MISSING, STARTS, Neighbours, constant_windows, draw_neighbours
from phylatent.diagnostics.rates import Counts, Measured, count
from phylatent.schema import DiagnoseConfig

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


class NeighbourDiagnostic(Diagnostic[Neighbours]):
    """What the two diagnostics of anchors and their references share: their sample, and its distances."""

    counted = "comparisons"

    def draw(self, material: Material, seed: int) -> Neighbours:
        settings = material.settings
        return draw_neighbours(
            material.held_out,
            material.coordinates,
            material.rng(seed, "ordering"),
            pool=settings.pool,
            anchors=settings.anchors,
            references=settings.references,
        )

    def distances(
        self, model: JudgedModel, sample: Neighbours, held_out: HeldOutRows, kind: str | None = None, strength: float = 0.0
    ) -> np.ndarray:
        """float64 [3, a, R]: from each anchor to its references in Q1, Q3 and Q4, of frames as they are or all shifted."""
        frames, anchors = held_out.episodes.frames, sample.references.shape[1]

        def read(rows: np.ndarray) -> np.ndarray:
            return SHIFTS[kind](frames(rows), strength=strength) if kind else frames(rows)

        z = unit(model.encode(read, sample.rows))
        return np.stack([np.linalg.norm(z[:anchors, None] - z[quartile], axis=-1) for quartile in sample.references])

    def present(self, sample: Neighbours) -> np.ndarray:
        """bool [2, a, R]: whether Q1 can be compared with Q3, and with Q4."""
        q1, q3, q4 = sample.references != MISSING
        return np.stack([q1 & q3, q1 & q4])

    def episode(self, sample: Neighbours, held_out: HeldOutRows) -> np.ndarray:
        return held_out.episode_of(sample.rows[: sample.references.shape[1]])


class OrderUnderShifts(NeighbourDiagnostic):
    name = "invariance"
    title = "Physical invariance"
    meaning = "Share of rightly ordered comparisons that are reversed or tied after both images are shifted."
    failure = "a change of appearance reverses near and far"

    def identity(self, sample: Neighbours) -> tuple[np.ndarray, ...]:
        return sample.rows, sample.references

    def notes(self, sample: Neighbours, material: Material) -> list[str]:
        return shortfall("frames in the pool", len(sample.rows), material.settings.pool)

    def measure(self, model: JudgedModel, sample: Neighbours, material: Material, seed: int) -> Measured:
        held_out = material.held_out
        present, episode = self.present(sample), self.episode(sample, held_out)[None, :, None]

        def near_and_far(d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.stack([d[0], d[0]]), d[1:]

        clean = near_and_far(self.distances(model, sample, held_out))
        conditions = {}
        for kind, strength in CONDITIONS:
            shifted = near_and_far(self.distances(model, sample, held_out, kind, strength))
            found = reversed_order(*clean, *shifted, present=present)
            conditions[f"{kind} {strength:g}"] = _count(found, episode, held_out)
        return Measured(headline=sum(conditions.values(), _none(held_out)), beside=conditions, arrays={})

    def beside_rate(self, found: Findings[Neighbours], settings: DiagnoseConfig) -> dict[str, Any]:
        return {"by_condition": found.rates([f"{kind} {strength:g}" for kind, strength in CONDITIONS])}


class Distinguishability(NeighbourDiagnostic):
    name = "distinguishability"
    title = "Distinguishability"
    meaning = "Share of comparisons where a physically far state is as near in latent space as a near one, or nearer."
    failure = "a far state is as near as a near one"

    def identity(self, sample: Neighbours) -> tuple[np.ndarray, ...]:
        """The sample is that of `OrderUnderShifts`, which has it in the fingerprint."""
        return ()

    def measure(self, model: JudgedModel, sample: Neighbours, material: Material, seed: int) -> Measured:
        clean = self.distances(model, sample, material.held_out)
        found = confused(clean[0], clean[2], present=self.present(sample)[1])
        return Measured(
            headline=_count(found, self.episode(sample, material.held_out)[:, None], material.held_out),
            beside={},
            arrays={
                "failures": (found.failed & found.eligible).sum(axis=1).astype(np.int32),
                "eligible": found.eligible.sum(axis=1).astype(np.int32),
                "row": sample.rows[: sample.references.shape[1]].astype(np.int32),
            },
        )


class OrderOfPredictions(Diagnostic[Branches]):
    name = "counterfactual"
    title = "Counterfactual dynamics"
    meaning = "Share of pairs of actions, ordered by how far they lead apart, whose order the predictions lose."
    failure = "predictions reverse which actions lead apart"
    counted = "comparisons"

    def draw(self, material: Material, seed: int) -> Branches:
        held_out, blocks = material.held_out, material.settings.horizons[-1]
        starts = draw_starts(held_out, material.rng(seed, "starts"), count=_starts(material))
        window = constant_windows(held_out, material.task, stride=material.clip.stride, blocks=blocks)
        return material.execute(starts, np.repeat(window[None], len(starts), axis=0), seed)

    def identity(self, sample: Branches) -> tuple[np.ndarray, ...]:
        return sample.rows, sample.windows

    def notes(self, sample: Branches, material: Material) -> list[str]:
        return shortfall("starts of branches", len(sample.rows), _starts(material))

    def measure(self, model: JudgedModel, sample: Branches, material: Material, seed: int) -> Measured:
        held_out, horizons = material.held_out, material.settings.horizons
        ends = unit(model.encode(sample.frames, np.arange(len(sample.packed))).reshape(*sample.targets.shape[:3], -1))
        rolled = model.predict(held_out.episodes.frames, sample.rows, sample.windows)
        predicted = unit(rolled[:, :, np.array(horizons) - 1])
        found = lost_order(*(_pairwise(points) for points in (material.coordinates(sample.targets), ends, predicted)))
        episode = held_out.episode_of(sample.rows)[:, None]
        counts = {
            str(horizon): _count(Comparisons(found.eligible[:, column], found.failed[:, column]), episode, held_out)
            for column, horizon in enumerate(horizons)
        }
        return Measured(
            headline=counts[str(horizons[-1])],
            beside=counts,
            arrays={
                "failures": (found.failed & found.eligible).sum(axis=-1).astype(np.int32),
                "eligible": found.eligible.sum(axis=-1).astype(np.int32),
                "row": sample.rows.astype(np.int32),
            },
        )

    def beside_rate(self, found: Findings[Branches], settings: DiagnoseConfig) -> dict[str, Any]:
        by_horizon = found.rates([str(horizon) for horizon in settings.horizons])
        return {"horizon": settings.horizons[-1], "by_horizon": by_horizon}


ORDERING: dict[str, Diagnostic[Any]] = {
    one.name: one for one in (OrderUnderShifts(), Distinguishability(), OrderOfPredictions())
}


def _starts(material: Material) -> int:
    return min(material.settings.branches, STARTS)


def _pairwise(points_MbKD: np.ndarray) -> np.ndarray:
    """[M, K, T]: the distance between the ends of every two actions."""
    first, second = np.triu_indices(points_MbKD.shape[1], k=1)
    return np.moveaxis(np.linalg.norm(points_MbKD[:, first] - points_MbKD[:, second], axis=-1), 1, -1)


def _count(found: Comparisons, episode: np.ndarray, held_out: HeldOutRows) -> Counts:
    episode = np.broadcast_to(episode, found.eligible.shape)
    return count(found.failed.ravel(), found.eligible.ravel(), episode.ravel(), episodes=len(held_out.ids))


def _none(held_out: HeldOutRows) -> Counts:
    return Counts(np.zeros(len(held_out.ids), dtype=np.int64), np.zeros(len(held_out.ids), dtype=np.int64))
