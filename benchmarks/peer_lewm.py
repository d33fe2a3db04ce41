"""stable-worldmodel's LeWM and our model with the same random weights, for benchmarks that compare the two.

Time does not depend on what weights hold, so that nothing needs to be trained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from phylatent.models.lewm.weights import from_lewm, load_strictly, translate
from phylatent.models.world_model import WorldModel
from phylatent.schema import Normaliser

WIDTH, STRIDE, CONTEXT = 192, 5, 3


@dataclass(frozen=True)
class Size:
    """Of a model."""

    image: int
    patch: int
    depth: int
    hidden: int
    """Of the projectors."""
    predictor: dict[str, Any]


LAPTOP = Size(64, 16, 4, 1024, {"depth": 3, "heads": 4, "mlp_dim": 768, "dim_head": 64})
PAPER = Size(224, 14, 12, 2048, {"depth": 6, "heads": 16, "mlp_dim": 2048, "dim_head": 64})
SIZES = {"laptop": LAPTOP, "paper": PAPER}


def their_lewm(size: Size, action_dim: int) -> nn.Module:
    """Of their own classes, with a transformers ViT, as their published models are."""
    import transformers
    from stable_worldmodel.wm.lewm import LeWM
    from stable_worldmodel.wm.lewm.module import MLP, Embedder, Predictor

    def projector() -> nn.Module:
        return MLP(input_dim=WIDTH, hidden_dim=size.hidden, output_dim=WIDTH, norm_fn=nn.BatchNorm1d)

    vit = {"hidden_size": WIDTH, "num_hidden_layers": size.depth, "num_attention_heads": 3, "intermediate_size": 4 * WIDTH}
    config = transformers.ViTConfig(**vit, image_size=size.image, patch_size=size.patch)
    model = LeWM(
        encoder=transformers.ViTModel(config, add_pooling_layer=False),
        predictor=Predictor(num_frames=CONTEXT, input_dim=WIDTH, hidden_dim=WIDTH, dropout=0.1, **size.predictor),
        action_encoder=Embedder(input_dim=STRIDE * action_dim, emb_dim=WIDTH),
        projector=projector(),
        pred_proj=projector(),
    )
    randomise(model)
    return model.eval().requires_grad_(False)


def randomise(module: nn.Module) -> None:
    """All but statistics: AdaLN-zero begins as a map that no action changes, and would leave nothing to plan."""
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        if parameter.ndim > 1:
            fan_in = parameter.numel() / len(parameter) if len(parameter) > 1 else 4
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * fan_in**-0.5)


def both(size: Size, action_dim: int, bound: float) -> tuple[nn.Module, WorldModel]:
    """Theirs and ours; actions are their own z-scores and lie within ±bound."""
    theirs = their_lewm(size, action_dim)
    ours = from_lewm(theirs.state_dict())
    normaliser = Normaliser((0.0,) * action_dim, (1.0,) * action_dim)
    low, high = (-bound,) * action_dim, (bound,) * action_dim
    model = WorldModel(replace(ours.config, action=normaliser, action_low=low, action_high=high))
    load_strictly(model, translate(theirs.state_dict()))
    return theirs, model.eval().requires_grad_(False)
