"""What a task is: its environment, its data, its physical target, when it is solved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phylatent.schema.diagnose import SEVERITIES

Row = dict[str, np.ndarray]
"""One time step of an episode as the data file holds it: column name → value."""
Policy = Callable[[Any, np.random.Generator], Callable[[], np.ndarray]]
"""(simulator, rng) → act(); act() returns the next raw action."""


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
    angles: Mapping[int, float] = field(default_factory=dict)
    """Dimension → period, for a dimension that is an angle: one period further is the same place."""

    @property
    def dim(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Rule:
    """When an episode counts as a success under a planning protocol. Every callable gets rows that hold their goal."""

    solved: Callable[[Row], bool]
    meaning: str = ""
    """In a few words, for tables and pages."""
    asks: Callable[[Row], bool] | None = None
    """(start) → whether the protocol asks for this pair at all."""
    hold: int = 1
    """How many steps in a row it must be solved."""
    corrected: Callable[[Row, Row], Row] | None = None
    """(before, after) → where the step ends under the protocol's own physics, for an environment whose own are at fault."""


@dataclass(frozen=True)
class TaskSpec:
    """Everything about a task. Adding one is adding one file with a `TASK`, here in `tasks/` or anywhere (docs/own-task.md)."""

    name: str
    title: str
    env_id: str
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    target: PhysicalTarget
    episode_steps: int
    objectives: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Weights and hyper-parameters of the paper's objectives on this task (tab:loss_weights, tab:auxiliary_hyperparameters).
    What it does not say is as on TwoRooms."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    """Columns recorded beside `pixels` and `action`; together they are enough to restore a state."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Column → what other people's files call it, read where it is missing under its own name."""
    moving_dims: tuple[int, ...] = ()
    """Target dimensions of the thing the task wants moved (`inspect` counts the windows in which it does)."""
    moving_tolerance: float = 0.0
    turning_dims: tuple[int, ...] = ()
    """The same for its angles, counted apart: one tolerance would not do for pixels and radians."""
    turning_tolerance: float = 0.0
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings that a preset takes on this task only: preset name → nested settings."""
    behaviour: Policy | None = None
    """Collects the data; it may change the simulator's goal as it acts."""
    expert: Policy | None = None
    """Goes for the goal in force: the ceiling in planning, where there is one."""
    read_columns: Callable[[Any], Row] | None = None
    """(environment) → the recorded columns of its present state."""
    restore: Callable[[Any, Row], None] | None = None
    """(environment, row) → sets the environment to that recorded state."""
    render_fast: Callable[[Any, int], np.ndarray] | None = None
    """(environment, size) → uint8 [size, size, 3] for `collect.render=fast`. None: drawing as published is fast enough."""
    render_same: Callable[[Any], np.ndarray] | None = None
    """(environment) → its own frame to the bit, drawn in less time. None: as the environment draws it."""
    with_goal: Callable[[Row, Row], Row] | None = None
    """(row, another row) → the first one, with the other's state as its goal."""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """What a planning protocol asks of this task: `paper`, `moderate`, `strict`; `object` where one is pushed."""
    distance: Callable[[Row, Row], float] | None = None
    """(row, the row that holds its goal) → how far it is from being solved, in `distance_unit`."""
    distance_unit: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that hold on this task in every preset, nested as on the command line."""
    severities: Mapping[str, float] = field(default_factory=dict)
    """How strong each perturbation of the invariance diagnostic is here, frozen for all models; `SEVERITIES` for those it does
    not name. benchmarks/severities.py proposes them."""
    file: str | None = field(default=None, compare=False)
    """Where a user's own is declared, filled in when it is loaded. None for one that is found by its name alone."""

    def strengths(self) -> dict[str, float]:
        """The strength of every kind of perturbation on this task."""
        return {**SEVERITIES, **self.severities}

    @property
    def action_dim(self) -> int:
        return len(self.action_low)
