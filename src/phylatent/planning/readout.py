"""`plan.cost=readout`: a plan is judged by the physical state that a linear map reads off its last latent.

Beside the usual cost it tells what the latent metric itself costs; fitted on training episodes, for every method alike.
"""

# N frames, D latent, S physical target, angles as sine and cosine

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from phylatent.data.readers import Episodes
from phylatent.data.stats import Split, episode_rows, fit_normaliser, unroll
from phylatent.models.linear import fit_linear
from phylatent.randomness import derive_seed
from phylatent.schema import TaskSpec

FRAMES, AT_ONCE = 4096, 256


def fit_readout(encode: Callable[[np.ndarray], Tensor], task: TaskSpec, episodes: Episodes, split: Split) -> Tensor:
    """[D, S]: from a difference of latents to one of z-scored states. What a frame does not show gets a weight near 0."""
    rows = np.random.default_rng(derive_seed("plan", "readout")).permutation(episode_rows(episodes, split.train))
    rows = np.sort(rows[np.isfinite(episodes.targets[rows]).all(axis=1)][:FRAMES])
    z = torch.cat([encode(episodes.frames(rows[i : i + AT_ONCE])).cpu() for i in range(0, len(rows), AT_ONCE)])
    states = unroll(torch.from_numpy(episodes.targets[rows]), periods=task.target.angles)
    scores = fit_normaliser(states.numpy())
    z_scored = (states - torch.tensor(scores.mean)) * torch.tensor(scores.scale)
    return fit_linear(z.double(), z_scored.double()).weights_DS.float()
