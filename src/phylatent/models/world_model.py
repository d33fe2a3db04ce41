"""The JEPA world model of eq:lewm_dynamics: encode frames, predict the next latent from an action block, roll out.

This is the inference model: what training leaves behind, what is saved, published and planned with. It holds no training head.
Annotations are evaluated here (no `from __future__`): the hub mixin reads the type of `config` off the constructor.
"""

# N any batch, T time, k steps ahead, D latent, A raw action values of a block

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from huggingface_hub import ModelCard, PyTorchModelHubMixin
from safetensors import SafetensorError, safe_open
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn

from phylatent.errors import UserError
from phylatent.models.blocks import ActionEncoder, Predictor, Projector
from phylatent.models.encoders import make_encoder
from phylatent.models.frozen import FrozenRollout
from phylatent.models.saved import check_finite, check_sizes, read_config
from phylatent.randomness import Draws, seeded_init
from phylatent.runs import check_hub_id
from phylatent.schema import ClipConfig, ModelConfig, Normaliser

Rollout = Callable[..., Tensor]
AGAIN = "train or import it again, or fetch it from where it came"
"""What to do about a model directory that is damaged."""
CARD = (Path(__file__).parent / "model_card.md").read_text()


@dataclass(frozen=True)
class WorldModelConfig:
    """All it takes to rebuild and use the model; `config.json` of a saved one."""

    action_dim: int
    model: ModelConfig = field(default_factory=ModelConfig)
    encoder: Mapping[str, Any] | None = None
    """The encoder's own settings."""
    clip: ClipConfig = field(default_factory=ClipConfig)
    task: str | None = None
    variant: str | None = None
    action_low: tuple[float, ...] | None = None
    action_high: tuple[float, ...] | None = None
    action: Normaliser | None = None
    """z-scores of raw actions; unset until there is training data, and then actions pass as they are."""
    action_correlations: tuple[Any, ...] | None = None
    """[lag, dimension, dimension]: how actions vary from step to step in the training data, for a planner's candidates."""
    target: Normaliser | None = None
    split: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, kind in (("model", ModelConfig), ("clip", ClipConfig), ("action", Normaliser), ("target", Normaliser)):
            value = getattr(self, name)
            if isinstance(value, Mapping):
                object.__setattr__(self, name, kind(**value))
            assert value is None or isinstance(value, Mapping) or is_dataclass(value)
        for name in ("action_low", "action_high"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def block_dim(self) -> int:
        return self.clip.stride * self.action_dim


class WorldModel(
    nn.Module,
    PyTorchModelHubMixin,
    library_name="phylatent",
    license="mit",
    pipeline_tag="robotics",
    tags=["world-model", "jepa", "planning"],
    model_card_template=CARD,
):
    """Encodes frames, predicts latents from actions: what is left of a training once its objectives are dropped.

    >>> import numpy as np
    >>> model = phylatent.WorldModel.from_pretrained(f"{run}/model").eval()
    >>> z = model.encode(np.zeros((8, 32, 32, 3), dtype=np.uint8))
    >>> blocks = np.zeros((8, 5, 10), dtype=np.float32)  # 5 blocks of 5 raw actions
    >>> z.shape[0], model.rollout(z, blocks).shape[:2]
    (8, torch.Size([8, 5]))
    """

    pixel_mean: Tensor
    pixel_std: Tensor
    action_mean: Tensor
    action_scale: Tensor

    def __init__(self, config: WorldModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        size = config.model
        with seeded_init(seed, "encoder"):
            self.encoder = make_encoder(size, config.encoder)
        with seeded_init(seed, "projector"):
            self.projector = Projector(size.width, size.projector_hidden)
        with seeded_init(seed, "action_encoder"):
            self.action_encoder = ActionEncoder(config.block_dim, size.action_smoothed, size.width)
        with seeded_init(seed, "predictor"):
            self.predictor = Predictor(
                frames=config.clip.context,
                width=size.width,
                depth=size.predictor_depth,
                heads=size.predictor_heads,
                head_dim=size.predictor_head_dim,
                hidden=size.predictor_mlp,
                dropout=size.dropout,
            )
            self.pred_proj = Projector(size.width, size.projector_hidden)
        action = config.action or Normaliser(mean=(0.0,) * config.action_dim, std=(1.0,) * config.action_dim)
        self._constant("pixel_mean", [255 * m for m in IMAGENET_DEFAULT_MEAN])
        self._constant("pixel_std", [255 * s for s in IMAGENET_DEFAULT_STD])
        self._constant("action_mean", list(action.mean) * config.clip.stride)
        self._constant("action_scale", list(action.scale) * config.clip.stride)

    def _constant(self, name: str, values: list[float]) -> None:
        self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)

    def normalise_frames(self, frames: Tensor | np.ndarray) -> Tensor:
        """uint8 [..., H, W, 3] → ImageNet-normalised float [..., 3, size, size], on the model's device."""
        frames = torch.as_tensor(frames)
        if frames.dtype != torch.uint8 or frames.shape[-1] != 3 or frames.ndim < 3:
            raise UserError(
                f"frames are {str(frames.dtype).removeprefix('torch.')} {list(frames.shape)}; "
                "expected uint8 [..., height, width, 3] with values 0–255"
            )
        width = frames.shape[-2]
        # A whole line of pixels at a time, in place: over three colours alone it would take three times as long.
        lines = frames.to(self.pixel_mean.device).float().flatten(-2)
        lines.sub_(self.pixel_mean.repeat(width)).div_(self.pixel_std.repeat(width))
        flat = rearrange(lines, "... h (w c) -> (...) c h w", c=3)
        size = (self.config.model.image_size,) * 2
        if flat.shape[-2:] != size:
            flat = F.interpolate(flat, size=size, mode="bilinear", antialias=True, align_corners=False)
        return flat.unflatten(0, frames.shape[:-3]) if frames.ndim > 3 else flat[0]

    def normalise_actions(self, blocks: Tensor | np.ndarray) -> Tensor:
        """Raw action blocks [..., A] → z-scored, on the model's device."""
        blocks = torch.as_tensor(blocks, dtype=torch.float32)
        if blocks.shape[-1] != self.config.block_dim:
            raise UserError(
                f"action blocks have {blocks.shape[-1]} values; this model takes {self.config.block_dim} "
                f"({self.config.clip.stride} raw actions of {self.config.action_dim})"
            )
        return (blocks.to(self.action_mean.device) - self.action_mean) * self.action_scale

    def embed_frames(self, pixels: Tensor) -> Tensor:
        """z = P(E(o)): normalised [..., 3, size, size] → [..., D]."""
        features = self.encoder(pixels.flatten(0, -4)) if pixels.ndim > 3 else self.encoder(pixels[None])
        latents = self.projector(features)
        return latents.unflatten(0, pixels.shape[:-3]) if pixels.ndim > 3 else latents[0]

    def embed_actions(self, blocks_NTA: Tensor) -> Tensor:
        """C^a = G_a(A): z-scored action blocks → embeddings."""
        return self.action_encoder(blocks_NTA)

    def predict(self, z_NTD: Tensor, c_NTD: Tensor, draws: Draws | None = None) -> Tensor:
        """Ẑ = F_θ(Z, C^a): the latent one block later at every position, each from the positions up to it."""
        return self.pred_proj(self.predictor(z_NTD, c_NTD, draws and draws.named("dropout")))

    def encode(self, frames: Tensor | np.ndarray) -> Tensor:
        """uint8 frames [..., H, W, 3] of any size → latents [..., D]."""
        return self.embed_frames(self.normalise_frames(frames))

    def rollout(
        self,
        z_ND: Tensor,
        blocks_NkA: Tensor | np.ndarray,
        *,
        past_NhD: Tensor | None = None,
        past_blocks_NhA: Tensor | np.ndarray | None = None,
    ) -> Tensor:
        """Latents [N, k, D] after each of k raw action blocks, starting from `z_ND`.

        `past_NhD` are the latents of the frames before it, oldest first, `past_blocks_NhA` the blocks taken at those frames.
        """
        actions, past = self._z_scored(blocks_NkA, past_NhD, past_blocks_NhA)
        if not self.training:
            return FrozenRollout(self)(z_ND, actions, past)
        latents, context = z_ND[:, None], self.config.clip.context
        if past is not None:
            latents, actions = torch.cat([past[0], latents], dim=1), torch.cat([past[1], actions], dim=1)
        embedded, known = self.embed_actions(actions), latents.shape[1]
        for end in range(known, actions.shape[1] + 1):
            window = slice(max(0, end - context), end)
            predicted = self.predict(latents[:, window], embedded[:, window])[:, -1:]
            latents = torch.cat([latents, predicted], dim=1)
        return latents[:, known:]

    def _z_scored(
        self, blocks_NkA: Tensor | np.ndarray, past_NhD: Tensor | None, past_blocks_NhA: Tensor | np.ndarray | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        past = None
        if past_NhD is not None and past_NhD.shape[1]:
            assert past_blocks_NhA is not None, "past latents come with the blocks taken at them"
            past = past_NhD, self.normalise_actions(past_blocks_NhA)
        return self.normalise_actions(blocks_NkA), past

    def frozen(self, *, compiled: bool = False) -> Rollout:
        """`rollout` in eval mode, prepared for many calls with the weights as they are: make another when they have changed.

        `compiled` hands each step to torch.compile, which takes a minute at first.
        """
        prepared = FrozenRollout(self)
        if compiled:
            prepared.compiled = torch.compile(prepared.follow, dynamic=True)
        else:
            prepared.pack()

        def rollout(
            z_ND: Tensor,
            blocks_NkA: Tensor | np.ndarray,
            *,
            past_NhD: Tensor | None = None,
            past_blocks_NhA: Tensor | np.ndarray | None = None,
        ) -> Tensor:
            return prepared(z_ND, *self._z_scored(blocks_NkA, past_NhD, past_blocks_NhA))

        return rollout

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        facts = {"config": self.config, "parameters": sum(p.numel() for p in self.parameters())}
        return super().generate_model_card(*args, **facts, **kwargs)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **settings: Any) -> Self:
        """A model directory, or a Hub id. Strict: every tensor must be there, with its shape, and no other."""
        source = Path(pretrained_model_name_or_path)
        try:
            if source.is_dir():
                settings = {"config": _checked(source)} | settings
            else:
                check_hub_id(source)
            with contextlib.redirect_stdout(io.StringIO()):  # the mixin prints where it loads from
                model = super().from_pretrained(pretrained_model_name_or_path, strict=True, **settings)
            check_finite(pretrained_model_name_or_path, model.state_dict().items(), AGAIN)
            return model
        except (SafetensorError, OSError, RuntimeError, TypeError, ValueError, KeyError, AttributeError, MemoryError) as error:
            raise UserError(
                f"{pretrained_model_name_or_path} does not hold a phylatent world model that can be loaded: "
                f"{' '.join(str(error).split())[:300]}"
            ) from error


def _checked(source: Path) -> WorldModelConfig:
    """The configuration of a model directory, once it and the weights beside it are known to belong together."""
    for name in ("config.json", "model.safetensors"):
        if not (source / name).is_file():
            raise UserError(f"{source} has no {name}; expected a directory written by save_pretrained")
    weights = source / "model.safetensors"
    try:
        config = WorldModelConfig(**read_config(source / "config.json", AGAIN))
    except UserError as error:
        if str(source) in str(error):
            raise
        raise UserError(f"{source / 'config.json'} does not describe a phylatent world model: {error}; {AGAIN}") from error
    with safe_open(weights, framework="pt") as file:
        check_sizes(weights, config, {name: file.get_slice(name).get_shape() for name in file.keys()}, AGAIN)  # noqa: SIM118
    return config
