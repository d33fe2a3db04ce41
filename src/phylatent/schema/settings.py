"""Settings of data, model and training, and the resolved configuration that holds them all.

Sections of `Config` are the prefixes of the command line's keys: `train.lr`, `collect.episodes`.
The settings of an objective live beside its equation, in `objectives/`, under the objective's own name: `casc.weight`; those of
an encoder or a solver likewise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from phylatent.schema.checks import at_least, check
from phylatent.schema.diagnose import DiagnoseConfig
from phylatent.schema.plan import PlanConfig
from phylatent.schema.task import TaskSpec

AS_PUBLISHED, FAST = RENDERS = ("as-published", "fast")


@dataclass(frozen=True)
class CollectConfig:
    episodes: int = 800
    steps: int = 100
    frame_size: int = 64
    frame_stride: int = 1
    render: str = AS_PUBLISHED
    """How frames are drawn, for the data and for everything that is judged on it."""
    workers: int = 2
    shard_episodes: int = 50
    seed: int = 0
    """Of the data, apart from the training's: several training seeds share one data set."""

    def __post_init__(self) -> None:
        at_least("collect", self, 1, "episodes", "steps", "frame_size", "frame_stride", "workers", "shard_episodes")
        at_least("collect", self, 0, "seed")
        check(self.render in RENDERS, f"collect.render is {self.render!r}; it must be one of {', '.join(RENDERS)}")
        check(
            self.steps % self.frame_stride == 0,
            f"collect.frame_stride is {self.frame_stride}, which does not divide collect.steps = {self.steps}",
        )


@dataclass(frozen=True)
class PrepareConfig:
    """A data set as raw frames that training reads through a memory map."""

    frame_size: int | None = None
    """Unset: as the source's."""
    workers: int = 2

    def __post_init__(self) -> None:
        at_least("prepare", self, 1, "frame_size", "workers")


@dataclass(frozen=True)
class ClipConfig:
    """eq:phylatent_sequence: T frames at a stride, H of them context, targets K frames later."""

    frames: int = 4
    stride: int = 5
    context: int = 3
    offset: int = 1

    def __post_init__(self) -> None:
        at_least("clip", self, 1, "frames", "stride", "context", "offset")
        check(
            self.context + self.offset == self.frames,
            f"clip.context + clip.offset must equal clip.frames, so that every context frame has its target; "
            f"got {self.context} + {self.offset} and {self.frames}",
        )


@dataclass(frozen=True)
class SplitConfig:
    """Shares of the episodes; the rest trains."""

    validation: float = 0.1
    """Where settings are chosen. 0: a two-way split, as earlier versions had it; training then validates on the test side."""
    test: float = 0.1
    """Where results come from."""
    seed: int = 0

    def __post_init__(self) -> None:
        check(0 <= self.validation < 1, f"split.validation is {self.validation}; it must lie between 0 and 1")
        check(0 < self.test < 1, f"split.test is {self.test}; it must lie between 0 and 1")
        shares = f"{self.validation} + {self.test}"
        check(self.validation + self.test < 1, f"split.validation + split.test is {shares}, which leaves nothing to train on")
        at_least("split", self, 0, "seed")

    @property
    def two_way(self) -> bool:
        return self.validation == 0


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of E, P, G_a and F. `width` is also the latent's dimension, as in the paper."""

    encoder: str = "vit"
    """E by its name, or the path of a file that declares one (models/encoders.py)."""
    image_size: int = 224
    patch_size: int = 14
    width: int = 192
    depth: int = 12
    heads: int = 3
    projector_hidden: int = 2048
    action_smoothed: int = 10
    predictor_depth: int = 6
    predictor_heads: int = 16
    predictor_head_dim: int = 64
    predictor_mlp: int = 2048
    dropout: float = 0.1

    def __post_init__(self) -> None:
        at_least("model", self, 1, *(entry.name for entry in fields(self) if entry.name not in ("encoder", "dropout")))
        check(
            self.encoder != "vit" or self.image_size % self.patch_size == 0,
            f"model.patch_size {self.patch_size} does not divide model.image_size {self.image_size}",
        )
        check(self.width % self.heads == 0, f"model.heads {self.heads} does not divide model.width {self.width}")
        check(0 <= self.dropout < 1, f"model.dropout is {self.dropout}; it must lie in [0, 1)")


SCHEDULES = ("constant", "cosine", "hold")
PRECISIONS = ("auto", "fp32", "bf16")
WEIGHTS, SHARES = BALANCES = ("weights", "shares")


@dataclass(frozen=True)
class TrainConfig:
    batch_size: int = 32
    lr: float = 5e-5
    weight_decay: float = 1e-3
    epochs: int = 10
    max_steps_per_epoch: int | None = None
    steps: int | None = None
    """Where training stops. Unset: `epochs` passes, each cut at `max_steps_per_epoch`."""
    schedule: str = "constant"
    schedule_steps: int | None = None
    """How long the schedule is, whatever the stopping step. Unset: the stopping step."""
    warmup: float = 0.0
    cooldown: float = 0.3
    """With `hold`: the last share of the schedule, over which the rate falls to 0."""
    predictor_steps: int = 0
    """Further steps of the predictor alone, on the latents of the encoder as it is by then (training/predictor_steps.py)."""
    predictor_blocks: int | None = None
    """How many blocks in a row `rollout` predicts in those steps. Unset: the clip's."""
    balance: str = WEIGHTS
    """`shares`: the weights follow the gradients, so that every objective keeps its `share` (training/balance.py)."""
    balance_every: int = 10
    """Steps from one measurement of the gradients to the next."""
    clip_norm: float = 1.0
    precision: str = "auto"
    compile: bool = False
    """Compile the encoder with torch.compile first: that takes a minute, and on a CPU a C++ compiler (docs/performance.md)."""
    loader_workers: int = 0
    log_every: int = 10
    validate_every: int = 1000
    validation_batches: int = 16
    readout_frames: int = 2048
    checkpoint_every: int = 1000
    checkpoint_minutes: float = 10.0
    wandb: bool = False
    trials: int = 1
    """How many settings were tried on validation episodes before this one was chosen. It is recorded, and changes nothing."""

    def __post_init__(self) -> None:
        at_least("train", self, 1, "batch_size", "epochs", "log_every", "validate_every", "validation_batches")
        at_least("train", self, 1, "checkpoint_every", "max_steps_per_epoch", "steps", "schedule_steps", "trials")
        at_least("train", self, 1, "balance_every", "predictor_blocks")
        at_least("train", self, 0, "weight_decay", "clip_norm", "loader_workers", "checkpoint_minutes", "predictor_steps")
        at_least("train", self, 16, "readout_frames")
        for name, allowed in (("schedule", SCHEDULES), ("precision", PRECISIONS), ("balance", BALANCES)):
            value = getattr(self, name)
            check(value in allowed, f"train.{name} is {value!r}; it must be one of {', '.join(allowed)}")
        check(0 < self.lr < math.inf, f"train.lr is {self.lr}; it must be above 0")
        check(0 < self.cooldown <= 1, f"train.cooldown is {self.cooldown}; it is a share of the schedule, in (0, 1]")
        check(0 <= self.warmup < 1, f"train.warmup is {self.warmup}; it is a share of the schedule, in [0, 1)")


@dataclass(frozen=True)
class Settings:
    """The typed part of a configuration that does not depend on which objectives are active."""

    task: str
    preset: str
    variant: str
    task_file: str | None = None
    """Where the user's own task is declared; a shipped or installed one is found by its name."""
    seed: int = 0
    data: str | None = None
    device: str = "auto"
    devices: int = 1
    objectives: tuple[str, ...] = ("pred", "sigreg")
    collect: CollectConfig = field(default_factory=CollectConfig)
    prepare: PrepareConfig = field(default_factory=PrepareConfig)
    clip: ClipConfig = field(default_factory=ClipConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    diagnose: DiagnoseConfig = field(default_factory=DiagnoseConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)


@dataclass(frozen=True)
class Config(Settings):
    """A resolved configuration: `Settings`, the task, and by name the settings of objectives, of encoder and of solver."""

    spec: TaskSpec = field(kw_only=True, compare=False, repr=False)
    """The task that `task` names, found once. It is not saved: a saved configuration finds it again."""
    objective_settings: Mapping[str, Any] = field(default_factory=dict)
    objective_files: Mapping[str, str] = field(default_factory=dict)
    """Where objectives of the user's own are declared: a saved configuration names these paths in their place."""
    encoder: Any = None
    solver: Any = None
