"""A user's Python file, imported by its path under a name that any process can import again.

Pickle refers to a function by its module's name, and a spawned process imports that name. So the name of such a module holds
the file's path, and lies below this one: whoever imports it imports this module first, which knows how to find it.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from phylatent.errors import UserError

__path__: list[str] = []  # modules lie below this one, and the finder knows where


def is_path(text: str) -> bool:
    """Whether what a key was given means a file rather than a name."""
    return text.endswith(".py") or "/" in text or "\\" in text


def import_file(path: Path, what: str, key: str, guide: str = "") -> ModuleType:
    """The file as a module that spawned processes can import, too; whatever is wrong with it is one sentence.

    `what` is what the file should be ("a task file"), `key` where it was named, `guide` where a whole one is shown.
    """
    if not path.is_file():
        raise UserError(f"there is no {what.partition(' ')[2]} {path}; check the path in {key}")
    if path.suffix != ".py":
        raise UserError(f"{path} is not {what}: one is a Python file, *.py; check the path in {key}")
    return _import(path.resolve(), guide)


def find_own(kind: str, name: str, known: Mapping[str, Any], *, group: str, attribute: str, key: str, guide: str) -> Any:
    """What a name given to `key` stands for: one that is known, or one of the user's own, which the caller is to check.

    That is what the file of this path declares as `attribute`, or an installed package's entry point of this name in `group`.
    `kind` comes with its article ("a solver"); `guide` says where a whole one is shown.
    """
    if name in known:
        return known[name]
    what = kind.partition(" ")[2]
    if is_path(name):
        module = import_file(Path(name).expanduser(), f"{kind} file", key, guide)
        if not hasattr(module, attribute):
            raise UserError(f"{name} declares no {attribute}; add {attribute} = … to it; {guide}")
        return getattr(module, attribute)
    found = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        raise UserError(
            f"unknown {what} {name!r}; known: {', '.join(known)}; one of your own is named by its file: {key}path/to/file.py"
        )
    try:
        return found[0].load()
    except Exception as error:  # someone else's package: it can raise anything
        raise UserError(f"{what} {name!r} ({found[0].value}) cannot be imported: {type(error).__name__}: {error}") from error


def module_name(path: Path) -> str:
    return f"{__name__}.{path.stem.replace('.', '_')}_{str(path).encode().hex()}"


class OwnFileFinder(MetaPathFinder):
    """Finds the file again whose path a module's name holds."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        parent, _, name = fullname.rpartition(".")
        if parent != __name__:
            return None
        try:
            file = Path(bytes.fromhex(name.rpartition("_")[2]).decode())
        except ValueError:
            return None
        return spec_from_file_location(fullname, file) if file.is_file() else None


sys.meta_path.append(OwnFileFinder())


def _import(path: Path, guide: str) -> ModuleType:
    try:
        return importlib.import_module(module_name(path))
    except SyntaxError as error:
        raise UserError(f"{path} is not valid Python: line {error.lineno}: {error.msg}; mend it and run again") from error
    except Exception as error:  # the file is the user's: it can raise anything
        raise UserError(_sentence(path, error, guide)) from error


def _sentence(path: Path, error: Exception, guide: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"{path}, line {lines[-1]}" if lines else str(path)
    said = " ".join(str(error).split())
    made, asked, missing = said.partition("missing ")
    if isinstance(error, TypeError) and made.startswith("TaskSpec.") and asked:
        return f"the TaskSpec in {where} is incomplete: it lacks {missing.partition(': ')[2]}; {guide}"
    return f"{where} cannot be imported: {type(error).__name__}: {said}; mend it and run again (--debug shows more)"
