"""A run's configuration: what task, preset and variant say (layers.py), and on top the command line.

No torch here until a configuration is resolved: whoever mistyped a name or a key should not wait for it (sections.py).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from phylatent.composition.layers import RESERVED, Layer, layers_of, paths_in
from phylatent.composition.sections import ALIASES, check_form, resolve
from phylatent.errors import UserError
from phylatent.files import atomic
from phylatent.own_files import is_path
from phylatent.reading import SAVED, Unreadable, check_shape, parse_yaml, read_yaml
from phylatent.reading.shapes import Maybe
from phylatent.runs import CONFIG
from phylatent.schema import Config, Settings, TaskSpec
from phylatent.schema.checks import seed
from phylatent.tasks import get_task, saved_task
from phylatent.trust import allow

TEXTS = ("data", "device", "model.encoder", "plan.solver")
"""Keys whose value is taken as it stands: a file may be called 007."""

JUDGING = ("preset", "variant", "data", "collect", "split", "diagnose", "plan")
"""What a saved configuration says about judging its model."""

MAY_CHANGE = ("device", "devices", "data", "train.loader_workers", "plan.solver")
"""What a run that is resumed may be told anew."""


TASK, PRESET, VARIANT = "tworooms", "laptop", "phylatent"
"""What is meant where nothing is chosen."""


def compose(task: str | TaskSpec = TASK, preset: str = PRESET, variant: str = VARIANT, overrides: Sequence[str] = ()) -> Config:
    """The resolved, validated configuration; `overrides` are `key=value` strings as on the command line.

    `task` is a name, the path of a file that declares one, or the task itself; `preset` and `variant` are names or paths, too.

    >>> config = phylatent.compose("pusht", "laptop", "lewm", ["train.lr=1e-4"])
    >>> config.train.lr, config.objectives
    (0.0001, ('pred', 'sigreg'))
    """
    spec = task if isinstance(task, TaskSpec) else get_task(task)
    return _resolve(spec, layers_of(spec, preset, variant), overrides)


AGAIN = "give the configuration that a run saved, or start a new run"


def load_config(path: Path, overrides: Sequence[str] = (), task: str | None = None) -> Config:
    """A saved configuration, complete in itself: what tasks and presets say today does not matter to it.

    `task` is where the file that declares the user's own task is now, if it was moved.
    """
    spec, saved = read_saved(path, task)
    return _resolve(spec, [Layer(saved, str(path), final=True)], overrides)


def resumed_config(directory: Path, overrides: Sequence[str], task: str | None = None) -> Config:
    """The configuration of the run in a directory; where it computes and where its data and task file lie may change."""
    for override in overrides:
        if override.partition("=")[0] not in MAY_CHANGE:
            raise UserError(f"a resumed run keeps its own configuration; leave out {override}, or start a new run")
    if not (directory / CONFIG).exists():
        raise UserError(f"there is no run in {directory} to resume; leave out resume=true to start one")
    return load_config(directory / CONFIG, overrides, task)


def judging_config(spec: TaskSpec, saved: Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """What a saved configuration says about judging its model, without its objectives: those may be far away by now."""
    names: tuple[str, ...] = JUDGING
    solver = (saved.get("plan") or {}).get("solver")
    if solver and not any(override.startswith("plan.solver=") for override in overrides):
        names = (*names, _solver_name(solver))
    kept = {name: value for name, value in _as_today(saved).items() if name in names}
    said = {"task": spec.name, "task_file": spec.file, **kept}
    return _resolve(spec, [Layer(said, "the model's configuration", final=True)], overrides)


def read_saved(path: Path, task: str | None = None) -> tuple[TaskSpec, dict[str, Any]]:
    """The task and the plain values of a saved configuration; `task` as for `load_config`."""
    if not path.is_file():
        raise UserError(f"there is no configuration file {path}")
    saved = read_yaml(path, again=AGAIN)
    if not {"task", "preset", "variant"} <= saved.keys():
        raise UserError(f"{path} is not a saved phylatent configuration: task, preset or variant is missing")
    check_shape(path, saved, {"task": str, "preset": str, "variant": str, "task_file?": Maybe(str)}, again=AGAIN)
    spec = saved_task(saved["task"], saved.get("task_file"), now=task)
    return spec, {**_as_today(saved), "task_file": spec.file}


def _as_today(saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration that an earlier version saved: another name for its objectives; a two-way split, which it keeps."""
    saved = {ALIASES.get(name, name): value for name, value in saved.items()}
    split = saved.get("split")
    if not isinstance(split, dict) or "held_out" not in split:
        return saved
    rest = {name: value for name, value in split.items() if name != "held_out"}
    return {**saved, "split": {"validation": 0.0, "test": split["held_out"]} | rest}


def to_dict(config: Config) -> dict[str, Any]:
    """Nested plain values, objectives, encoder and solver at the top level under their names, as on the command line."""
    sections = {entry.name: getattr(config, entry.name) for entry in fields(Settings)}
    listed = [config.objective_files.get(name, name) for name in config.objectives]
    sections |= {"objectives": listed, **config.objective_settings}
    if config.encoder is not None:
        sections[_encoder_name(config.model.encoder)] = config.encoder
    if config.solver is not None:
        sections[_solver_name(config.plan.solver)] = config.solver
    return {name: _plain(section) for name, section in sections.items()}


def without_paths(config: Config) -> dict[str, Any]:
    """The same as a published model holds it: it does not carry the paths of the machine that trained it."""
    plain = to_dict(config) | {"objectives": list(config.objectives)}
    plain["model"] |= {"encoder": _encoder_name(config.model.encoder)}
    plain["plan"] |= {"solver": _solver_name(config.plan.solver)}
    return {name: value for name, value in plain.items() if name not in ("data", "task_file")}


def _plain(section: Any) -> Any:
    return asdict(section) if is_dataclass(section) and not isinstance(section, type) else section


def _encoder_name(encoder: str) -> str:
    from phylatent.models.encoders import find_encoder

    return find_encoder(encoder).name if is_path(encoder) else encoder


def _solver_name(solver: str) -> str:
    from phylatent.planning.solvers import find_solver

    return find_solver(solver).name if is_path(solver) else solver


def save_config(config: Config, path: Path) -> None:
    with atomic(path) as temporary:
        temporary.write_text(SAVED + yaml.safe_dump(to_dict(config), sort_keys=False, explicit_end=True))


def _resolve(spec: TaskSpec, layers: Sequence[Layer], overrides: Sequence[str]) -> Config:
    chosen = _parse(overrides)
    for path in paths_in(chosen):
        allow(path)
    return _typed(spec, resolve([*layers, Layer(chosen)]), chosen)


def _typed(spec: TaskSpec, resolved: Any, chosen: Mapping[str, Any]) -> Config:
    from phylatent.models.encoders import ENCODERS, find_encoder
    from phylatent.objectives import OBJECTIVES

    listed = _listed(resolved.objectives)
    for name in chosen:
        if name in OBJECTIVES and name not in listed:
            raise UserError(
                f"variant {resolved.variant!r} does not use {name!r} (it uses {', '.join(listed)}), so its settings would do "
                f"nothing; choose another variant, or add it: objectives=[{','.join([*listed.values(), name])}]"
            )
    for name in listed:
        weight = getattr(resolved, name).weight
        if not 0 <= weight < math.inf:
            raise UserError(f"{name}.weight is {weight}; it must be a number that is not negative")
        if weight == 0:
            others = ",".join(given for other, given in listed.items() if other != name)
            raise UserError(
                f"{name} is among the objectives, but {name}.weight is 0, so it would do nothing; "
                f"give it a weight, or leave it out: objectives=[{others}]"
            )
    seed("", resolved.seed)
    if resolved.devices < 1:
        raise UserError(f"devices is {resolved.devices}; it must be at least 1")
    encoder = find_encoder(resolved.model.encoder).name
    for name in chosen:
        if name in ENCODERS and name != encoder:
            raise UserError(
                f"the model's encoder is {encoder!r}, so settings of {name!r} would do nothing; model.encoder={name}?"
            )
    settings = {entry.name: getattr(resolved, entry.name) for entry in fields(Settings)}
    settings |= {
        "objectives": tuple(listed),
        "model": replace(resolved.model, encoder=_in_full(resolved.model.encoder)),
        "plan": replace(resolved.plan, solver=_in_full(resolved.plan.solver)),
    }
    return Config(
        **settings,
        objective_settings={name: getattr(resolved, name) for name in listed},
        objective_files={name: given for name, given in listed.items() if is_path(given)},
        encoder=getattr(resolved, encoder, None),
        solver=_solver_settings(resolved, chosen),
        spec=spec,
    )


def _solver_settings(resolved: Any, chosen: Mapping[str, Any]) -> Any:
    """The chosen solver's own settings; what would do nothing with it is refused."""
    from phylatent.planning.solvers import SOLVERS, find_solver

    solver = find_solver(resolved.plan.solver)
    for name in chosen:
        if name in SOLVERS and name != solver.name:
            raise UserError(f"the solver is {solver.name!r}, so settings of {name!r} would do nothing; plan.solver={name}?")
    for name in chosen.get("plan") or {}:
        if name in solver.unused:
            raise UserError(f"plan.{name} does nothing with the solver {solver.name!r}; leave it out, or choose another solver")
    plan = resolved.plan
    if plan.elites > plan.candidates and "elites" not in solver.unused:
        raise UserError(f"plan.elites is {plan.elites}, more than plan.candidates = {plan.candidates}")
    return getattr(resolved, solver.name, None)


def _listed(given: Sequence[str]) -> dict[str, str]:
    """Objective → its name or its path in full: the shipped ones in their order, then the user's own as they are listed."""
    from phylatent.objectives import SHIPPED, find_objective

    listed = {find_objective(ALIASES.get(name, name)).name: _in_full(ALIASES.get(name, name)) for name in given}
    if not listed:
        raise UserError("no objective is left: the list is empty; name some, such as objectives=[pred,sigreg]")
    return {name: listed[name] for name in (*SHIPPED, *listed) if name in listed}


def _in_full(text: str) -> str:
    """A path that means the same from any working directory; a name as it is."""
    return str(Path(text).expanduser().resolve()) if is_path(text) else text


def _parse(overrides: Sequence[str]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise UserError(f"{override!r} is not of the form key=value")
        head, _, rest = key.partition(".")
        head = ALIASES.get(head, head)
        key = f"{head}.{rest}" if rest else head
        if head in RESERVED:
            raise UserError(f"{head} is chosen by itself, not as an override: it decides what the others start from")
        check_form(key)
        value = text if key in TEXTS else _value(override, text)
        if rest:
            chosen.setdefault(head, {})[rest] = value
        else:
            chosen[head] = value
    return chosen


def _value(override: str, text: str) -> Any:
    try:
        value = parse_yaml(text) if text else None
    except Unreadable as error:
        raise UserError(f"{override!r}: the value cannot be read: {error}") from error
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)  # YAML 1.1 takes 5e-4 for a string
    return value
