"""A run's configuration: defaults ← task ← preset ← the task's say in that preset ← variant ← the variant's say in that preset,
and in that preset on that task ← command line."""

from __future__ import annotations

import contextlib
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, fields, is_dataclass, make_dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from phylatent.errors import UserError
from phylatent.files import atomic
from phylatent.models.encoders import ENCODERS, find_encoder
from phylatent.objectives import TERMS
from phylatent.planning.solvers import SOLVERS, find_solver, has_settings
from phylatent.schema import Config, Settings
from phylatent.tasks import all_tasks, get_task, task_file, unknown

ALIASES = {"svip": "svic", "casp": "casc"}
"""Names from a later version of the paper."""

TEXTS = ("data", "device", "model.encoder", "plan.solver")
"""Keys whose value is taken as it stands: a file may be called 007."""

RENAMED = {"split.held_out": "the episodes are split in three now: split.validation= and split.test="}
"""Keys of earlier versions, and what to say of them."""

LIKE = "tworooms"
"""The task whose weights a user's own task has where it says nothing."""


def available(kind: str) -> list[str]:
    """The names of the shipped `presets` or `variants`."""
    folder = resources.files("phylatent") / kind
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def compose(
    task: str = "tworooms", preset: str = "laptop", variant: str = "phylatent", overrides: Sequence[str] = ()
) -> Config:
    """The resolved, validated configuration; `overrides` are `key=value` strings as on the command line.

    `task` is a name, or the path of a file that declares one.
    """
    spec = get_task(task)
    method = _shipped("variant", variant)
    method_presets = method.pop("presets", {})
    layers: list[Mapping[str, Any]] = [
        {"task": spec.name, "task_file": task_file(spec.name), "preset": preset, "variant": variant},
        all_tasks()[LIKE].objectives,
        {"collect": {"steps": spec.episode_steps}, **spec.objectives},
        spec.settings,
    ]
    sizes = _extended(preset)
    for name, size in sizes.items():
        layers += [size, spec.presets.get(name, {})]
    layers.append(method)
    for name in sizes:
        said = dict(method_presets.get(name, {}))
        on_this_task = said.pop("tasks", {}).get(spec.name, {})
        layers += [said, on_this_task]
    return _resolve(layers, overrides)


def _extended(preset: str) -> dict[str, dict[str, Any]]:
    """The preset, after those that it extends."""
    size = _shipped("preset", preset)
    base = size.pop("extends", None)
    return (_extended(base) if base else {}) | {preset: size}


def load_config(path: Path, overrides: Sequence[str] = (), task: str | None = None) -> Config:
    """A saved configuration, complete in itself: what tasks and presets say today does not matter to it.

    `task` is where the file that declares the user's own task is now, if it was moved.
    """
    if not path.is_file():
        raise UserError(f"there is no configuration file {path}")
    try:
        saved = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(saved, dict) or not {"task", "preset", "variant"} <= saved.keys():
        raise UserError(f"{path} is not a saved phylatent configuration: task, preset or variant is missing")
    spec = get_task(str(saved["task"]), saved.get("task_file"), now=task)
    return _resolve([_as_today(saved) | {"task_file": task_file(spec.name)}], overrides)


def _as_today(saved: dict[str, Any]) -> dict[str, Any]:
    """A configuration that an earlier version saved: its run had a two-way split, and keeps it."""
    split = saved.get("split")
    if not isinstance(split, dict) or "held_out" not in split:
        return saved
    rest = {name: value for name, value in split.items() if name != "held_out"}
    return saved | {"split": {"validation": 0.0, "test": split["held_out"]} | rest}


def to_dict(config: Config) -> dict[str, Any]:
    """Nested plain values, objectives, encoder and solver at the top level under their names, as on the command line."""
    plain = asdict(config)
    plain["terms"] = list(config.terms)
    plain.update(plain.pop("objectives"))
    settings, solver_settings = plain.pop("encoder"), plain.pop("solver")
    if settings:
        plain[find_encoder(config.model.encoder).name] = settings
    if solver_settings:
        plain[find_solver(config.plan.solver).name] = solver_settings
    return plain


def save_config(config: Config, path: Path) -> None:
    with atomic(path) as temporary:
        temporary.write_text(yaml.safe_dump(to_dict(config), sort_keys=False))


def _shipped(kind: str, name: str) -> dict[str, Any]:
    names = available(f"{kind}s")
    if name not in names:
        raise UserError(unknown(kind, name, names))
    return yaml.safe_load((resources.files("phylatent") / f"{kind}s" / f"{name}.yaml").read_text())


@cache
def _schema(encoders: tuple[str, ...], solvers: tuple[str, ...]) -> type:
    """`Settings` plus a section for every objective, encoder and solver: what OmegaConf checks keys and types against."""
    parts = {**TERMS, **{name: ENCODERS[name] for name in encoders if fields(ENCODERS[name].Settings)}}
    kinds = {name: part.Settings for name, part in parts.items()}
    kinds |= {name: SOLVERS[name].settings for name in solvers if has_settings(SOLVERS[name])}
    sections = [(name, kind, field(default_factory=kind)) for name, kind in kinds.items()]
    return make_dataclass("Schema", sections, bases=(Settings,), frozen=True)


def known_keys() -> list[str]:
    keys = []
    for entry in fields(_schema(tuple(ENCODERS), tuple(SOLVERS))):
        default = entry.default_factory() if callable(entry.default_factory) else None
        keys += [f"{entry.name}.{inner.name}" for inner in fields(default)] if is_dataclass(default) else [entry.name]
    return keys


def _make_writable(node: DictConfig) -> None:
    """All the way down: up to OmegaConf 2.3, which Hydra needs, every section has a flag of its own."""
    OmegaConf.set_readonly(node, False)
    for key in node:
        if not OmegaConf.is_missing(node, key) and isinstance(node[key], DictConfig):
            _make_writable(node[key])


def _resolve(layers: Sequence[Mapping[str, Any]], overrides: Sequence[str]) -> Config:
    _meet_encoder(layers, overrides)
    _meet_solver(layers, overrides)
    chosen = _parse(overrides)
    # The schema is read-only because its dataclasses are frozen; merging needs a writable copy of it.
    merged = OmegaConf.structured(_schema(tuple(ENCODERS), tuple(SOLVERS)))
    _make_writable(merged)
    for layer in [*layers, chosen]:
        for key in _flat(layer):
            _check_known(key)
        try:
            merged = OmegaConf.merge(merged, layer)
        except OmegaConfBaseException as error:
            key = str(getattr(error, "full_key", "") or "")
            raise UserError(f"wrong value for {key}: {str(error).splitlines()[0]}") from error
    return _typed(merged, chosen)


def _meet_encoder(layers: Sequence[Mapping[str, Any]], overrides: Sequence[str]) -> None:
    """An encoder of the user's own brings a section of keys: it must be known before they are read."""
    named = [(layer.get("model") or {}).get("encoder") for layer in layers]
    named += [text for key, _, text in (override.partition("=") for override in overrides) if key == "model.encoder"]
    for name in filter(None, named):
        find_encoder(str(name))


def _meet_solver(layers: Sequence[Mapping[str, Any]], overrides: Sequence[str]) -> None:
    """The same of a solver; its section must be nobody else's."""
    named = [(layer.get("plan") or {}).get("solver") for layer in layers]
    named += [text for key, _, text in (override.partition("=") for override in overrides) if key == "plan.solver"]
    for name in filter(None, named):
        solver = find_solver(str(name))
        if solver.name in {*TERMS, *ENCODERS, *(entry.name for entry in fields(Config))}:
            del SOLVERS[solver.name]
            raise UserError(f"the solver of {name} is called {solver.name!r}, and so is another section; choose another name")


def _solver_settings(resolved: Any, chosen: Mapping[str, Any]) -> Any:
    """The chosen solver's own; what would do nothing with it is refused."""
    solver = find_solver(resolved.plan.solver)
    for name in chosen:
        if name in SOLVERS and name != solver.name:
            raise UserError(f"the solver is {solver.name!r}, so settings of {name!r} would do nothing; plan.solver={name}?")
    for name in chosen.get("plan") or {}:
        if name in solver.unused:
            raise UserError(f"plan.{name} does nothing with the solver {solver.name!r}; leave it out, or choose another solver")
    return getattr(resolved, solver.name, None)


def _typed(merged: Any, chosen: Mapping[str, Any]) -> Config:
    assert isinstance(merged, DictConfig)
    try:
        resolved: Any = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise UserError(f"a value cannot be resolved: {str(error).splitlines()[0]}") from error
    terms = [ALIASES.get(term, term) for term in resolved.terms]
    for term in terms:
        if term not in TERMS:
            raise UserError(unknown("objective", term, list(TERMS)))
    for name in chosen:
        if name in TERMS and name not in terms:
            raise UserError(
                f"variant {resolved.variant!r} does not use {name!r} (it uses {', '.join(terms)}), so its settings would do "
                f"nothing; choose another variant, or add it: terms=[{','.join([*terms, name])}]"
            )
    weights = {name: getattr(resolved, name).weight for name in terms}
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise UserError(f"{name}.weight is {weight}; it must be a number that is not negative")
    active = tuple(name for name in TERMS if weights.get(name, 0) > 0)
    if not active:
        raise UserError("no objective is left: every weight is 0")
    if resolved.devices < 1:
        raise UserError(f"devices is {resolved.devices}; it must be at least 1")
    encoder = find_encoder(resolved.model.encoder).name
    for name in chosen:
        if name in ENCODERS and name != encoder:
            raise UserError(
                f"the model's encoder is {encoder!r}, so settings of {name!r} would do nothing; model.encoder={name}?"
            )
    settings = {entry.name: getattr(resolved, entry.name) for entry in fields(Settings)}
    return Config(
        **{**settings, "terms": active},
        objectives={name: getattr(resolved, name) for name in active},
        encoder=getattr(resolved, encoder, None),
        solver=_solver_settings(resolved, chosen),
    )


def _parse(overrides: Sequence[str]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise UserError(f"{override!r} is not of the form key=value")
        head, *rest = key.split(".")
        head = ALIASES.get(head, head)
        if head in ("task", "task_file", "preset", "variant"):
            raise UserError(f"{head} is chosen by itself, not as an override: it decides what the others start from")
        _check_known(".".join([head, *rest]))
        value = text if ".".join([head, *rest]) in TEXTS else _value(override, text)
        if rest:
            chosen.setdefault(head, {})[rest[0]] = value
        else:
            chosen[head] = value
    return chosen


def _value(override: str, text: str) -> Any:
    try:
        value = yaml.safe_load(text) if text else None
    except yaml.YAMLError as error:
        raise UserError(f"{override!r}: the value cannot be read") from error
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)  # YAML 1.1 takes 5e-4 for a string
    return value


def _flat(layer: Mapping[str, Any]) -> Iterable[str]:
    for key, value in layer.items():
        yield from (f"{key}.{inner}" for inner in value) if isinstance(value, Mapping) else [str(key)]


def _check_known(key: str) -> None:
    known = known_keys()
    if key in known:
        return
    if key in RENAMED:
        raise UserError(f"unknown key {key!r}; {RENAMED[key]}")
    ends = {name.rpartition(".")[2]: name for name in known}
    near = difflib.get_close_matches(key, known, n=1) or [
        ends[end] for end in difflib.get_close_matches(key.rpartition(".")[2], ends, n=1)
    ]
    hint = f"did you mean {near[0]!r}?" if near else f"keys are: {', '.join(known)}"
    raise UserError(f"unknown key {key!r}; {hint}")
