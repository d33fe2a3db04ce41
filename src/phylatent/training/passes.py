"""One pass through the model for a clip and for what objectives want to see beside it.

A pass over twice the rows costs less than two passes. BatchNorm's statistics stay those of each part alone, as if it had had a
pass of its own, and only the clip's own enter the running ones.
"""

# B batch, T frames, H context frames, D latent

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from phylatent.models.blocks import Projector, batch_statistics_only
from phylatent.models.world_model import WorldModel
from phylatent.randomness import Draws


def embed_together(model: WorldModel, clips: Sequence[Tensor]) -> list[Tensor]:
    """Z = P(E(O)) of each of these normalised frames [B, any T, 3, size, size], the clip's own first."""
    features = model.encoder(torch.cat([clip.flatten(0, 1) for clip in clips]) if len(clips) > 1 else clips[0].flatten(0, 1))
    parts = features.split([clip.shape[0] * clip.shape[1] for clip in clips])
    latents = _project(model.projector, parts)
    return [z.unflatten(0, clip.shape[:2]) for z, clip in zip(latents, clips, strict=True)]


def predict_together(model: WorldModel, z_BHD: Tensor, actions: Sequence[Tensor], draws: Draws | None) -> list[Tensor]:
    """Ẑ = F_θ(Z, C^a) of the same latents under each of these embedded actions [B, H, D], with the same dropout masks."""
    if len(actions) == 1:
        return [model.predict(z_BHD, actions[0], draws)]
    copies = len(actions)
    shared = draws and draws.named("dropout").shared(copies)
    predicted = model.predictor(z_BHD.repeat(copies, 1, 1), torch.cat(list(actions)), shared)
    return _project(model.pred_proj, predicted.chunk(copies))


def _project(projector: Projector, parts: Sequence[Tensor]) -> list[Tensor]:
    own, *others = parts
    projected = [projector(own)]
    with batch_statistics_only(projector):
        return projected + [projector(other) for other in others]
