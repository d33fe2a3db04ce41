"""Reference LeWM weights into our model, tensor by tensor and strictly. Needs neither transformers nor stable-worldmodel."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from phylatent.errors import UserError
from phylatent.models.world_model import WorldModel, WorldModelConfig
from phylatent.schema import ClipConfig, ModelConfig

HEAD_DIM = 64
"""Of every attention head in LeWM, encoder and predictor alike; no tensor's shape tells it."""

RENAMED = [
    (r"encoder\.embeddings\.cls_token", "encoder.cls_token"),
    (r"encoder\.embeddings\.position_embeddings", "encoder.pos_embed"),
    (r"encoder\.embeddings\.patch_embeddings\.projection", "encoder.patch_embed.proj"),
    (r"encoder\.layernorm", "encoder.norm"),
    # transformers 5
    (r"encoder\.layers\.(\d+)\.attention\.(q|k|v)_proj", r"encoder.blocks.\1.attn.\2"),
    (r"encoder\.layers\.(\d+)\.attention\.o_proj", r"encoder.blocks.\1.attn.proj"),
    (r"encoder\.layers\.(\d+)\.mlp", r"encoder.blocks.\1.mlp"),
    (r"encoder\.layers\.(\d+)\.layernorm_before", r"encoder.blocks.\1.norm1"),
    (r"encoder\.layers\.(\d+)\.layernorm_after", r"encoder.blocks.\1.norm2"),
    # transformers 4
    (r"encoder\.encoder\.layer\.(\d+)\.attention\.attention\.(q)uery", r"encoder.blocks.\1.attn.\2"),
    (r"encoder\.encoder\.layer\.(\d+)\.attention\.attention\.(k)ey", r"encoder.blocks.\1.attn.\2"),
    (r"encoder\.encoder\.layer\.(\d+)\.attention\.attention\.(v)alue", r"encoder.blocks.\1.attn.\2"),
    (r"encoder\.encoder\.layer\.(\d+)\.attention\.output\.dense", r"encoder.blocks.\1.attn.proj"),
    (r"encoder\.encoder\.layer\.(\d+)\.intermediate\.dense", r"encoder.blocks.\1.mlp.fc1"),
    (r"encoder\.encoder\.layer\.(\d+)\.output\.dense", r"encoder.blocks.\1.mlp.fc2"),
    (r"encoder\.encoder\.layer\.(\d+)\.layernorm_before", r"encoder.blocks.\1.norm1"),
    (r"encoder\.encoder\.layer\.(\d+)\.layernorm_after", r"encoder.blocks.\1.norm2"),
]


def rename(name: str) -> str:
    name = re.sub(r"^((_orig_mod|model|module)\.)+", "", name)
    for pattern, ours in RENAMED:
        renamed, count = re.subn(rf"^{pattern}(?=\.|$)", ours, name)
        if count:
            return renamed
    return name


def translate(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """LeWM's tensors under our names; the encoder's query, key and value become timm's one `qkv`."""
    ours = {rename(name): tensor for name, tensor in state.items()}
    for name in [n for n in ours if re.fullmatch(r"encoder\.blocks\.\d+\.attn\.q\.(weight|bias)", n)]:
        stem, kind = name.split(".q.")
        parts = [f"{stem}.{letter}.{kind}" for letter in "qkv"]
        missing = [part for part in parts if part not in ours]
        if missing:
            raise UserError(f"not a LeWM checkpoint: {', '.join(missing)} is missing")
        ours[f"{stem}.qkv.{kind}"] = torch.cat([ours.pop(part) for part in parts])
    return ours


def infer_config(ours: Mapping[str, Tensor], *, stride: int = 5) -> WorldModelConfig:
    """The sizes, read off the tensors' shapes."""

    def shape(name: str) -> torch.Size:
        if name not in ours:
            raise UserError(f"not a LeWM checkpoint: it has no tensor for {name}")
        return ours[name].shape

    def blocks(prefix: str) -> int:
        return len({n.removeprefix(prefix).split(".")[0] for n in ours if n.startswith(prefix)})

    width, _, patch, _ = shape("encoder.patch_embed.proj.weight")
    tokens = shape("encoder.pos_embed")[1] - 1
    block_dim = shape("action_encoder.patch_embed.weight")[1]
    if block_dim % stride:
        raise UserError(f"the action encoder takes {block_dim} values, which is not a block of {stride} raw actions")
    frames = shape("predictor.pos_embedding")[1]
    return WorldModelConfig(
        action_dim=block_dim // stride,
        clip=ClipConfig(frames=frames + 1, stride=stride, context=frames, offset=1),
        model=ModelConfig(
            image_size=patch * round(tokens**0.5),
            patch_size=patch,
            width=width,
            depth=blocks("encoder.blocks."),
            heads=width // HEAD_DIM,
            projector_hidden=shape("projector.net.0.weight")[0],
            action_smoothed=shape("action_encoder.patch_embed.weight")[0],
            predictor_depth=blocks("predictor.transformer.layers."),
            predictor_heads=shape("predictor.transformer.layers.0.attn.to_qkv.weight")[0] // (3 * HEAD_DIM),
            predictor_head_dim=HEAD_DIM,
            predictor_mlp=shape("predictor.transformer.layers.0.mlp.net.1.weight")[0],
        ),
    )


def from_lewm(state: Mapping[str, Tensor], *, stride: int = 5) -> WorldModel:
    """A world model with a LeWM state dict's weights. Its action statistics are not in there: actions pass as they are."""
    ours = translate(state)
    model = WorldModel(infer_config(ours, stride=stride))
    try:
        model.load_state_dict(ours, strict=True)
    except RuntimeError as error:
        raise UserError(f"not a LeWM checkpoint: {' '.join(str(error).split())[:300]}") from error
    return model.eval()
