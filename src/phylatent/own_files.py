"""What a user adds without touching the package: a Python file, named by its path, or an installed package's entry point.

A file is imported under a name that any process can import again, and only where its code may run (trust.py).

Pickle refers to a function by its module's name, and a spawned process imports that name. So the name of such a module holds
the file's path, and lies below this one: whoever imports it imports this module first, which knows how to find it.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from phylatent.errors import UserError, unknown
from phylatent.trust import check_allowed, remember

__path__: list[str] = []  # modules lie below this one, and the finder knows where


def is_path(text: str) -> bool:
    """Whether what a key was given means a file rather than a name."""
    return text.endswith((".py", ".yaml", ".yml")) or "/" in text or "\\" in text


@dataclass(frozen=True)
class OwnKind:
    """A kind of part that users may bring their own of."""

    noun: str
    """With its article: "an encoder"."""
    constant: str
    """What a file declares it as: ENCODER."""
    key: str
    """Where its path is given: model.encoder=."""
    group: str
    """Of the entry points that bring one."""
    guide: str
    """Where a whole one is shown."""

    def find(self, name: str, known: Iterable[str]) -> tuple[Any, str]:
        """What the file of that path declares, or what the entry point of that name leads to; and where that was."""
        if is_path(name):
            path = Path(name).expanduser()
            module = import_file(path, f"{self.noun} file", self.key, self.guide)
            if not hasattr(module, self.constant):
                raise UserError(f"{path} declares no {self.constant}; add {self.constant} = YourClass to it; {self.guide}")
            return getattr(module, self.constant), str(path)
        noun = self.noun.partition(" ")[2]
        point = installed(self.group, noun).get(name)
        if point is None:
            sentence = unknown(noun, name, [*known, *installed(self.group, noun)])
            own = "" if "did you mean" in sentence else f"; one of your own is named by its file: {self.key}path/to/file.py"
            raise UserError(sentence + own)
        found = load(point, noun)
        if getattr(found, "name", name) != name:
            called = f"{self.noun} called {found.name!r}"
            raise UserError(f"the entry point {name!r} of {origin(point)} leads to {called}; give both the same name")
        return found, origin(point)


@cache
def installed(group: str, noun: str) -> dict[str, EntryPoint]:
    """What installed packages bring, by name; a name can belong to one of them only."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            both = f"{origin(other)} and {origin(point)}"
            raise UserError(f"{both} bring different things as {noun} {point.name!r}; uninstall one of them")
    return found


def load(point: EntryPoint, noun: str) -> Any:
    """What an entry point leads to; whatever is wrong with it is one sentence."""
    try:
        return point.load()
    except UserError:
        raise
    except Exception as error:  # someone else's package: it can raise anything
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(f"{noun} {point.name!r} of {origin(point)} cannot be imported: {said}; mend it") from error


def origin(point: EntryPoint) -> str:
    package = f"package {point.dist.name}" if point.dist is not None else "an installed package"
    return f"{package} ({point.value})"


def import_file(path: Path, what: str, key: str, guide: str = "") -> ModuleType:
    """The file as a module that spawned processes can import, too; whatever is wrong with it is one sentence.

    It is not imported unless the user named it. `what` is what the file should be ("a task file"), `key` where it is named,
    `guide` where a whole one is shown.
    """
    if not path.is_file():
        raise UserError(f"there is no {what.partition(' ')[2]} {path}; check the path in {key}")
    if path.suffix != ".py":
        raise UserError(f"{path} is not {what}: one is a Python file, *.py; check the path in {key}")
    check_allowed(path, "task=" if key == "task=" else "trust=")
    module = _import(path.resolve(), guide)
    remember(path)
    return module


def module_name(path: Path) -> str:
    return f"{__name__}.{path.stem.replace('.', '_')}_{str(path).encode().hex()}"


class SourceOnly(SourceFileLoader):
    """Runs the text that the user can read: compiled code may lie beside it, and be of something else."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


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
        if not file.is_file():
            return None
        return spec_from_file_location(fullname, file, loader=SourceOnly(fullname, str(file)))


sys.meta_path.append(OwnFileFinder())


def _import(path: Path, guide: str) -> ModuleType:
    try:
        return importlib.import_module(module_name(path))
    except SyntaxError as error:
        raise UserError(f"{path} is not valid Python: line {error.lineno}: {error.msg}; mend it and run again") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the file is the user's: it can raise anything, and may even try to end the process
        raise UserError(_sentence(path, error, guide)) from error


def blamed(error: BaseException) -> str | None:
    """The sentence for an error that a user's own file raised while it was used; None where no such file had a part in it."""
    raised = [
        frame
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").startswith(f"{__name__}.")
    ]
    if not raised:
        return None
    path = Path(raised[-1].f_code.co_filename)
    return _sentence(path, error, "", "failed")


def _sentence(path: Path, error: BaseException, guide: str, how: str = "cannot be imported") -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"{path}, line {lines[-1]}" if lines else str(path)
    said = " ".join(str(error).split())
    made, asked, missing = said.partition("missing ")
    if isinstance(error, TypeError) and made.startswith("TaskSpec.") and asked:
        return f"the TaskSpec in {where} is incomplete: it lacks {missing.partition(': ')[2]}; {guide}"
    return f"{where} {how}: {type(error).__name__}: {said}; mend it and run again (--debug shows more)"
