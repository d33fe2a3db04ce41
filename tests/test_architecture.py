"""Imports point one way, and the simulator alone knows stable-worldmodel."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "phylatent"

# room → rooms it may import from (besides itself)
BASE = {"errors", "schema"}
MAY = {
    "errors": set(),
    "schema": {"errors"},
    "records": BASE,
    "task_files": BASE,
    "tasks": BASE | {"task_files"},
    "distributed": set(),
    "draws": {"distributed"},
    "machine": BASE,
    "processes": BASE,
    "statistics": BASE,
    "collapse": BASE,
    "simulator": BASE,
    "models": BASE | {"distributed", "draws", "task_files"},
    "objectives": BASE | {"distributed", "draws", "models"},
    "composition": BASE | {"records", "tasks", "models", "objectives"},
    "data": BASE | {"records", "draws", "simulator", "tasks", "processes"},
    "training": BASE
    | {"records", "distributed", "draws", "tasks", "models", "objectives", "composition", "data", "machine", "diagnostics"},
    "diagnostics": BASE | {"draws", "simulator", "data", "models", "processes", "machine", "statistics", "records", "collapse"},
    "planning": BASE | {"draws", "simulator", "data", "models", "processes", "machine", "statistics", "records"},
    "report": BASE | {"records", "statistics", "collapse"},
}
TOP = {
    "cli",
    "request",
    "collection",
    "subjects",
    "judging",
    "tables",
    "demo",
    "doctor",
    "exchange",
    "lewm_files",
    "task_check",
    "__init__",
    "__main__",
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
    assert here in MAY or here in TOP, f"a new room: say what {here} may import"
    if here in TOP:
        return
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
