"""A user's own task: declared in a file anywhere, or in an installed package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from phylatent.errors import UserError
from phylatent.own_files import import_file
from phylatent.schema import TaskSpec
from phylatent.tasks.declaration import check_declaration

GUIDE = "docs/own-task.md shows a whole one"


def load_task_file(path: Path) -> TaskSpec:
    """The checked `TASK` of a file; whatever is wrong with it is one sentence."""
    module = import_file(path, "a task file", "task=", GUIDE)
    if not hasattr(module, "TASK"):
        raise UserError(f"{path} declares no TASK; add TASK = TaskSpec(name=…, …) to it; {GUIDE}")
    return replace(checked_task(module.TASK, str(path)), file=str(path.resolve()))


def checked_task(found: Any, where: str) -> TaskSpec:
    """What a file or an entry point gave, if it is a declaration that can be used."""
    if not isinstance(found, TaskSpec):
        raise UserError(f"TASK of {where} is of type {type(found).__name__}; it must be a phylatent.schema.TaskSpec; {GUIDE}")
    check_declaration(found, where)
    return found
