"""Imports point one way, and the simulator alone knows stable-worldmodel."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "phylatent"

# room → rooms it may import from, besides itself. Every module of the package lies in one of them.
WORDS = {"errors", "schema"}
FILES_ON_DISK = WORDS | {"files", "records", "runs"}
MAY: dict[str, set[str]] = {
    # foundations
    "errors": set(),
    "distributed": set(),
    "randomness": {"distributed"},
    "statistics": set(),
    "machine": {"errors"},
    "processes": {"errors"},
    "own_files": {"errors"},
    "files": {"errors"},
    "schema": {"errors"},
    "records": WORDS | {"files"},
    "runs": WORDS | {"files", "records"},
    # rooms
    "tasks": WORDS | {"own_files"},
    "simulator": WORDS,
    "models": FILES_ON_DISK | {"distributed", "randomness", "own_files"},
    "objectives": WORDS | {"distributed", "randomness", "models"},
    "composition": WORDS | {"files", "tasks", "models", "objectives", "planning"},
    "data": FILES_ON_DISK | {"randomness", "simulator", "tasks", "processes"},
    "collapse": set(),
    "diagnostics": FILES_ON_DISK
    | {"randomness", "simulator", "data", "models", "processes", "machine", "statistics", "collapse"},
    "planning": FILES_ON_DISK
    | {"randomness", "simulator", "data", "models", "processes", "machine", "statistics", "own_files"},
    "training": FILES_ON_DISK
    | {"distributed", "randomness", "tasks", "models", "objectives", "composition", "data", "machine", "diagnostics"},
    "judging": FILES_ON_DISK | {"tasks", "models", "objectives", "composition", "data", "machine", "diagnostics", "planning"},
    "report": FILES_ON_DISK | {"statistics", "collapse"},
}
ROOMS = set(MAY)
MAY |= {
    "commands": ROOMS,
    "cli": {"commands", "errors", "files", "__version__"},
    "__main__": {"cli"},
    "__init__": ROOMS | {"commands"},
}


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    assert here in MAY, f"a new room: say what {here} may import"
    used = {name.split(".")[1] for name in imports(path) if name.startswith("phylatent.")}
    assert used <= MAY[here] | {here}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_simulator_imports_environments(path: Path) -> None:
    outside = {name.split(".")[0] for name in imports(path)}
    assert room(path) == "simulator" or not outside & {"stable_worldmodel", "gymnasium"}


def test_the_schema_and_the_help_do_not_wait_for_torch() -> None:
    imported = "import sys, phylatent.cli, phylatent.schema, phylatent.tasks"
    script = f"{imported}; phylatent.tasks.all_tasks(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_files_stay_small() -> None:
    long = {str(path): n for path in FILES if (n := len(path.read_text().splitlines())) > 350}
    assert not long
