"""What a task, a model and a run are, as frozen dataclasses. No torch here.

Sections of the resolved configuration (`Config`) are the prefixes of the command line's keys: `train.lr`, `collect.episodes`.
The settings of an objective live beside its equation, in `objectives/`, under the objective's own name: `casc.weight`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from phylatent.errors import UserError

Row = dict[str, np.ndarray]
"""One time step of an episode as the data file holds it: column name → value."""


@dataclass(frozen=True)
class Normaliser:
    """A z-score per dimension. A dimension that never varied maps to 0."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", tuple(self.mean))
        object.__setattr__(self, "std", tuple(self.std))

    @property
    def scale(self) -> tuple[float, ...]:
        """What a centred value is multiplied by: 1/std, or 0 for a constant dimension."""
        return tuple(1 / s if s > 1e-8 else 0.0 for s in self.std)


@dataclass(frozen=True)
class PhysicalTarget:
    """The vector S of tab:physical_targets: which data columns, in which order, what each dimension is called."""

    columns: tuple[str, ...]
    names: tuple[str, ...]
    modulo: Mapping[int, float] = field(default_factory=dict)
    """Dimension → period, for a dimension the paper takes modulo something."""

    @property
    def dim(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class TaskSpec:
    """Everything about a task. Adding one is adding one file with a `TASK` in `tasks/`."""

    name: str
    title: str
    env_id: str
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    target: PhysicalTarget
    objectives: Mapping[str, Mapping[str, float]]
    """Weights and hyper-parameters of the paper's objectives on this task (tab:loss_weights, tab:auxiliary_hyperparameters)."""
    episode_steps: int
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    """Columns recorded beside `pixels` and `action`; together they are enough to restore a state."""
    moving_dims: tuple[int, ...] = ()
    """Target dimensions of the thing the task wants moved (`inspect` counts the windows in which it does)."""
    moving_tolerance: float = 0.0
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings that a preset takes on this task only: preset name → nested settings."""
    expert: str | None = None
    """Where the simulator finds the expert policy: "module:Class"."""
    behaviour: Callable[..., Callable[[], np.ndarray]] | None = None
    """(simulator, rng) → act(); act() returns the next raw action and may change the simulator's goal."""
    read_columns: Callable[[Any], Row] | None = None
    """(environment) → the recorded columns of its present state."""
    restore: Callable[[Any, Row], None] | None = None
    """(environment, row) → sets the environment to that recorded state."""
    solved: Callable[[Row, Row], bool] | None = None
    """(row, the row that holds its goal) → success under the paper's protocol."""

    @property
    def action_dim(self) -> int:
        return len(self.action_low)


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def _at_least(section: str, settings: Any, lowest: float, *names: str) -> None:
    """Every named setting is a finite number, not below `lowest`; None is for settings that may be left open."""
    for name in names:
        value = getattr(settings, name)
        good = value is None or (math.isfinite(value) and value >= lowest)
        _check(good, f"{section}.{name} is {value}; it must be at least {lowest}")


@dataclass(frozen=True)
class CollectConfig:
    episodes: int = 800
    steps: int = 100
    frame_size: int = 64
    frame_stride: int = 1
    workers: int = 2
    shard_episodes: int = 50
    seed: int = 0
    """Of the data, apart from the training's: several training seeds share one data set."""

    def __post_init__(self) -> None:
        _at_least("collect", self, 1, "episodes", "steps", "frame_size", "frame_stride", "workers", "shard_episodes")
        _at_least("collect", self, 0, "seed")
        _check(
            self.steps % self.frame_stride == 0,
            f"collect.frame_stride is {self.frame_stride}, which does not divide collect.steps = {self.steps}",
        )


@dataclass(frozen=True)
class ClipConfig:
    """eq:phylatent_sequence: T frames at a stride, H of them context, targets K frames later."""

    frames: int = 4
    stride: int = 5
    context: int = 3
    offset: int = 1

    def __post_init__(self) -> None:
        _at_least("clip", self, 1, "frames", "stride", "context", "offset")
        _check(
            self.context + self.offset == self.frames,
            f"clip.context + clip.offset must equal clip.frames, so that every context frame has its target; "
            f"got {self.context} + {self.offset} and {self.frames}",
        )


@dataclass(frozen=True)
class SplitConfig:
    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        _check(0 < self.held_out < 1, f"split.held_out is {self.held_out}; it must lie between 0 and 1")
        _at_least("split", self, 0, "seed")


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of E, P, G_a and F. `width` is also the latent's dimension, as in the paper."""

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
        _at_least("model", self, 1, *(entry.name for entry in fields(self) if entry.name != "dropout"))
        _check(
            self.image_size % self.patch_size == 0,
            f"model.patch_size {self.patch_size} does not divide model.image_size {self.image_size}",
        )
        _check(self.width % self.heads == 0, f"model.heads {self.heads} does not divide model.width {self.width}")
        _check(0 <= self.dropout < 1, f"model.dropout is {self.dropout}; it must lie in [0, 1)")


SCHEDULES = ("constant", "cosine")
PRECISIONS = ("auto", "fp32", "bf16")


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
    clip_norm: float = 1.0
    precision: str = "auto"
    loader_workers: int = 0
    log_every: int = 10
    validate_every: int = 1000
    validation_batches: int = 16
    readout_frames: int = 2048
    checkpoint_every: int = 1000
    checkpoint_minutes: float = 10.0
    wandb: bool = False

    def __post_init__(self) -> None:
        _at_least("train", self, 1, "batch_size", "epochs", "log_every", "validate_every", "validation_batches")
        _at_least("train", self, 1, "checkpoint_every", "max_steps_per_epoch", "steps", "schedule_steps")
        _at_least("train", self, 0, "weight_decay", "clip_norm", "loader_workers", "checkpoint_minutes")
        _at_least("train", self, 16, "readout_frames")
        for name, allowed in (("schedule", SCHEDULES), ("precision", PRECISIONS)):
            value = getattr(self, name)
            _check(value in allowed, f"train.{name} is {value!r}; it must be one of {', '.join(allowed)}")
        _check(0 < self.lr < math.inf, f"train.lr is {self.lr}; it must be above 0")
        _check(0 <= self.warmup < 1, f"train.warmup is {self.warmup}; it is a share of the schedule, in [0, 1)")


@dataclass(frozen=True)
class Settings:
    """The typed part of a configuration that does not depend on which objectives are active."""

    task: str
    preset: str
    variant: str
    seed: int = 0
    data: str | None = None
    device: str = "auto"
    devices: int = 1
    terms: tuple[str, ...] = ("pred", "sigreg")
    collect: CollectConfig = field(default_factory=CollectConfig)
    clip: ClipConfig = field(default_factory=ClipConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True)
class Config(Settings):
    """A resolved configuration: `Settings` and, by name, the settings of every active objective."""

    objectives: Mapping[str, Any] = field(default_factory=dict)
