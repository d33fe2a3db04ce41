"""Imports point one way, and the simulator alone knows stable-worldmodel."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "phylatent"

GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()


def table() -> dict[str, set[str]]:
    """Room → what it may import besides itself, as the table in CONTRIBUTING says. Every module lies in one of them."""
    found = re.findall(r"^\| `(\w+)` \| [^|]* \| (.*?) ?\|$", GUIDE, re.MULTILINE)
    may = {room: set(re.findall(r"`(\w+)`", said)) for room, said in found}
    rooms = set(may) - {"commands", "cli", "__main__", "__init__"}
    return {room: names | (rooms if "every room" in dict(found)[room] else set()) for room, names in may.items()}


MAY = table()


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


def test_the_tree_in_the_guide_is_the_package() -> None:
    shown = re.search(r"```\n(src/phylatent\n.*?)\n```", GUIDE, re.DOTALL)
    tree = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "tree.py"))["tree"]
    assert shown is not None
    assert shown.group(1) == tree(), "make tree puts it in"


def test_the_table_has_no_room_that_is_gone() -> None:
    assert {room(path) for path in FILES} == set(MAY)


def test_files_stay_small() -> None:
    long = {str(path): n for path in FILES if (n := len(path.read_text().splitlines())) > 350}
    assert not long
