"""LeWM's `config.json` against our sizes, both ways: a nested description of classes, as Hydra instantiates it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Size, Tensor

from phylatent.errors import UserError
from phylatent.models.world_model import WorldModelConfig
from phylatent.reading.shapes import is_whole, shown
from phylatent.schema import ClipConfig, ModelConfig

HEAD_DIM = 64
"""Of every attention head in LeWM, encoder and predictor alike, where `config.json` does not say; no tensor's shape tells."""
NAMED = {
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}
"""stable-pretraining's names for encoders: width, depth, heads."""
VARIANTS = {"LeWM": "lewm", "JEPA": "lewm", "PLDM": "pldm"}
"""Classes that are this graph, in stable-worldmodel and in le-wm → the variant that trains it so."""
FIXED = {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "qkv_bias": True}
"""What our encoder has, and another ViT configuration could change without changing a shape."""
MLP_RATIO = 4


def variant_of(config: Mapping[str, Any]) -> str:
    """Which of our variants the configuration's class is; an error if it is no such model at all."""
    kind = str(config.get("_target_", "LeWM")).rpartition(".")[2]
    if kind not in VARIANTS:
        raise UserError(f"config.json describes a {kind}; import reads {', '.join(VARIANTS)}")
    if not is_lewm(config):
        raise UserError("config.json does not describe a LeWM: it needs the parts encoder, predictor and action_encoder")
    return VARIANTS[kind]


def is_lewm(config: Mapping[str, Any]) -> bool:
    return all(isinstance(config.get(part), Mapping) for part in ("encoder", "predictor", "action_encoder"))


def infer_config(ours: Mapping[str, Tensor], config: Mapping[str, Any], *, stride: int = 5) -> WorldModelConfig:
    """The sizes, read off the tensors' shapes; heads off `config.json`, which must agree in all it says."""

    def shape(name: str, dimensions: int) -> Size:
        if name not in ours:
            raise UserError(f"not a LeWM checkpoint: it has no tensor for {name}")
        if ours[name].ndim != dimensions:
            raise UserError(f"not a LeWM checkpoint: {name} is {list(ours[name].shape)}, expected {dimensions} dimensions")
        return ours[name].shape

    def blocks(prefix: str) -> int:
        found = {number[1] for name in ours if (number := re.match(rf"{re.escape(prefix)}([0-9]+)\.", name))}
        if strange := found - set(map(str, range(len(found)))):
            raise UserError(f"not a LeWM checkpoint: of {len(found)} {prefix}* one has the number {min(strange)[:12]}")
        return len(found)

    stated = _stated(config)
    width, _, patch, _ = shape("encoder.patch_embed.proj.weight", 4)
    smoothed, block_dim, _ = shape("action_encoder.patch_embed.weight", 3)
    frames = shape("predictor.pos_embedding", 3)[1]
    inner = shape("predictor.transformer.layers.0.attn.to_qkv.weight", 2)[0] // 3
    head_dim = stated.get("predictor_head_dim", HEAD_DIM)
    if inner % head_dim:
        raise UserError(
            f"config.json says predictor head dim {head_dim}, which does not divide the {inner} that the weights have"
        )
    found = {
        "image_size": patch * round((shape("encoder.pos_embed", 3)[1] - 1) ** 0.5),
        "patch_size": patch,
        "width": width,
        "depth": blocks("encoder.blocks."),
        "heads": stated.get("heads", max(1, width // HEAD_DIM)),
        "projector_hidden": shape("projector.net.0.weight", 2)[0],
        "action_smoothed": smoothed,
        "predictor_depth": blocks("predictor.transformer.layers."),
        "predictor_heads": max(1, inner // head_dim),
        "predictor_head_dim": head_dim,
        "predictor_mlp": shape("predictor.transformer.layers.0.mlp.net.1.weight", 2)[0],
    }
    _check_agreement(stated, found | {"num_frames": frames, "input_dim": block_dim})
    if block_dim % stride:
        raise UserError(f"the action encoder takes {block_dim} values, which is not a block of {stride} raw actions")
    return WorldModelConfig(
        action_dim=block_dim // stride,
        clip=ClipConfig(frames=frames + 1, stride=stride, context=frames, offset=1),
        model=ModelConfig(**found, dropout=_dropout(config)),
    )


def describe(config: WorldModelConfig) -> dict[str, Any]:
    """`config.json` of a model of ours: with it stable-worldmodel's `load_pretrained` builds the same graph."""
    size, module = config.model, "stable_worldmodel.wm.lewm.module"
    if size.encoder != "vit":
        raise UserError(
            f"LeWM's encoder is a ViT, this model's is {size.encoder!r}; only model.encoder=vit can be exported as one"
        )
    if config.clip.offset != 1:
        raise UserError(f"LeWM predicts one block ahead, this model {config.clip.offset}; it cannot be exported as one")
    if size.predictor_heads == 1 and size.predictor_head_dim == size.width:
        raise UserError(
            "LeWM's predictor has no output projection with one head as wide as the latent; export needs more heads"
        )
    projector = {
        "_target_": f"{module}.MLP",
        "input_dim": size.width,
        "output_dim": size.width,
        "hidden_dim": size.projector_hidden,
        "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
    }
    return {
        "_target_": "stable_worldmodel.wm.lewm.LeWM",
        "encoder": _describe_encoder(size),
        "predictor": {
            "_target_": f"{module}.Predictor",
            "num_frames": config.clip.context,
            "input_dim": size.width,
            "hidden_dim": size.width,
            "output_dim": size.width,
            "depth": size.predictor_depth,
            "heads": size.predictor_heads,
            "mlp_dim": size.predictor_mlp,
            "dim_head": size.predictor_head_dim,
            "dropout": size.dropout,
            "emb_dropout": 0.0,
        },
        "action_encoder": {
            "_target_": f"{module}.Embedder",
            "input_dim": config.block_dim,
            "smoothed_dim": size.action_smoothed,
            "emb_dim": size.width,
        },
        "projector": projector,
        "pred_proj": projector,
    }


def _describe_encoder(size: ModelConfig) -> dict[str, Any]:
    """As released checkpoints have it where the encoder has a name; otherwise the ViT itself, with its sizes."""
    pixels = {"image_size": size.image_size, "patch_size": size.patch_size}
    for name, sizes in NAMED.items():
        if sizes == (size.width, size.depth, size.heads):
            target = "stable_pretraining.backbone.utils.vit_hf"
            return {"_target_": target, "size": name, **pixels, "pretrained": False, "use_mask_token": False}
    vit = {
        "_target_": "transformers.ViTConfig",
        "hidden_size": size.width,
        "num_hidden_layers": size.depth,
        "num_attention_heads": size.heads,
        "intermediate_size": MLP_RATIO * size.width,
        **pixels,
    }
    return {"_target_": "transformers.ViTModel", "config": vit, "add_pooling_layer": False}


def _stated(config: Mapping[str, Any]) -> dict[str, int]:
    """What `config.json` says of the sizes, under our names; it need not say everything."""
    parts = {name: part for name, part in config.items() if isinstance(part, Mapping)}
    encoder, predictor, action = (parts.get(name, {}) for name in ("encoder", "predictor", "action_encoder"))
    vit = encoder.get("config", encoder)
    if not isinstance(vit, Mapping):
        raise UserError(f"config.json says that the encoder's config is {shown(vit)}; expected an object")
    for name, value in FIXED.items():
        if vit.get(name, value) != value:
            asked = vit[name] if isinstance(vit[name], str) else shown(vit[name])
            raise UserError(f"config.json asks for an encoder with {name} {asked}; ours has {value}, as released LeWMs do")
    width, depth, heads = NAMED.get(str(encoder.get("size", "")), (None, None, None))
    said = {
        "image_size": vit.get("image_size"),
        "patch_size": vit.get("patch_size"),
        "width": vit.get("hidden_size", width),
        "depth": vit.get("num_hidden_layers", depth),
        "heads": vit.get("num_attention_heads", heads),
        "projector_hidden": parts.get("projector", {}).get("hidden_dim"),
        "action_smoothed": action.get("smoothed_dim"),
        "predictor_depth": predictor.get("depth"),
        "predictor_heads": predictor.get("heads"),
        "predictor_head_dim": predictor.get("dim_head"),
        "predictor_mlp": predictor.get("mlp_dim"),
        "num_frames": predictor.get("num_frames"),
        "input_dim": action.get("input_dim"),
    }
    wrong = [f"{name} {shown(value)}" for name, value in said.items() if value is not None and not is_whole(value, 1)]
    if wrong:
        raise UserError(f"config.json says {', '.join(wrong)}; expected whole numbers above 0")
    return {name: value for name, value in said.items() if value is not None}


def _dropout(config: Mapping[str, Any]) -> float:
    """Nothing that a trained model feels; kept, so that it can be exported as it came."""
    said = (config.get("predictor") or {}).get("dropout", ModelConfig.dropout)
    if type(said) not in (int, float) or not 0 <= said < 1:
        raise UserError(f"config.json says dropout {shown(said)}; expected a number in [0, 1)")
    return float(said)


def _check_agreement(stated: Mapping[str, int], found: Mapping[str, int]) -> None:
    for name, value in stated.items():
        if value != found[name]:
            raise UserError(
                f"config.json says {name.replace('_', ' ')} {value}, the weights say {found[name]}: they do not belong together"
            )
