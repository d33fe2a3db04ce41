"""The sections of keys that a configuration can have, and layers merged into them.

Objectives, encoders and solvers bring a section each, and torch: they are imported when their sections are needed, and what
can be told without them is told before.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from phylatent.composition.layers import Layer
from phylatent.errors import UserError
from phylatent.schema import Settings

ALIASES = {"svip": "svic", "casp": "casc", "terms": "objectives"}
"""Names from a later version of the paper, and of our own from an earlier one."""

RENAMED = {"split.held_out": "the episodes are split in three now: split.validation= and split.test="}
"""Keys of earlier versions, and what to say of them."""

Parts = Mapping[str, type]
"""Objectives, encoders and solvers: section of keys → the dataclass of its settings."""


def resolve(layers: Sequence[Layer]) -> Any:
    """The layers merged, every key and type checked: an object with the fields of `Settings` and one for each section."""
    for layer in layers:
        _check_texts(layer.says, layer)
    _check_settings(layers)
    schema = _schema(tuple(_parts(layers).items()))
    known = _keys(schema)
    for layer in layers:
        for key in _flat(layer.says):
            if key not in known:
                raise UserError(_unknown(key, known, layer.source))
        _check_flags(layer, schema)
    merged = _merge(schema, layers)
    try:
        return OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise UserError(f"a value cannot be resolved: {str(error).splitlines()[0]}") from error


def _check_texts(value: Any, layer: Layer, key: str = "") -> None:
    """An error for a value that OmegaConf would leave out (???), or ask the machine for (${oc.env:HOME}).

    A value may refer to another key's, unless it was resolved long ago.
    """
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise UserError(f"{_where(layer)}{name!r} is no key; a key is a text")
            _check_texts(item, layer, f"{key}.{name}" if key else name)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_texts(item, layer, key)
    elif isinstance(value, str):
        if value == "???":
            raise UserError(f"{_where(layer)}{key} is ???; give it a value, or leave it out")
        _, refers, rest = value.partition("${")
        if refers and (layer.final or ":" in rest):
            raise UserError(
                f"{_where(layer)}{key} is {value!r}; it may not ask for values from elsewhere: write the value itself"
            )


@cache
def flags(schema: type) -> frozenset[str]:
    """The keys that are true or false."""
    kinds = ((f"{name}.{entry.name}", entry.type) for name, section in _sections(schema) for entry in fields(section))
    return frozenset(key for key, kind in kinds if kind in ("bool", bool))


def _check_flags(layer: Layer, schema: type) -> None:
    """An error for a number where true or false is meant: OmegaConf would take any but 0 for true."""
    for name, section in layer.says.items():
        for inner, value in section.items() if isinstance(section, Mapping) else ():
            if f"{name}.{inner}" in flags(schema) and isinstance(value, (int, float)) and not isinstance(value, bool):
                raise UserError(f"{_where(layer)}{name}.{inner} is {value}; it must be true or false")


def _where(layer: Layer) -> str:
    return f"{layer.source}: " if layer.source else ""


def check_form(key: str) -> None:
    """An error for a section without a setting, and for a setting that is no section: `train=3`, `seed.steps=3`."""
    known, (head, dot, _) = _keys(Settings), key.partition(".")
    if (head in known) == bool(dot):
        near = difflib.get_close_matches(key, known, n=1)
        raise UserError(_unknown(key, known if near else known_keys()))


def section_types(layers: Sequence[Layer]) -> dict[str, type]:
    """Section of keys → the dataclass of its settings, of those that are shipped and that the layers name."""
    return dict(_sections(_schema(tuple(_parts(layers).items()))))


def plain_keys() -> tuple[str, ...]:
    """The keys that can be told without torch: those of no objective, encoder or solver."""
    return tuple(key for key in _keys(Settings) if key != "task_file")


def known_keys() -> tuple[str, ...]:
    """Every key there is without parts of the user's own."""
    return _keys(_schema(tuple(_parts([]).items())))


def _check_settings(layers: Sequence[Layer]) -> None:
    """What can be told without objectives and encoders. What cannot, and what is doubtful, is told later."""
    known, sections = _keys(Settings), {entry.name for entry in fields(Settings)}
    doubtful = False
    for layer in layers:
        for key in _flat(layer.says):
            if key.partition(".")[0] in sections and key not in known:
                doubtful = True
                if key in RENAMED or difflib.get_close_matches(key, known, n=1):
                    raise UserError(_unknown(key, known, layer.source))
    if not doubtful:
        plain = [Layer({key: layer.says[key] for key in layer.says if key in sections}, layer.source) for layer in layers]
        with contextlib.suppress(OmegaConfBaseException):  # a value may refer to an objective's
            OmegaConf.to_object(_merge(Settings, plain))


def _parts(layers: Sequence[Layer]) -> Parts:
    """The sections that are shipped, and those of the user's own objectives, encoders and solvers that the layers name."""
    from phylatent.models import encoders
    from phylatent.objectives import OBJECTIVES, SHIPPED, find_objective
    from phylatent.planning import solvers

    kinds: list[Any] = [OBJECTIVES[name] for name in SHIPPED]
    kinds += [encoders.ENCODERS[name] for name in encoders.SHIPPED]
    kinds += [solvers.SOLVERS[name] for name in solvers.SHIPPED]
    solver: str | None = None
    for layer in layers:
        objectives, model, plan = (layer.says.get(name) for name in ("objectives", "model", "plan"))
        if isinstance(objectives, (list, tuple)):
            kinds += [find_objective(ALIASES.get(str(name), str(name))) for name in objectives]
        if isinstance(model, Mapping) and model.get("encoder"):
            kinds.append(encoders.find_encoder(str(model["encoder"])))
        if isinstance(plan, Mapping) and plan.get("solver"):
            solver = str(plan["solver"])
    if solver is not None:  # the last one that is named: what it replaces may be far away by now
        kinds.append(solvers.find_solver(solver))
    taken = {*ALIASES, *(entry.name for entry in fields(Settings))}
    found: dict[str, Any] = {}
    for kind in kinds:
        if kind.name in taken or found.setdefault(kind.name, kind) is not kind:
            named = getattr(kind, "__qualname__", f"the {type(kind).__name__}")
            raise UserError(f"there are settings called {kind.name!r} already; give {named} another name")
        _check_readable(kind.name, kind.Settings)
    return {name: kind.Settings for name, kind in found.items() if fields(kind.Settings)}


@cache
def _check_readable(name: str, settings: type) -> None:
    """An error unless the command line can set the settings of an objective, encoder or solver."""
    try:
        OmegaConf.structured(settings())
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        said = " ".join(str(error).split())
        raise UserError(f"settings of {name!r} cannot be used; each needs a plain type and a default: {said}") from error


@cache
def _schema(parts: tuple[tuple[str, type], ...]) -> type:
    """`Settings` plus a section for every part: what OmegaConf checks keys and types against."""
    sections = [(name, settings, field(default_factory=settings)) for name, settings in parts]
    return make_dataclass("Schema", sections, bases=(Settings,), frozen=True)


@cache
def _sections(schema: type) -> tuple[tuple[str, type], ...]:
    """The fields that are sections, and the dataclass of each."""
    made = ((entry.name, entry.default_factory()) for entry in fields(schema) if callable(entry.default_factory))
    return tuple((name, type(default)) for name, default in made if is_dataclass(default))


@cache
def _keys(schema: type) -> tuple[str, ...]:
    sections, keys = dict(_sections(schema)), []
    for entry in fields(schema):
        section = sections.get(entry.name)
        keys += [entry.name] if section is None else [f"{entry.name}.{inner.name}" for inner in fields(section)]
    return tuple(keys)


def _make_writable(node: DictConfig) -> None:
    """All the way down: up to OmegaConf 2.3, which Hydra needs, every section has a flag of its own."""
    OmegaConf.set_readonly(node, False)
    for key in node:
        if not OmegaConf.is_missing(node, key) and isinstance(node[key], DictConfig):
            _make_writable(node[key])


@cache
def _defaults(schema: type) -> DictConfig:
    """Read-only, as its dataclasses are frozen; merging needs a writable one."""
    defaults = OmegaConf.structured(schema)
    assert isinstance(defaults, DictConfig)
    _make_writable(defaults)
    return defaults


def _merge(schema: type, layers: Sequence[Layer]) -> DictConfig:
    merged = copy.deepcopy(_defaults(schema))
    for layer in layers:
        try:
            merged.merge_with(layer.says)
        except OmegaConfBaseException as error:
            key = str(getattr(error, "full_key", "") or "")
            raise UserError(f"{_where(layer)}wrong value for {key}: {str(error).splitlines()[0]}") from error
    return merged


def _flat(says: Mapping[str, Any]) -> Iterable[str]:
    for key, value in says.items():
        yield from (f"{key}.{inner}" for inner in value) if isinstance(value, Mapping) else [str(key)]


def _unknown(key: str, known: Sequence[str], source: str = "") -> str:
    where = f"{source}: " if source else ""
    if key in RENAMED:
        return f"{where}unknown key {key!r}; {RENAMED[key]}"
    ends = {name.rpartition(".")[2]: name for name in known}
    near = difflib.get_close_matches(key, known, n=1) or [
        ends[end] for end in difflib.get_close_matches(key.rpartition(".")[2], ends, n=1)
    ]
    hint = f"did you mean {near[0]!r}?" if near else f"keys are: {', '.join(known)}"
    return f"{where}unknown key {key!r}; {hint}"
