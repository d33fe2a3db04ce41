"""Physical invariance collapse: an appearance-only change moves the latent further than a real transition."""

# N states, D latent, V kinds of perturbation

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from phylatent.collapse import displacement, invariance_failures
from phylatent.diagnostics.held_out import HeldOutRows, States
from phylatent.diagnostics.latents import encode
from phylatent.diagnostics.perturbations import perturb
from phylatent.diagnostics.rates import Measured, count
from phylatent.models.latent import LatentModel
from phylatent.schema import PERTURBATIONS


def measure(
    model: LatentModel, states: States, held: HeldOutRows, *, strengths: Mapping[str, float], severity: float, seed: int
) -> Measured:
    """Headline: each state under its own kind of perturbation. Beside it: every kind on all states."""
    frames = held.episodes.frames
    z_ND = encode(model, frames, states.rows)
    d_state = displacement(z_ND, encode(model, frames, states.later))

    def displaced_by(kind: str) -> np.ndarray:
        def read(rows: np.ndarray) -> np.ndarray:
            return perturb(frames(rows), kind, severity=severity, seed=seed, rows=rows, strengths=strengths)

        return displacement(z_ND, encode(model, read, states.rows))

    d_nuis_NV = np.stack([displaced_by(kind) for kind in PERTURBATIONS], axis=1)
    d_nuis = d_nuis_NV[np.arange(len(states.rows)), states.kinds]
    episode, episodes = held.episode_of(states.rows), len(held.ids)
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
            "episode": np.array(held.ids)[episode],
        },
    )
