"""Files read back, one reader for each kind: JSON, YAML, tables, arrays, tensors.

A file may be cut short, damaged, forged or of something else. Whatever is wrong with it is the file's fault, and one sentence
names the file, what is wrong and what to do (`again`). Nothing in a file is run.
"""

from __future__ import annotations

import csv
import json
import pickle
import re
import stat
import tokenize
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import yaml

from phylatent.errors import UserError
from phylatent.reading.shapes import misfit, shown

if TYPE_CHECKING:
    import numpy as np

NODES = 100_000
"""Values in a YAML text, every alias counted as often as it is used: a few lines of aliases can stand for billions."""
SAVED = "# Saved by phylatent. The last line, three dots, says that the file is whole.\n"
"""How a configuration begins that ends so: cut between two lines, it would look like a shorter one."""
DEEPEST = 60
"""Objects and lists inside each other in a JSON file: ours have about ten."""


class Unreadable(ValueError):
    """What is wrong with a text, without the name of its file."""


def read_json(path: Path, *, again: str) -> dict[str, Any]:
    """A JSON object; `again` is what to do about a damaged file, such as "diagnose that model again"."""
    try:
        found = json.loads(read_text(path, again=again))
    except RecursionError as error:
        raise damaged(path, "it is nested too deeply", again) from error
    except ValueError as error:
        raise damaged(path, f"it is not JSON: {first_line(error)}", again) from error
    if not isinstance(found, dict):
        raise damaged(path, f"it holds a {type(found).__name__}, not a JSON object", again)
    if _is_deeper(found, DEEPEST):
        raise damaged(path, "it is nested too deeply", again)
    return found


def read_yaml(path: Path, *, again: str) -> dict[str, Any]:
    """A YAML mapping of plain values. One of our own that lost its end is refused: keys would fall back to their defaults."""
    text = read_text(path, again=again)
    if text.startswith(SAVED) and text.splitlines()[-1] != "...":
        raise damaged(path, "it is cut short: its last line, three dots, is missing", again)
    try:
        found = parse_yaml(text)
    except Unreadable as error:
        raise damaged(path, f"it is not YAML: {error}", again) from error
    if not isinstance(found, dict):
        raise damaged(
            path, "it is empty" if found is None else f"it holds a {type(found).__name__}, not a mapping of keys", again
        )
    return found


def parse_yaml(text: str) -> Any:
    """Plain values only: no tags that make objects, no list that contains itself, no few lines that stand for billions."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _check_extent(node)
        return None if node is None else loader.construct_document(node)
    except RecursionError as error:
        raise Unreadable("it is nested too deeply, or contains itself") from error
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise Unreadable(" ".join(str(error).split())) from error


def read_table(path: Path, *, again: str, column: str = "step", unfinished: bool = False) -> list[dict[str, str]]:
    """The rows of a CSV file with a header; empty where it has none. Every row has a whole number in `column`, and every other
    cell is a number or empty.

    `unfinished`: the file grows line by line, so that its last line may have been cut by whatever stopped that; it is left out.
    """
    lines = read_text(path, again=again).splitlines(keepends=True)
    if unfinished and lines and not lines[-1].endswith("\n"):
        lines.pop()
    try:
        rows = list(csv.DictReader(lines, strict=True))
    except csv.Error as error:
        raise damaged(path, f"it is not a table: {error}", again) from error
    for line, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise damaged(path, f"line {line} has not as many cells as the first one", again)
        if not re.fullmatch("[0-9]{1,18}", row.get(column, "")):
            raise damaged(path, f"line {line} has no {column}", again)
        for name, cell in row.items():
            if cell and not _is_number(cell):
                raise damaged(path, f"{name} in line {line} is {shown(cell)}, expected a number", again)
    return rows


def read_arrays(path: Path, *, again: str, prefix: str = "") -> dict[str, np.ndarray]:
    """The arrays of an .npz file whose names begin with `prefix`; numbers only, nothing pickled."""
    import numpy as np

    _check_readable(path)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {key: arrays[key] for key in arrays.files if key.startswith(prefix)}
    except (ValueError, EOFError, BadZipFile, LookupError, RuntimeError, OSError, zlib.error) as error:
        raise damaged(path, f"it is not a whole array file: {first_line(error)[:120]}", again) from error
    except (AttributeError, TypeError, MemoryError, SyntaxError, tokenize.TokenError) as error:  # a header's bytes at random
        raise damaged(path, f"it is not an array file: {type(error).__name__}", again) from error
    for key, array in found.items():
        if not isinstance(array, np.ndarray):  # numpy hands over the bytes of what does not look like an array
            raise damaged(path, f"{shown(key)} in it is no array", again)
    return found


def read_tensors(path: Path, *, again: str, kind: str = "file of tensors") -> Any:
    """What torch saved: tensors and plain values; a pickle that would run code is refused. `kind` is what it should be."""
    import torch

    _check_readable(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of other protocols: they are refused or read, either way
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, BadZipFile, ValueError, LookupError, TypeError) as error:
        raise damaged(path, f"it is not a whole {kind}: {first_line(error)[:120]}", again) from error
    except (AttributeError, AssertionError, RecursionError, MemoryError, ImportError) as error:  # a pickle's bytes at random
        raise damaged(path, f"it is not a {kind}: {type(error).__name__}", again) from error


def check_shape(path: Path, found: Any, shape: Any, *, again: str) -> None:
    """An error unless what was read from a file has this shape (see `misfit`)."""
    if wrong := misfit(found, shape):
        raise damaged(path, wrong, again)


def read_text(path: Path, *, again: str) -> str:
    _check_readable(path)
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise damaged(path, f"it is not text: byte {error.start} is {error.object[error.start]:#04x}", again) from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or first_line(error)}") from error


def _check_readable(path: Path) -> None:
    """An error that is the system's and not the file's: whoever reads the rest hides one behind the other."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            raise UserError(f"{path} cannot be read: it is a pipe, not a file")  # and would be waited for without end
        with path.open("rb") as handle:
            handle.read(1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or first_line(error)}") from error


def damaged(path: Path, wrong: str, again: str) -> UserError:
    """The sentence for a file that is not what it should be."""
    return UserError(f"{path} is damaged: {' '.join(wrong.split())}; {again}")


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_deeper(found: Any, depth: int) -> bool:
    """Without recursion: whether objects and lists lie inside each other more than `depth` times."""
    level = [found]
    for _ in range(depth):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterator[Any]:
    """The objects and lists that an object or a list holds."""
    inner = value.values() if isinstance(value, Mapping) else value
    return (one for one in inner if isinstance(one, (dict, list)))


def _check_extent(root: yaml.Node | None) -> None:
    """An error for a YAML graph that contains itself, or that is too large once its aliases are written out."""
    left, above = NODES, set[int]()

    def walk(node: yaml.Node) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Unreadable(f"it stands for more than {NODES:,} values")
        if id(node) in above:
            raise Unreadable("it contains itself")
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        above.add(id(node))
        for child in children:
            for part in child if isinstance(child, tuple) else (child,):  # a mapping has pairs
                walk(part)
        above.remove(id(node))

    if root is not None:
        walk(root)
