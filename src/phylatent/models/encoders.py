"""The image encoders E, by name: what turns a normalised frame into features as wide as the latent.

One is added by adding a class here, or anywhere outside: `model.encoder=path/to/file.py`, or an installed package with an entry
point in the group `phylatent.encoders`. An encoder's own settings are its `Settings`, a section of the command line under its
name (`conv.channels`); what it is built from beside them are the model's sizes.
"""

# N frames, D features, S side of a frame

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from einops import rearrange
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, channels_last, nn

from phylatent.errors import UserError
from phylatent.own_files import OwnKind
from phylatent.schema import ModelConfig
from phylatent.schema.checks import check

OWN = OwnKind(
    noun="an encoder",
    constant="ENCODER",
    key="model.encoder=",
    group="phylatent.encoders",
    guide="docs/own-encoder.md shows a whole one",
)


@dataclass(frozen=True)
class NoSettings:
    """For an encoder that needs no settings beside the model's sizes."""


class Encoder(Protocol):
    """What every encoder is: an `nn.Module` class with a name, made from its settings and the model's sizes."""

    name: ClassVar[str]
    Settings: ClassVar[type]

    def __init__(self, settings: Any, size: ModelConfig) -> None: ...

    def __call__(self, pixels: Tensor) -> Tensor:
        """Normalised frames [N, 3, S, S] → features [N, D], D = `size.width`."""
        ...


def _transformer(size: ModelConfig, **changed: Any) -> dict[str, Any]:
    # LayerNorm's epsilon is the reference encoder's (transformers' ViT), not timm's: its weights must give its latents.
    return {
        "img_size": size.image_size,
        "patch_size": size.patch_size,
        "embed_dim": size.width,
        "depth": size.depth,
        "num_heads": size.heads,
        "num_classes": 0,
        "global_pool": "token",
        "norm_layer": partial(nn.LayerNorm, eps=1e-12),
    } | changed


class _ClassToken(VisionTransformer):
    """A ViT of which only the class token is asked for: its last block computes nothing else.

    Of that block the other tokens are keys and values. What comes out is the same, a twelfth of the paper's encoder earlier and
    a fifth of the laptop's.
    """

    def forward(self, pixels: Tensor) -> Tensor:  # type: ignore[override]  # no masks
        tokens = self.norm_pre(self._pos_embed(self.patch_embed(pixels)))
        *blocks, last = self.blocks
        for block in blocks:
            tokens = block(tokens)
        return self.norm(self._class_token(last, tokens)).squeeze(1)

    @staticmethod
    def _class_token(block: Any, tokens_NTD: Tensor) -> Tensor:
        """[N, 1, D]: the first token of `block(tokens)`."""
        attention, normed, width = block.attn, block.norm1(tokens_NTD), tokens_NTD.shape[-1]
        weight, bias = attention.qkv.weight, attention.qkv.bias
        q = rearrange(F.linear(normed[:, :1], weight[:width], bias[:width]), "n t (h d) -> n h t d", h=attention.num_heads)
        keys_and_values = F.linear(normed, weight[width:], bias[width:])
        k, v = rearrange(keys_and_values, "n t (two h d) -> two n h t d", two=2, h=attention.num_heads)
        seen = rearrange(F.scaled_dot_product_attention(q, k, v), "n h t d -> n t (h d)")
        first = tokens_NTD[:, :1] + attention.proj(seen)
        return first + block.mlp(block.norm2(first))


class Vit(_ClassToken):
    """The paper's. Its sizes are the model's own: `model.patch_size`, `model.depth`, `model.heads`."""

    name = "vit"
    Settings = NoSettings

    def __init__(self, settings: NoSettings, size: ModelConfig) -> None:
        super().__init__(**_transformer(size))


SMALLEST_MAP = 7
"""Convolutions halve the frame until it is no larger: 4×4 from 64 and 128 px, 6×6 from 96, 7×7 from 224."""
WIDEST = 8
"""The last layers have at most this many times the first one's channels."""


def _halvings(image_size: int, last: int) -> int:
    """Stride-2 layers until a frame's side is at most `last`."""
    count = 0
    while image_size > last:
        image_size, count = image_size // 2, count + 1
    return count


def _groups(channels: int) -> int:
    """How many groups GroupNorm has: eight where that divides the channels."""
    return next(groups for groups in (8, 4, 2, 1) if channels % groups == 0)


def convolutions(channels: int, count: int) -> nn.Sequential:
    """`count` layers, 4×4 at stride 2, each with twice the channels of the one before as far as `WIDEST` allows."""
    widths = [3, *(channels * min(2**i, WIDEST) for i in range(count))]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Conv2d(before, after, kernel_size=4, stride=2, padding=1), nn.GroupNorm(_groups(after), after), nn.SiLU()]
    return nn.Sequential(*layers)


@dataclass(frozen=True)
class ConvSettings:
    channels: int = 16
    """Channels of the first layer."""

    def __post_init__(self) -> None:
        check(self.channels >= 1, f"conv.channels is {self.channels}; it must be at least 1")


class Conv(nn.Module):
    """Stride-2 convolutions, the last map flattened into one linear layer: it sees small things after hundreds of steps.

    No pooling: where something is must survive, and the linear layer reads it off the map's places.
    """

    name = "conv"
    Settings = ConvSettings

    def __init__(self, settings: ConvSettings, size: ModelConfig) -> None:
        super().__init__()
        count = _halvings(size.image_size, SMALLEST_MAP)
        side = size.image_size // 2**count
        check(side >= 1, f"model.image_size {size.image_size} is too small to encode")
        wide = settings.channels * min(2 ** (count - 1), WIDEST) if count else 3
        self.layers = convolutions(settings.channels, count)
        self.out = nn.Linear(wide * side * side, size.width)
        self.norm = nn.LayerNorm(size.width)

    def forward(self, pixels: Tensor) -> Tensor:
        seen = self.layers(pixels.contiguous(memory_format=channels_last))
        return self.norm(self.out(seen.flatten(1)))


@dataclass(frozen=True)
class HybridSettings:
    channels: int = 32
    """Channels of the stem's first layer."""
    tokens: int = 8
    """The side of the map that the transformer sees, at most."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            check(value >= 1, f"hybrid.{entry.name} is {value}; it must be at least 1")


class Stem(nn.Module):
    """Convolutions in the place of a ViT's patches: [N, 3, S, S] → tokens [N, places, D]."""

    def __init__(self, settings: HybridSettings, size: ModelConfig) -> None:
        super().__init__()
        count = _halvings(size.image_size, settings.tokens)
        self.num_patches = (size.image_size // 2**count) ** 2
        self.layers = convolutions(settings.channels, count)
        wide = settings.channels * min(2 ** (count - 1), WIDEST) if count else 3
        self.proj = nn.Conv2d(wide, size.width, kernel_size=1)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.proj(self.layers(pixels.contiguous(memory_format=channels_last))).flatten(2).transpose(1, 2)


class Hybrid(_ClassToken):
    """A ViT whose patches are made by a convolutional stem; `model.depth` and `model.heads` are its sizes, too."""

    name = "hybrid"
    Settings = HybridSettings

    def __init__(self, settings: HybridSettings, size: ModelConfig) -> None:
        stem = Stem(settings, size)
        super().__init__(**_transformer(size, embed_layer=lambda **_: stem))


ENCODERS: dict[str, type[Any]] = {kind.name: kind for kind in (Vit, Conv, Hybrid)}
"""The encoders that this process knows; `find_encoder` adds others."""
SHIPPED = tuple(ENCODERS)


def find_encoder(name: str) -> type[Any]:
    """The class of that name, of an installed package, or in the file of that path."""
    return ENCODERS[name] if name in ENCODERS else _register(*OWN.find(name, ENCODERS))


def make_encoder(size: ModelConfig, settings: Mapping[str, Any] | None) -> nn.Module:
    """The encoder that `size.encoder` names, with its own settings as `config.json` holds them."""
    kind = find_encoder(size.encoder)
    encoder = kind(kind.Settings(**(settings or {})), size)
    if kind.name not in SHIPPED:
        _try(encoder, size)
    return encoder


@torch.no_grad()
def _try(encoder: nn.Module, size: ModelConfig) -> None:
    """An error unless somebody's own encoder makes features of frames; what it would do instead shows nowhere else so early."""
    values = next(encoder.parameters(), torch.empty(0))
    if values.is_meta:  # only its size is asked for
        return
    was, shape = encoder.training, [2, size.width]
    encoder.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            features = encoder(values.new_zeros(2, 3, size.image_size, size.image_size))
    except NotImplementedError as error:
        raise UserError(f"the encoder {size.encoder} has no forward(frames) that makes features of frames") from error
    encoder.train(was)
    if not (isinstance(features, torch.Tensor) and list(features.shape) == shape):
        found = list(features.shape) if isinstance(features, torch.Tensor) else f"a {type(features).__name__}"
        raise UserError(f"the encoder {size.encoder} makes {found} of two frames; expected features {shape}")


def encoder_settings(settings: Any) -> dict[str, Any]:
    """As `config.json` holds them."""
    return asdict(settings) if settings is not None else {}


def _register(kind: Any, where: str) -> type[Any]:
    name, settings = getattr(kind, "name", None), getattr(kind, "Settings", None)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module) and isinstance(name, str) and name.isidentifier()):
        raise UserError(f"the encoder of {where} must be a torch.nn.Module class whose `name` is an identifier")
    if not (isinstance(settings, type) and is_dataclass(settings)):
        raise UserError(f"the encoder {name!r} of {where} must have `Settings`, a frozen dataclass, which may be empty")
    known = ENCODERS.setdefault(name, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise UserError(f"the encoder of {where} is called {name!r}, and so is another one; choose another name")
    return known
