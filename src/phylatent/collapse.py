"""The paper's three collapse criteria (sec:three_collapse) as pure functions of distances. No torch: the page draws by them."""

# N states, M branches (two windows from one start), K horizons, P pairs, D latent

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EPSILON = 1e-8
KEPT = 0.5
"""A prediction must keep this share of the real separation."""


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
class Collisions:
    far: np.ndarray
    """bool [P]: d_phys > τ_phys. A failure is one of these."""
    failed: np.ndarray
    tau_phys: float
    tau_lat: float


def collisions(d_phys: np.ndarray, d_lat: np.ndarray, *, q_phys: float, q_lat: float) -> Collisions:
    """C_id of eq:identifiability_diagnostic, with the thresholds at these pairs' own percentiles."""
    tau_phys, tau_lat = float(np.percentile(d_phys, q_phys)), float(np.percentile(d_lat, q_lat))
    failed = identifiability_failures(d_phys, d_lat, tau_phys=tau_phys, tau_lat=tau_lat)
    return Collisions(d_phys > tau_phys, failed, tau_phys, tau_lat)


def identifiability_failures(d_phys: np.ndarray, d_lat: np.ndarray, *, tau_phys: float, tau_lat: float) -> np.ndarray:
    """C_id of eq:identifiability_diagnostic: d_phys > τ_phys ∧ d_lat < τ_lat.

    Latents that coincide are near each other whatever the percentile: otherwise an encoder that folds a tenth of all pairs onto
    one point would make τ_lat 0, and pass without a failure.
    """
    return (d_phys > tau_phys) & ((d_lat < tau_lat) | (d_lat == 0))


def collision_ratio(
    d_phys: np.ndarray, d_lat: np.ndarray, *, tau_phys: float, tau_lat: float, epsilon: float = EPSILON
) -> np.ndarray:
    """r_id of eq:identifiability_ratio: how severe a collision is, for drawing it."""
    return (d_phys / (tau_phys + epsilon)) / (d_lat / (tau_lat + epsilon) + epsilon)


def separation(ends_MbKD: np.ndarray) -> np.ndarray:
    """d_true and d_pred of eq:counterfactual_diagnostic: ‖z⁽ⁱ⁾ − z⁽ʲ⁾‖₂ of the two branches, float64 [M, K]."""
    assert ends_MbKD.shape[1] == 2, "two branches"
    return np.linalg.norm(ends_MbKD[:, 0].astype(np.float64) - ends_MbKD[:, 1].astype(np.float64), axis=-1)


def separation_ratio(d_pred: np.ndarray, d_true: np.ndarray, *, epsilon: float = EPSILON) -> np.ndarray:
    """r_cf of eq:counterfactual_diagnostic."""
    return d_pred / (d_true + epsilon)


def counterfactual_failures(d_pred: np.ndarray, d_true: np.ndarray, *, kept: float = KEPT) -> np.ndarray:
    """C_cf of eq:counterfactual_diagnostic: r_cf < 0.5."""
    return separation_ratio(d_pred, d_true) < kept
