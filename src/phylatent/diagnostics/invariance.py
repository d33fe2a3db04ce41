"""Physical invariance collapse: an appearance-only change moves the latent further than a real transition."""

# N states, D latent, V kinds of perturbation

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from phylatent.diagnostics.diagnostic import Breakdown, Diagnostic, Points, ScatterAxes, shortfall
from phylatent.diagnostics.findings import Findings
from phylatent.diagnostics.rates import Measured, count
from phylatent.errors import UserError
from phylatent.schema import PERTURBATIONS, DiagnoseConfig

if TYPE_CHECKING:
    from phylatent.diagnostics.held_out import HeldOutRows
    from phylatent.diagnostics.latents import JudgedModel
    from phylatent.diagnostics.material import Material

EPSILON = 1e-8


def displacement(z_ND: np.ndarray, other_ND: np.ndarray) -> np.ndarray:
    """d_nuis and d_state of eq:invariance_diagnostic: ‖z − z'‖₂, float64 [N]."""
    return np.linalg.norm(z_ND.astype(np.float64) - other_ND.astype(np.float64), axis=-1)


def invariance_ratio(d_nuis: np.ndarray, d_state: np.ndarray, *, epsilon: float = EPSILON) -> np.ndarray:
    """r_inv of eq:invariance_diagnostic."""
    return np.log10((d_nuis + epsilon) / (d_state + epsilon))


def invariance_failures(d_nuis: np.ndarray, d_state: np.ndarray) -> np.ndarray:
    """C_inv of eq:invariance_diagnostic, the same as r_inv > 0."""
    return d_nuis > d_state


@dataclass(frozen=True, eq=False)
class States:
    rows: np.ndarray
    later: np.ndarray
    """The row Δ = one block later, in the same episode."""
    kinds: np.ndarray
    """Index into `PERTURBATIONS`: the one that counts in the headline."""


def draw_states(held_out: HeldOutRows, rng: np.random.Generator, *, count: int) -> States:
    """Distinct states; the kinds of perturbation in equal shares."""
    candidates = held_out.rows_before(1)
    if not len(candidates):
        raise UserError(
            f"no held-out episode of {held_out.episodes.path} is as long as one block of actions; collect longer ones"
        )
    rows = rng.choice(candidates, min(count, len(candidates)), replace=False)
    kinds = rng.permutation(np.arange(len(rows)) % len(PERTURBATIONS))
    return States(rows, rows + held_out.block_rows, kinds)


def measure_states(
    model: JudgedModel,
    states: States,
    held_out: HeldOutRows,
    *,
    strengths: Mapping[str, float],
    severity: float,
    seed: int,
) -> Measured:
    """Headline: each state under its own kind of perturbation. Beside it: every kind on all states."""
    from phylatent.diagnostics.perturbations import perturb  # needs torch, which the report does without

    frames = held_out.episodes.frames
    z_ND = model.encode(frames, states.rows)
    d_state = displacement(z_ND, model.encode(frames, states.later))

    def displaced_by(kind: str) -> np.ndarray:
        def read(rows: np.ndarray) -> np.ndarray:
            return perturb(frames(rows), kind, severity=severity, seed=seed, rows=rows, strengths=strengths)

        return displacement(z_ND, model.encode(read, states.rows))

    d_nuis_NV = np.stack([displaced_by(kind) for kind in PERTURBATIONS], axis=1)
    d_nuis = d_nuis_NV[np.arange(len(states.rows)), states.kinds]
    episode, episodes = held_out.episode_of(states.rows), len(held_out.ids)
    everyone = np.ones(len(states.rows), dtype=bool)
    return Measured(
        headline=count(invariance_failures(d_nuis, d_state), everyone, episode, episodes=episodes),
        beside={
            kind: count(invariance_failures(d_nuis_NV[:, v], d_state), everyone, episode, episodes=episodes)
            for v, kind in enumerate(PERTURBATIONS)
        },
        arrays={
            "d_nuis": d_nuis.astype(np.float32),
            "d_state": d_state.astype(np.float32),
            "d_nuis_by_kind": d_nuis_NV.astype(np.float32),
            "kind": states.kinds,
            "row": states.rows,
            "episode": np.array(held_out.ids)[episode],
        },
    )


class Invariance(Diagnostic[States]):
    name = "invariance"
    title = "Physical invariance"
    meaning = "Share of states where a change of appearance alone moves the latent further than a real step does."
    failure = "appearance moves the latent more than a step does"
    counted = "states"
    breakdown = Breakdown("by_kind", "Invariance, by perturbation")
    axes = ScatterAxes(
        x="d nuis",
        y="d state",
        z="r inv",
        colour="#0072B2",
        limits=(-4.0, 4.0),
        caption="d_nuis: how far a change of appearance moves the latent; d_state: how far one real step moves it; "
        "r_inv = log_10(d_nuis / d_state), a failure above 0.",
    )

    def draw(self, material: Material, seed: int) -> States:
        return draw_states(material.held_out, material.rng(seed, "states"), count=material.settings.states)

    def identity(self, sample: States) -> tuple[np.ndarray, ...]:
        return sample.rows, sample.later, sample.kinds

    def notes(self, sample: States, material: Material) -> list[str]:
        return shortfall("states", len(sample.rows), material.settings.states)

    def measure(self, model: JudgedModel, sample: States, material: Material, seed: int) -> Measured:
        strengths, severity = material.task.strengths(), material.settings.severity
        return measure_states(model, sample, material.held_out, strengths=strengths, severity=severity, seed=seed)

    def beside_rate(self, found: Findings[States], settings: DiagnoseConfig) -> dict[str, Any]:
        """Every kind on all states; all kinds together whose form the training had, and those it had not, where known."""
        by_kind = {"by_kind": found.rates(PERTURBATIONS)}
        if found.seen is None:
            return by_kind
        seen = [kind for kind in PERTURBATIONS if kind in found.seen]
        groups = {"seen": seen, "unseen": [kind for kind in PERTURBATIONS if kind not in seen]}
        return by_kind | {name: found.pooled(kinds) | {"kinds": kinds} for name, kinds in groups.items()}

    def points(self, arrays: Mapping[str, np.ndarray], section: Mapping[str, Any]) -> Points | None:
        if not {"d_nuis", "d_state"} <= arrays.keys():
            return None
        nuis, state = arrays["d_nuis"], arrays["d_state"]
        ratio, failed = invariance_ratio(nuis, state), invariance_failures(nuis, state)
        return Points(nuis, state, ratio, failed, (("z", 0.0),), len(nuis))


DIAGNOSTIC = Invariance()
