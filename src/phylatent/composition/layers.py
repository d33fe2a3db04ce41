"""What tasks, presets and variants say of a configuration, in layers: the later one wins.

defaults ← task ← preset ← the task's overrides for that preset ← variant ← the variant's overrides for that preset, and for
that preset on that task. The command line comes on top (composition/__init__.py).

Presets and variants are YAML files in `presets/` and `variants/`. A user's own one is a file anywhere, named by its path
(`variant=path/to/mine.yaml` is called `mine`), or an installed package brings it, by an entry point in the group
`phylatent.presets` or `phylatent.variants` that leads to a dictionary or to the path of such a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from phylatent.errors import UserError, unknown
from phylatent.own_files import installed, is_path, load, origin
from phylatent.reading import Unreadable, parse_yaml, read_text
from phylatent.schema import TaskSpec
from phylatent.tasks import all_tasks
from phylatent.trust import allow

LIKE = "tworooms"
"""The task whose weights a user's own task has where it says nothing."""
KINDS = ("preset", "variant")
RESERVED = ("task", "task_file", "preset", "variant")
"""What a run is, not how it is done: no layer may change it."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Layer:
    says: Mapping[str, Any]
    """Nested as on the command line."""
    source: str = ""
    """The user's file that says it, for the sentence about a mistake in it."""
    label: str = ""
    """Who says it, for whoever asks why a key has its value: "preset laptop"."""
    final: bool = False
    """Whether it was resolved before it was saved: it refers to nothing."""


@dataclass(frozen=True)
class Definition:
    """A preset or a variant."""

    name: str
    says: dict[str, Any]
    source: str = ""
    folder: Path | None = None
    """What paths in it are relative to."""


def available(kind: str) -> list[str]:
    """The names of the shipped `presets` or `variants`."""
    folder = resources.files("phylatent") / kind
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def is_known(kind: str, name: str) -> bool:
    """Whether a preset or variant can be found under its name, or by its path."""
    return is_path(name) or name in available(f"{kind}s") or name in installed(f"phylatent.{kind}s", kind)


def layers_of(spec: TaskSpec, preset: str, variant: str) -> list[Layer]:
    """All that is said about a run on this task before the command line says more."""
    sizes, methods = _extended("preset", preset), _extended("variant", variant)
    names = {"task": spec.name, "task_file": spec.file, "preset": sizes[-1].name, "variant": methods[-1].name}
    task, file = f"task {spec.name}", spec.file or ""
    layers = [
        Layer(names, label="the choice"),
        Layer(all_tasks()[LIKE].objectives, label=f"task {LIKE}"),
        Layer({"collect": {"steps": spec.episode_steps}, **spec.objectives}, file, task),
        Layer(spec.settings, file, task),
    ]
    for size in sizes:
        preset = f"preset {size.name}"
        layers += [Layer(size.says, size.source, preset), Layer(spec.presets.get(size.name, {}), file, f"{task} in {preset}")]
    for method in methods:
        variant = f"variant {method.name}"
        in_presets = _mapping(method.says.pop("presets", {}), "presets", method.source)
        layers.append(Layer(method.says, method.source, variant))
        for size in sizes:
            said = dict(_mapping(in_presets.get(size.name, {}), f"presets.{size.name}", method.source))
            tasks = _mapping(said.pop("tasks", {}), f"presets.{size.name}.tasks", method.source)
            there = _mapping(tasks.get(spec.name, {}), f"presets.{size.name}.tasks.{spec.name}", method.source)
            where = f"{variant} in preset {size.name}"
            layers += [Layer(said, method.source, where), Layer(there, method.source, f"{where} on {task}")]
    return layers


def _extended(kind: str, name: str, above: tuple[str, ...] = (), folder: Path | None = None) -> list[Definition]:
    """The preset or variant, after those that it extends."""
    found = _find(kind, name, folder)
    if found.name in above:
        raise UserError(f"{found.source or found.name} extends itself, by way of {', '.join(above)}; take out one `extends:`")
    base = found.says.pop("extends", None)
    if base is None:
        return [found]
    if not isinstance(base, str):
        raise UserError(f"{found.source}: extends is {base!r}; it must be the name or the path of one {kind}")
    return [*_extended(kind, base, (*above, found.name), found.folder), found]


def _find(kind: str, name: str, folder: Path | None) -> Definition:
    """By the path of a file, by a shipped name, or by the name of an entry point."""
    if is_path(name):
        return _in_file(kind, (folder or Path()) / Path(name).expanduser())
    points = installed(f"phylatent.{kind}s", kind)
    if name in available(f"{kind}s"):
        if name in points:
            where = origin(points[name])
            raise UserError(f"{where} brings a {kind} {name!r}, which is the name of one of phylatent's own; rename it there")
        text = (resources.files("phylatent") / f"{kind}s" / f"{name}.yaml").read_text()
        return Definition(name, yaml.safe_load(text))
    if name not in points:
        sentence = unknown(kind, name, [*available(f"{kind}s"), *points])
        own = "" if "did you mean" in sentence else f"; one of your own is named by its file: {kind}=path/to/file.yaml"
        raise UserError(sentence + own)
    where, found = origin(points[name]), load(points[name], kind)
    if isinstance(found, (str, os.PathLike)):
        path = Path(found)
        says = _read(kind, path)
        for named in paths_in(says):  # what an installed package names is as good as the package
            allow(named)
        return Definition(name, says, str(path), path.parent)
    if not isinstance(found, Mapping):
        raise UserError(
            f"{kind} {name!r} of {where} is of type {type(found).__name__}; it must be a dictionary, or the path of a YAML file"
        )
    return Definition(name, _checked(kind, dict(found), where), where)


def _in_file(kind: str, path: Path) -> Definition:
    says, name = _read(kind, path), path.stem
    if not NAME.fullmatch(name):
        raise UserError(f"{path}: its name becomes part of directory names; use letters, digits, _, . and - only")
    if name in available(f"{kind}s") or name in installed(f"phylatent.{kind}s", kind):
        owner = "phylatent's own" if name in available(f"{kind}s") else "an installed package"
        raise UserError(f"{path} would be a {kind} called {name!r}, which is the name of one of {owner}; rename the file")
    return Definition(name, says, str(path), path.parent)


def _read(kind: str, path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"there is no {kind} file {path}; check the path in {kind}=")
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(f"{path} is not a {kind} file: one is a YAML file, *.yaml; check the path in {kind}=")
    shape = f"a {kind} is a mapping of keys, such as `train: {{steps: 300}}`"
    try:
        said = parse_yaml(read_text(path, again=shape))
    except Unreadable as error:
        raise UserError(f"{path} is not YAML: {error}") from error
    if not isinstance(said, dict):
        raise UserError(f"{path} is {'empty' if said is None else f'a {type(said).__name__}'}; {shape}")
    return _with_paths(_checked(kind, said, str(path)), path.parent)


def _checked(kind: str, said: dict[str, Any], where: str) -> dict[str, Any]:
    for key in RESERVED:
        if key in said:
            raise UserError(f"{where}: a {kind} cannot say what {key} is; take it out, and choose it on the command line")
    return dict(said)


def _with_paths(said: dict[str, Any], folder: Path) -> dict[str, Any]:
    """With objectives, encoder and solver of the user's own in full, which the file names by paths relative to itself."""

    def place(value: Any) -> Any:
        return str(folder / Path(value).expanduser()) if isinstance(value, str) and is_path(value) else value

    if isinstance(said.get("objectives"), list):
        said = said | {"objectives": [place(name) for name in said["objectives"]]}
    if isinstance(said.get("model"), dict) and "encoder" in said["model"]:
        said = said | {"model": said["model"] | {"encoder": place(said["model"]["encoder"])}}
    if isinstance(said.get("plan"), dict) and "solver" in said["plan"]:
        said = said | {"plan": said["plan"] | {"solver": place(said["plan"]["solver"])}}
    return said


def paths_in(said: Mapping[str, Any]) -> list[str]:
    """The files of objectives, encoder and solver that a layer names by their paths."""
    objectives, model, plan = (said.get(name) for name in ("objectives", "model", "plan"))
    named = list(objectives) if isinstance(objectives, (list, tuple)) else []
    named += [model.get("encoder")] if isinstance(model, Mapping) else []
    named += [plan.get("solver")] if isinstance(plan, Mapping) else []
    return [name for name in named if isinstance(name, str) and is_path(name)]


def _mapping(value: Any, key: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: {key} is {value!r}; it must be a mapping of keys")
    return value
