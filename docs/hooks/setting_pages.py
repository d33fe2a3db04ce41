"""The page of settings, from the dataclasses that hold them and the texts below their fields."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any


def settings() -> str:
    """A table for every section of keys: those of every run first, then of objectives, encoders and solvers."""
    from phylatent.models.encoders import ENCODERS
    from phylatent.objectives import OBJECTIVES
    from phylatent.planning.solvers import SOLVERS, has_settings
    from phylatent.schema import Settings

    nested = {entry.name: entry.default_factory for entry in fields(Settings) if _is_section(entry)}
    parts = ["## Without a section", _table("", Settings, leave_out=nested)]
    for name, kind in nested.items():
        parts += [f"## {name}", _first_line(kind), _table(f"{name}.", kind)]
    for title, kinds in (
        ("Objectives", {name: kind.Settings for name, kind in OBJECTIVES.items()}),
        ("Encoders", {name: kind.Settings for name, kind in ENCODERS.items() if fields(kind.Settings)}),
        ("Solvers", {name: solver.Settings for name, solver in SOLVERS.items() if has_settings(solver)}),
    ):
        parts.append(f"## {title}")
        for name, kind in kinds.items():
            parts += [f"### {name}", _table(f"{name}.", kind)]
    return "\n\n".join(part for part in parts if part)


def _is_section(entry: Field[Any]) -> bool:
    return is_dataclass(entry.default_factory)


def _first_line(kind: Any) -> str:
    found = inspect.getdoc(kind) or ""
    return "" if found.startswith(f"{kind.__name__}(") else found.split("\n\n")[0]


def _table(prefix: str, kind: Any, leave_out: Mapping[str, Any] | tuple[()] = ()) -> str:
    said = meanings(kind)
    rows = [
        f"| `{prefix}{entry.name}` | {_code(entry.type)} | {_default(entry)} | {said.get(entry.name, '')} |"
        for entry in fields(kind)
        if entry.name not in leave_out
    ]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


def _code(text: Any) -> str:
    return "`" + str(text).replace("|", "or") + "`"


def _default(entry: Field[Any]) -> str:
    if entry.default is MISSING:
        return "" if entry.default_factory is MISSING else _code(entry.default_factory())
    value = entry.default
    if isinstance(value, tuple):
        return _code(f"[{','.join(map(str, value))}]")
    return "unset" if value is None else _code(str(value).lower() if isinstance(value, bool) else value)


def meanings(kind: Any) -> dict[str, str]:
    """Field → the text below it, of a dataclass and those it is based on."""
    found: dict[str, str] = {}
    for one in reversed([base for base in kind.__mro__ if is_dataclass(base)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0].body  # type: ignore[attr-defined]
        for line, below in zip(body, [*body[1:], None], strict=True):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
                if text or line.target.id not in found:
                    found[line.target.id] = " ".join(str(text).split()).replace("|", "\\|")
    return found
