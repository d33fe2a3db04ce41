"""Reference LeWM weights into our model and back, tensor by tensor and strictly, without transformers or stable-worldmodel.

Only the encoder differs, and only in names: LeWM has transformers' ViT, whose names changed from version 4 to 5, and which
keeps query, key and value apart where timm has one `qkv`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from phylatent.errors import UserError
from phylatent.models.lewm.config import infer_config
from phylatent.models.world_model import WorldModel

AROUND = {
    "cls_token": "embeddings.cls_token",
    "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj": "embeddings.patch_embeddings.projection",
    "norm": "layernorm",
}
"""Of the encoder, outside its blocks: our name → theirs, in either version."""
BLOCK = {5: "layers", 4: "encoder.layer"}
INSIDE = {
    "norm1": {5: "layernorm_before", 4: "layernorm_before"},
    "norm2": {5: "layernorm_after", 4: "layernorm_after"},
    "attn.q": {5: "attention.q_proj", 4: "attention.attention.query"},
    "attn.k": {5: "attention.k_proj", 4: "attention.attention.key"},
    "attn.v": {5: "attention.v_proj", 4: "attention.attention.value"},
    "attn.proj": {5: "attention.o_proj", 4: "attention.output.dense"},
    "mlp.fc1": {5: "mlp.fc1", 4: "intermediate.dense"},
    "mlp.fc2": {5: "mlp.fc2", 4: "output.dense"},
}
"""Of an encoder block: our name → theirs, by transformers' version."""
FUSED = re.compile(r"encoder\.blocks\.\d+\.attn\.qkv\.(weight|bias)")
VERSIONS = tuple(BLOCK)
SHOWN = 3
"""Tensors that an error names before it only counts them."""


def from_lewm(state: Mapping[str, Tensor], config: Mapping[str, Any] | None = None, *, stride: int = 5) -> WorldModel:
    """A world model with a LeWM state dict's weights. Its action statistics are not in there: actions pass as they are."""
    ours = translate(state)
    model = WorldModel(infer_config(ours, config or {}, stride=stride))
    load_strictly(model, ours)
    return model.eval()


def to_lewm(model: WorldModel, *, keys: int = 5) -> dict[str, Tensor]:
    """The model's tensors under LeWM's names, the encoder's as transformers 4 or 5 has them."""
    parts = _unfused(model.state_dict())
    return {their_name(name, keys): tensor.detach().cpu().clone() for name, tensor in parts.items()}


def translate(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """LeWM's tensors under our names, query, key and value still apart."""
    ours: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if our_name(name) in ours:
            raise UserError(f"not a LeWM checkpoint: {name} is in it twice, under two prefixes")
        ours[our_name(name)] = tensor
    return ours


def load_strictly(model: WorldModel, ours: Mapping[str, Tensor]) -> None:
    """Every translated tensor must be there, with its shape and type, and no other."""
    expected = _unfused(model.state_dict())
    missing = [name for name in expected if name not in ours]
    surplus = [name for name in ours if name not in expected]
    problems = [f"it lacks {_few(missing)}"] if missing else []
    problems += [f"it has {_few(surplus)}, which LeWM has not"] if surplus else []
    for name in expected.keys() & ours.keys():
        found, wanted = ours[name], expected[name]
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            problems.append(f"{their_name(name)} is {_kind(found)}, expected {_kind(wanted)}")
    if problems:
        raise UserError(f"not a LeWM checkpoint: {'; '.join(sorted(problems)[:SHOWN])}")
    model.load_state_dict({name: _fused(name, ours) for name in model.state_dict()}, strict=True)


def our_name(theirs: str) -> str:
    name = re.sub(r"^((model|module)\.)+", "", theirs.replace("_orig_mod.", ""))
    for ours, other in AROUND.items():
        if re.match(rf"encoder\.{re.escape(other)}(\.|$)", name):
            return name.replace(f"encoder.{other}", f"encoder.{ours}", 1)
    for version, blocks in BLOCK.items():
        for ours, others in INSIDE.items():
            pattern = rf"encoder\.{re.escape(blocks)}\.(\d+)\.{re.escape(others[version])}\.(weight|bias)"
            if found := re.fullmatch(pattern, name):
                return f"encoder.blocks.{found[1]}.{ours}.{found[2]}"
    return name


def their_name(ours: str, keys: int = 5) -> str:
    if found := re.fullmatch(r"encoder\.blocks\.(\d+)\.(.+)\.(weight|bias)", ours):
        inside = INSIDE.get(found[2], {}).get(keys, found[2])
        return f"encoder.{BLOCK[keys]}.{found[1]}.{inside}.{found[3]}"
    for name, theirs in AROUND.items():
        if re.match(rf"encoder\.{re.escape(name)}(\.|$)", ours):
            return ours.replace(f"encoder.{name}", f"encoder.{theirs}", 1)
    return ours


def _unfused(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parts: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if FUSED.fullmatch(name):
            parts |= {name.replace(".qkv.", f".{letter}."): part for letter, part in zip("qkv", tensor.chunk(3), strict=True)}
        else:
            parts[name] = tensor
    return parts


def _fused(name: str, parts: Mapping[str, Tensor]) -> Tensor:
    if not FUSED.fullmatch(name):
        return parts[name]
    return torch.cat([parts[name.replace(".qkv.", f".{letter}.")] for letter in "qkv"])


def _few(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(their_name(name) for name in sorted(names)[:SHOWN]) + more


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
