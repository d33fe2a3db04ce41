"""What a declaration must say before anything is done with it; `phylatent doctor task=…` then tries it in the simulator."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Iterator, Mapping
from typing import Any

from phylatent.errors import UserError
from phylatent.schema import PERTURBATIONS, PhysicalTarget, Rule, TaskSpec

NEEDED = {
    "columns": "the columns to record beside pixels and action",
    "read_columns": "a function (environment) → {column: value} of the present state",
    "restore": "a function (environment, row) that sets the environment to a recorded state",
    "behaviour": "a function (simulator, rng) → act() that collects the data",
    "with_goal": "a function (row, other) → the row with the other's state as its goal",
    "distance": "a function (row, row with its goal) → how far it is from its goal",
    "rules": 'when planning has succeeded, at least {"paper": Rule(solved=…)}',
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def check_declaration(task: TaskSpec, where: str) -> None:
    """An error that says everything that is wrong with a user's own declaration, and what to write instead."""
    wrong = [*_types(task)] or [*_missing(task), *_numbers(task), *_target(task), *_unpicklable(task)]
    if wrong:
        raise UserError(f"the task declared in {where} cannot be used: {'; '.join(wrong)}")


def _types(task: TaskSpec) -> Iterator[str]:
    for name in ("action_low", "action_high", "columns", "moving_dims", "turning_dims"):
        value = getattr(task, name)
        if not isinstance(value, (tuple, list)):
            yield f"{name} is {value!r}: write a tuple, such as ({value!r},)"
    if not isinstance(task.target, PhysicalTarget):
        yield f"target is a {type(task.target).__name__}: write PhysicalTarget(columns=(…,), names=(…,))"
    for name in ("env_kwargs", "objectives", "presets", "rules", "settings", "severities"):
        if not isinstance(getattr(task, name), Mapping):
            yield f"{name} is a {type(getattr(task, name)).__name__}: write a dictionary"
            return
    for protocol, rule in task.rules.items():
        if not isinstance(rule, Rule):
            yield f"the rule {protocol!r} is a {type(rule).__name__}: write Rule(solved=…)"


def _missing(task: TaskSpec) -> Iterator[str]:
    if not (isinstance(task.name, str) and NAME.fullmatch(task.name)):
        yield f"its name is {task.name!r}, which becomes part of file names: use letters, digits, _ and - only"
    for name, meaning in NEEDED.items():
        if not getattr(task, name):
            yield f"it lacks {name}: add {meaning}"
    if task.rules and "paper" not in task.rules:
        yield f"its rules are {', '.join(task.rules)}: add 'paper', the protocol that `plan` uses unless told otherwise"


def _numbers(task: TaskSpec) -> Iterator[str]:
    low, high = task.action_low, task.action_high
    if not low or len(low) != len(high):
        yield f"action_low has {len(low)} and action_high {len(high)} values: both need one for each action dimension"
    elif not all(math.isfinite(a) and math.isfinite(b) and a < b for a, b in zip(low, high, strict=True)):
        yield f"its action bounds are {list(low)} and {list(high)}: each low must be a finite number below its high"
    if not (isinstance(task.episode_steps, int) and task.episode_steps > 0):
        yield f"episode_steps is {task.episode_steps!r}: it must be a whole number above 0"
    for kind, strength in task.severities.items():
        if kind not in PERTURBATIONS:
            yield f"severities names {kind!r}: the perturbations are {', '.join(PERTURBATIONS)}"
        elif not (isinstance(strength, (int, float)) and math.isfinite(strength) and strength > 0):
            yield f"the severity of {kind} is {strength!r}: it must be a number above 0"


def _target(task: TaskSpec) -> Iterator[str]:
    target = task.target
    if not target.columns or not target.names:
        yield "its physical target is empty: name its columns, and each dimension of them in names"
    strangers = [name for name in target.columns if task.columns and name not in task.columns]
    if strangers:
        yield f"the physical target reads column {strangers[0]!r}, which is not recorded: add it to columns"
    if len(set(target.names)) < len(target.names):
        yield "two dimensions of the physical target have the same name"
    periods = {"target.modulo": target.modulo, "target.angles": target.angles}
    for name, mapping in periods.items():
        if any(dimension not in range(target.dim) or not period > 0 for dimension, period in mapping.items()):
            yield f"{name} is {dict(mapping)}: it must map dimensions from 0 to {target.dim - 1} to periods above 0"
    for name in ("moving_dims", "turning_dims"):
        if any(dimension not in range(target.dim) for dimension in getattr(task, name)):
            yield f"{name} is {getattr(task, name)}: the physical target has dimensions 0 to {target.dim - 1}"


def _unpicklable(task: TaskSpec) -> Iterator[str]:
    """Worker processes get the declaration by pickle, which takes functions by their name in their file."""
    for name, value in _parts(vars(task)):
        try:
            pickle.dumps(value)
        except Exception:  # pickle raises whatever an object's own code raises
            kind = getattr(value, "__qualname__", None) or type(value).__name__
            yield f"{name} ({kind}) cannot be sent to worker processes: write it as a def at the top level of the file"


def _parts(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name == "rules":
            for protocol, rule in value.items():
                yield from ((f"{protocol}'s {part}", inner) for part, inner in vars(rule).items())
        else:
            yield name, value
