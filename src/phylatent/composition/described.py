"""Every key that there is: its type, its default and what it means, and who says its value in a task, preset and variant."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any

from phylatent.composition.layers import Layer, layers_of
from phylatent.composition.sections import section_types
from phylatent.errors import UserError
from phylatent.schema import CHOICES, Settings, TaskSpec

DEFAULT = "default"
KINDS = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}


@dataclass(frozen=True)
class Setting:
    """One key of the command line."""

    key: str
    kind: str
    """Its type in words: "whole number", "list of texts", "number or null"."""
    default: Any
    meaning: str
    value: Any
    """In the task, preset and variant that were asked about."""
    said_by: str = DEFAULT
    """Who says that value: "preset laptop"."""
    choices: tuple[str, ...] = ()
    """All that it may be, where that is a short list."""


def describe(spec: TaskSpec, preset: str, variant: str, prefix: str = "") -> list[Setting]:
    """Every key that begins with the prefix, in the order of the schema, with its value in this task, preset and variant."""
    layers = layers_of(spec, preset, variant)
    found = [setting for setting in _settings(layers) if setting.key.startswith(prefix)]
    if not found:
        sections = sorted({setting.key.partition(".")[0] for setting in _settings(layers)})
        raise UserError(f"no key begins with {prefix!r}; they begin with {', '.join(sections)}")
    return found


def _settings(layers: Sequence[Layer]) -> list[Setting]:
    said = _said(layers)
    described = []
    for section, settings in {"": Settings, **section_types(layers)}.items():
        meanings = field_meanings(settings)
        for entry in fields(settings):
            key = f"{section}.{entry.name}" if section else entry.name
            if is_dataclass(_default(entry)) or key == "task_file":
                continue  # a section, which has its own turn; where a task is declared is not for the user to say
            default = _default(entry)
            value, by = said.get(key, (default, DEFAULT))
            choices = CHOICES.get(key, ())
            described.append(Setting(key, _kind(str(entry.type)), default, meanings.get(entry.name, ""), value, by, choices))
    return described


def _said(layers: Sequence[Layer]) -> dict[str, tuple[Any, str]]:
    """Key → the value of the last layer that says it, and that layer."""
    said: dict[str, tuple[Any, str]] = {}
    for layer in layers:
        for name, value in layer.says.items():
            items = {f"{name}.{inner}": item for inner, item in value.items()} if isinstance(value, Mapping) else {name: value}
            said |= {key: (item, layer.label) for key, item in items.items()}
    return said


@cache
def field_meanings(settings: type) -> Mapping[str, str]:
    """Field of a dataclass → the text below it in the source, its own or a base class's."""
    meanings: dict[str, str] = {}
    for kind in reversed(settings.__mro__):
        if kind is object or not is_dataclass(kind) or "make_dataclass" in str(kind.__module__):
            continue
        declared = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(declared, ast.ClassDef)
        for entry, below in zip(declared.body, declared.body[1:], strict=False):
            match entry, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    meanings[name] = " ".join(text.split())
    return meanings


def _default(entry: Any) -> Any:
    if entry.default_factory is not MISSING:
        return entry.default_factory()
    return None if entry.default is MISSING else entry.default


def _kind(annotation: str) -> str:
    """`tuple[int, ...]` → "list of whole numbers", `float | None` → "number or null"."""
    if annotation.endswith(" | None"):
        return f"{_kind(annotation.removesuffix(' | None'))} or null"
    if annotation.startswith("tuple["):
        return f"list of {KINDS.get(annotation[6:].partition(',')[0], 'value')}s"
    return KINDS.get(annotation, annotation)
