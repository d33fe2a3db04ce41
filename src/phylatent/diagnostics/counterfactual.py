"""Counterfactual dynamics collapse: two actions lead apart, but their predictions do not."""

# M branches (two windows from one start), k blocks, K horizons, D latent

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phylatent.collapse import counterfactual_failures, separation
from phylatent.diagnostics.branches import Branches
from phylatent.diagnostics.coordinates import Coordinates
from phylatent.diagnostics.held_out import HeldOutRows
from phylatent.diagnostics.latents import encode, predict
from phylatent.diagnostics.rates import Measured, count
from phylatent.models.latent import LatentModel

APART = 0.1
"""Eligible: real ends that differ by this much, in z-scored physical distance."""


def measure(
    model: LatentModel,
    branches: Branches,
    held: HeldOutRows,
    coordinates: Coordinates,
    *,
    horizons: Sequence[int],
    headline: int,
) -> Measured:
    """Predictions start from the encoded recorded frame and take the very actions that were executed from its state."""
    shape = branches.targets.shape[:3]
    ends = encode(model, branches.frames, np.arange(len(branches.packed))).reshape(*shape, -1)
    predicted = predict(model, held.episodes.frames, branches.rows, branches.windows)[:, :, np.array(horizons) - 1]
    d_true, d_pred, d_phys = separation(ends), separation(predicted), separation(coordinates(branches.targets))
    failed, eligible = counterfactual_failures(d_pred, d_true), d_phys >= APART
    episode = held.episode_of(branches.rows)
    counts = {
        str(horizon): count(failed[:, column], eligible[:, column], episode, episodes=len(held.ids))
        for column, horizon in enumerate(horizons)
    }
    arrays = {"d_true": d_true, "d_pred": d_pred, "d_phys": d_phys}
    return Measured(
        headline=counts[str(headline)],
        beside=counts,
        arrays={name: values.astype(np.float32) for name, values in arrays.items()}
        | {"eligible": eligible, "row": branches.rows},
    )
