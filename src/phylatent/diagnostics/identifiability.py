"""Physical identifiability collapse: states far apart whose latents are near each other."""

# F frames, P pairs, D latent

from __future__ import annotations

import numpy as np

from phylatent.collapse import Collisions, collisions
from phylatent.diagnostics.coordinates import Coordinates
from phylatent.diagnostics.held_out import HeldOutRows, Pairs
from phylatent.diagnostics.latents import encode
from phylatent.diagnostics.rates import Counts, Measured, count_pairs
from phylatent.models.latent import LatentModel

Q_PHYS, Q_LAT = 75, 10
THRESHOLDS = tuple((q_phys, q_lat) for q_phys in (70, 75, 80) for q_lat in (5, 10, 15))
"""tab:threshold_sensitivity."""
PAIRS_AT_ONCE = 20_000


def pair_distances(points_FD: np.ndarray, first_P: np.ndarray, second_P: np.ndarray) -> np.ndarray:
    """d_phys and d_lat of eq:identifiability_diagnostic: ‖x_i − x_j‖₂, float64 [P]."""
    points = points_FD.astype(np.float64)
    chunks = (slice(start, start + PAIRS_AT_ONCE) for start in range(0, len(first_P), PAIRS_AT_ONCE))
    return np.concatenate([np.linalg.norm(points[first_P[c]] - points[second_P[c]], axis=1) for c in chunks])


def threshold_name(q_phys: float, q_lat: float) -> str:
    return f"{q_phys}/{q_lat}"


def measure(model: LatentModel, pairs: Pairs, held: HeldOutRows, coordinates: Coordinates) -> Measured:
    """Failures among physically far pairs (docs/choices.md says why not among all). Beside it: nine thresholds."""
    z_FD = encode(model, held.episodes.frames, pairs.rows)
    d_lat = pair_distances(z_FD, pairs.first, pairs.second)
    d_phys = pair_distances(coordinates(held.episodes.targets[pairs.rows]), pairs.first, pairs.second)
    episode = held.episode_of(pairs.rows)

    def counted(found: Collisions) -> Counts:
        return count_pairs(found.failed, found.far, episode[pairs.first], episode[pairs.second], episodes=len(held.ids))

    headline = collisions(d_phys, d_lat, q_phys=Q_PHYS, q_lat=Q_LAT)
    return Measured(
        headline=counted(headline),
        beside={
            threshold_name(q_phys, q_lat): counted(collisions(d_phys, d_lat, q_phys=q_phys, q_lat=q_lat))
            for q_phys, q_lat in THRESHOLDS
        },
        arrays={
            "d_phys": d_phys.astype(np.float32),
            "d_lat": d_lat.astype(np.float32),
            "i": pairs.rows[pairs.first],
            "j": pairs.rows[pairs.second],
            "shown": pairs.shown,
        },
        facts={"tau_phys": headline.tau_phys, "tau_lat": headline.tau_lat},
    )
