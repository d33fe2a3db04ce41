"""Task files outside the package, imported by path under names that any process can import again.

Pickle refers to a function by its module's name, and a spawned process imports that name. So the name of a task file's module
holds the file's path, and lies in this package: whoever imports it imports the package first, which knows how to find it.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from phylatent.errors import UserError
from phylatent.schema import TaskSpec
from phylatent.task_files.declaration import check_declaration

GUIDE = "docs/own-task.md shows a whole one"


def is_task_file(text: str) -> bool:
    """Whether `task=` means a file rather than a name."""
    return text.endswith(".py") or "/" in text or "\\" in text


def load_task_file(path: Path) -> TaskSpec:
    """The checked `TASK` of a file; whatever is wrong with it is one sentence."""
    module = import_file(path, "a task file", "task=")
    if not hasattr(module, "TASK"):
        raise UserError(f"{path} declares no TASK; add TASK = TaskSpec(name=…, …) to it; {GUIDE}")
    return checked_task(module.TASK, str(path))


def import_file(path: Path, what: str, key: str) -> ModuleType:
    """A user's Python file as a module that spawned processes can import, too."""
    if not path.is_file():
        raise UserError(f"there is no {what.partition(' ')[2]} {path}; check the path in {key}")
    if path.suffix != ".py":
        raise UserError(f"{path} is not {what}: one is a Python file, *.py; check the path in {key}")
    return _import(path.resolve())


def checked_task(found: Any, where: str) -> TaskSpec:
    if not isinstance(found, TaskSpec):
        raise UserError(f"TASK of {where} is of type {type(found).__name__}; it must be a phylatent.schema.TaskSpec; {GUIDE}")
    check_declaration(found, where)
    return found


def module_name(path: Path) -> str:
    return f"{__name__}.{path.stem.replace('.', '_')}_{str(path).encode().hex()}"


class TaskFileFinder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        parent, _, name = fullname.rpartition(".")
        if parent != __name__:
            return None
        try:
            file = Path(bytes.fromhex(name.rpartition("_")[2]).decode())
        except ValueError:
            return None
        return spec_from_file_location(fullname, file) if file.is_file() else None


sys.meta_path.append(TaskFileFinder())


def _import(path: Path) -> ModuleType:
    try:
        return importlib.import_module(module_name(path))
    except SyntaxError as error:
        raise UserError(f"{path} is not valid Python: line {error.lineno}: {error.msg}; mend it and run again") from error
    except Exception as error:  # the file is the user's: it can raise anything
        raise UserError(_told(path, error)) from error


def _told(path: Path, error: Exception) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"{path}, line {lines[-1]}" if lines else str(path)
    said = " ".join(str(error).split())
    _, asked, missing = said.partition("missing ")
    if isinstance(error, TypeError) and said.startswith("TaskSpec.") and asked:
        return f"the TaskSpec in {where} is incomplete: it lacks {missing.partition(': ')[2]}; {GUIDE}"
    return f"{where} cannot be imported: {type(error).__name__}: {said}; mend it and run again (--debug shows more)"
