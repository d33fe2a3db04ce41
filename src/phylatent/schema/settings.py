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

from phylatent.schema.checks import at_least, check, seed
from phylatent.schema.diagnose import CHOICES as DIAGNOSE_CHOICES
from phylatent.schema.diagnose import DiagnoseConfig
from phylatent.schema.plan import CHOICES as PLAN_CHOICES
from phylatent.schema.plan import PlanConfig
from phylatent.schema.task import TaskSpec

AS_PUBLISHED, FAST = RENDERS = ("as-published", "fast")


@dataclass(frozen=True)
class CollectConfig:
    episodes: int = 800
    """How many episodes the data set has."""
    steps: int = 100
    """Raw steps of an episode; a task says its own."""
    frame_size: int = 64
    """Side of a stored frame, in pixels."""
    frame_stride: int = 1
    """Raw steps from one stored frame to the next; it divides `steps`."""
    render: str = AS_PUBLISHED
    """How frames are drawn, for the data and for everything that is judged on it."""
    workers: int = 2
    """Simulating processes. The data do not depend on it."""
    shard_episodes: int = 50
    """Episodes that a process finishes at a time: a killed collection loses no more than these."""
    seed: int = 0
    """Of the data, apart from the training's: several training seeds share one data set."""

    def __post_init__(self) -> None:
        at_least("collect", self, 1, "episodes", "steps", "frame_size", "frame_stride", "workers", "shard_episodes")
        seed("collect.", self.seed)
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
    """Processes that decode frames."""

    def __post_init__(self) -> None:
        at_least("prepare", self, 1, "frame_size", "workers")


@dataclass(frozen=True)
class ClipConfig:
    """eq:phylatent_sequence: T frames at a stride, H of them context, targets K frames later."""

    frames: int = 4
    """T: frames of a training clip."""
    stride: int = 5
    """Raw steps from one frame to the next, which are one action block."""
    context: int = 3
    """H: frames that a prediction may see."""
    offset: int = 1
    """K: how many frames after its context a target lies."""

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
    """Which episodes are on which side. Models that are compared share it."""

    def __post_init__(self) -> None:
        check(0 <= self.validation < 1, f"split.validation is {self.validation}; it must lie between 0 and 1")
        check(0 < self.test < 1, f"split.test is {self.test}; it must lie between 0 and 1")
        shares = f"{self.validation} + {self.test}"
        check(self.validation + self.test < 1, f"split.validation + split.test is {shares}, which leaves nothing to train on")
        seed("split.", self.seed)

    @property
    def two_way(self) -> bool:
        return self.validation == 0


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of E, P, G_a and F. `width` is also the latent's dimension, as in the paper."""

    encoder: str = "vit"
    """E by its name, or the path of a file that declares one (models/encoders.py)."""
    image_size: int = 224
    """Side of the frames that the encoder sees; stored ones are resized."""
    patch_size: int = 14
    """Side of a patch of the ViT, in pixels; it divides `image_size`."""
    width: int = 192
    """D: the latent's dimension, and the width of encoder and predictor."""
    depth: int = 12
    """Blocks of the encoder (vit, hybrid)."""
    heads: int = 3
    """Attention heads of the encoder; they divide `width`."""
    projector_hidden: int = 2048
    """Hidden width of the projection behind encoder and predictor."""
    action_smoothed: int = 10
    """Width to which an action block is reduced before it is embedded."""
    predictor_depth: int = 6
    """Blocks of the predictor."""
    predictor_heads: int = 16
    """Attention heads of the predictor."""
    predictor_head_dim: int = 64
    """Width of each of the predictor's heads."""
    predictor_mlp: int = 2048
    """Hidden width of the predictor's blocks."""
    dropout: float = 0.1
    """Of the predictor, while training."""

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
    """Clips of a step, over all processes."""
    lr: float = 5e-5
    """AdamW's learning rate."""
    weight_decay: float = 1e-3
    """AdamW's weight decay."""
    epochs: int = 10
    """Passes over the training clips; `steps` wins where it is set."""
    max_steps_per_epoch: int | None = None
    """Where a pass is cut. Unset: nowhere."""
    steps: int | None = None
    """Where training stops. Unset: `epochs` passes, each cut at `max_steps_per_epoch`."""
    schedule: str = "constant"
    """How the rate goes: `constant`, `cosine` (falls to 0), or `hold` (stays, and falls at the end)."""
    schedule_steps: int | None = None
    """How long the schedule is, whatever the stopping step. Unset: the stopping step."""
    warmup: float = 0.0
    """The first share of the schedule, over which the rate rises from 0."""
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
    """The gradients' norm is cut to this. 0: not cut."""
    precision: str = "auto"
    """`fp32`, `bf16`, or `auto`: bf16 on CUDA alone."""
    compile: bool = False
    """Compile the encoder with torch.compile first: that takes a minute, and on a CPU a C++ compiler (docs/performance.md)."""
    loader_workers: int = 0
    """Processes that read data beside the training. 0: none; prepared data need none."""
    log_every: int = 10
    """Steps from one line of train.csv to the next."""
    validate_every: int = 1000
    """Steps from one validation to the next."""
    validation_batches: int = 16
    """Batches of validation clips on which a validation measures losses."""
    readout_frames: int = 2048
    """Training frames on which a validation fits the linear read-out of the physical state."""
    checkpoint_every: int = 1000
    """Steps from one checkpoint to the next."""
    checkpoint_minutes: float = 10.0
    """Minutes after which there is a checkpoint in any case. 0: by steps alone."""
    wandb: bool = False
    """Whether to log to Weights & Biases as well (needs the extra `wandb`, and a login)."""
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
    """What is learnt: a name (`phylatent list tasks`), or the path of a file that declares one."""
    preset: str
    """Sizes and budgets: a name (`phylatent list presets`), or the path of a YAML file."""
    variant: str
    """The method: a name (`phylatent list variants`), or the path of a YAML file."""
    task_file: str | None = None
    """Where the user's own task is declared; a shipped or installed one is found by its name."""
    seed: int = 0
    """Of the training: weights, order of the clips, every draw. Several with commas are several runs."""
    data: str | None = None
    """The data file. Unset: where `collect` puts the task's and preset's."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `mps`."""
    devices: int = 1
    """Processes that train together; the losses are those of one."""
    objectives: tuple[str, ...] = ("pred", "sigreg")
    """What is minimised: names (`phylatent list objectives`), or paths of files that declare one."""
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


CHOICES: Mapping[str, tuple[str, ...]] = {
    "collect.render": RENDERS,
    "train.schedule": SCHEDULES,
    "train.precision": PRECISIONS,
    "train.balance": BALANCES,
    "device": ("auto", "cpu", "cuda", "mps"),
    **{f"diagnose.{name}": allowed for name, allowed in DIAGNOSE_CHOICES.items()},
    **{f"plan.{name}": allowed for name, allowed in PLAN_CHOICES.items()},
}
"""Keys that take one of a few words, or a list of them."""
