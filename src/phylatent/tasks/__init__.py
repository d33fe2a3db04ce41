"""The tasks: each module beside this one declares one `TASK`, and that is all it takes to add one."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache

from phylatent.errors import UserError
from phylatent.schema import TaskSpec


@cache
def all_tasks() -> dict[str, TaskSpec]:
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    return {module.TASK.name: module.TASK for module in modules}


def get_task(name: str) -> TaskSpec:
    tasks = all_tasks()
    if name not in tasks:
        raise UserError(unknown("task", name, list(tasks)))
    return tasks[name]


def unknown(kind: str, name: str, known: list[str]) -> str:
    """The sentence for a name that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
    return f"unknown {kind} {name!r}; {hint}"
