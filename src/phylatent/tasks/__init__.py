"""The tasks. A module beside this one that declares a `TASK` is one; that is all it takes to add one.

A user's own task is declared outside: in a file named by `task=path/to/file.py` or listed in $PHYLATENT_TASKS, or in an
installed package with an entry point in the group `phylatent.tasks`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from phylatent.errors import UserError, unknown
from phylatent.own_files import is_path
from phylatent.schema import TaskSpec
from phylatent.tasks.own import checked_task, load_task_file
from phylatent.trust import allow

GROUP = "phylatent.tasks"
VARIABLE = "PHYLATENT_TASKS"


@dataclass(frozen=True)
class OwnTask:
    """A user's task that this process knows."""

    task: TaskSpec
    file: Path | None
    """Where it is declared; None for one of an installed package."""
    given: bool
    """Whether the user said where it is now: that stands above what a saved configuration remembers."""


_own: dict[str, OwnTask] = {}


@cache
def all_tasks() -> dict[str, TaskSpec]:
    """The tasks that come with phylatent, by name."""
    names = [info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")]
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    return {module.TASK.name: module.TASK for module in modules if hasattr(module, "TASK")}


def get_task(name: str) -> TaskSpec:
    """The task that the user names, or whose file the user names by its path."""
    if is_path(name):
        allow(name)
        return add_task_file(Path(name))
    return _find(name)


def saved_task(name: str, recorded: str | None = None, now: str | None = None) -> TaskSpec:
    """The task that a saved file names. It is a hint, not a wish: no code is run because a file says so (trust.py).

    `recorded` is where the file says that the task is declared, `now` where the user says that it is.
    """
    if now is not None:
        allow(now)
        return _expect(name, add_task_file(Path(now), given=True), now)
    if is_path(name):
        raise UserError(f"its task is said to be {name!r}, a path where a name should be; if you trust it, give task={name}")
    return _find(name, recorded)


def _find(name: str, recorded: str | None = None) -> TaskSpec:
    if name in all_tasks():
        _check_not_installed_too(name)
        return all_tasks()[name]
    for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        allow(path)
        add_task_file(Path(path), given=True)
    known = _own.get(name)
    if known is not None and (recorded is None or known.given or known.file == Path(recorded)):
        return known.task
    return _installed(name) if recorded is None else _recorded(name, Path(recorded))


def add_task_file(path: Path, *, given: bool = False) -> TaskSpec:
    """Make the task of a file known to this process."""
    path = path.expanduser()
    task, file = load_task_file(path), path.resolve()
    if task.name in all_tasks():
        raise UserError(f"{path} calls its task {task.name!r}, which is the name of a task of phylatent's own; choose another")
    known, installed = _own.get(task.name), _entry_points().get(task.name)
    if installed is not None and _module_file(installed) != file:
        raise UserError(
            f"{path} calls its task {task.name!r}, and so does the installed {_package(installed)}; choose another name, "
            f"or leave out the file: task={task.name}"
        )
    if known is not None and known.file not in (None, file) and (known.given or not given):
        raise UserError(f"{known.file} and {file} both call their task {task.name!r}; give one of them another name")
    if known is not None and known.file == file:
        task = known.task  # one object for all who ask
    _own[task.name] = OwnTask(task, file, given)
    return task


def _recorded(name: str, file: Path) -> TaskSpec:
    if not file.is_file():
        raise UserError(
            f"task {name!r} was declared in {file}, which is not there any more; say where it is now with "
            f"task=path/to/{file.name}, or list it in ${VARIABLE}"
        )
    return _expect(name, add_task_file(file), str(file))


def _expect(name: str, task: TaskSpec, where: str) -> TaskSpec:
    if task.name != name:
        raise UserError(
            f"{where} declares task {task.name!r}, but {name!r} is wanted here; name the file that declares that one"
        )
    return task


def _installed(name: str) -> TaskSpec:
    found = _entry_points().get(name)
    if found is None:
        sentence = unknown("task", name, [*all_tasks(), *_own, *_entry_points()])
        own = "" if "did you mean" in sentence else "; a task of your own is named by its file: task=path/to/file.py"
        raise UserError(sentence + own)
    where = f"{_package(found)} ({found.value})"
    try:
        declared = found.load()
    except Exception as error:  # someone else's package: it can raise anything
        raise UserError(f"task {name!r} of {where} cannot be imported: {type(error).__name__}: {error}; mend it") from error
    task = checked_task(declared, where)
    if task.name != name:
        raise UserError(f"the entry point {name!r} of {where} leads to a task called {task.name!r}; give both the same name")
    _own[name] = OwnTask(task, None, given=False)
    return task


@cache
def _entry_points() -> Mapping[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise UserError(
                f"{_package(other)} and {_package(point)} both bring a task {point.name!r} ({other.value} and {point.value}); "
                "uninstall one of them"
            )
    return found


def _check_not_installed_too(name: str) -> None:
    if name in _entry_points():
        raise UserError(
            f"{_package(_entry_points()[name])} brings a task {name!r}, which is the name of a task of phylatent's own; "
            "rename it there, or uninstall that package"
        )


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name}" if point.dist is not None else f"entry point {point.value}"


def _module_file(point: EntryPoint) -> Path | None:
    try:
        spec = importlib.util.find_spec(point.module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None
