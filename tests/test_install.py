"""What is declared is used, what is used is declared, and a plain installation from the wheel does what it promises."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from build_package import size_faults, wheel_faults
from linked_environment import make
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from phylatent.errors import UserError
from phylatent.extras import MODULES, WHAT, missing, need

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "phylatent"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OTHERS = {
    "stable-worldmodel's environments": ("dm-control", "imageio", "ogbench", "pygame", "pymunk", "shapely"),
    "Lightning's logger": ("tensorboard", "wandb"),
}
"""Who imports what is declared here and not imported by us."""
PLACES = {
    "envs": ("simulator.py", "tasks/", "commands/machine_check.py"),
    "lance": ("data/formats/lance.py",),
    "archives": ("data/unpack.py",),
    "report": ("reporting/", "watching/page.py"),
}
"""Where the modules of an extra may be imported; nowhere else, for the core does without."""


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements} - {"phylatent"}


CORE = names(PROJECT["dependencies"])
EXTRAS = {extra: names(PROJECT["optional-dependencies"][extra]) for extra in MODULES}


@cache
def providers() -> dict[str, set[str]]:
    """Module → the distributions that bring it."""
    return {module: {canonicalize_name(name) for name in found} for module, found in packages_distributions().items()}


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    roots = {name.partition(".")[0] for name in found}
    return roots - set(sys.stdlib_module_names) - {"phylatent"}


IMPORTS = {str(path.relative_to(SOURCE)): imported(path) for path in SOURCE.rglob("*.py")}


def test_what_is_declared_is_imported() -> None:
    used = {name for modules in IMPORTS.values() for module in modules for name in providers().get(module, {module})}
    by_others = {name for found in OTHERS.values() for name in found}
    declared = CORE | set().union(*EXTRAS.values())
    assert declared - used == by_others, "declared and never imported, or excused without need"


def test_what_is_imported_is_declared() -> None:
    for place, modules in IMPORTS.items():
        allowed = CORE.union(*(EXTRAS[extra] for extra, places in PLACES.items() if place.startswith(places)))
        for module in modules:
            assert providers().get(module, {module}) & allowed, f"{place} imports {module}, which nothing there declares"


def test_extras_are_what_pyproject_says() -> None:
    assert WHAT.keys() == MODULES.keys()
    for extra, modules in MODULES.items():
        brought = {name for module in modules for name in providers().get(module, {module})}
        assert EXTRAS[extra] <= brought, extra
        assert all(providers().get(module, {module}) & EXTRAS[extra] for module in modules), extra
    [everything] = (Requirement(text) for text in PROJECT["optional-dependencies"]["all"])
    assert everything.extras == MODULES.keys() - {"wandb"}


def test_the_two_commands_install_everything() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target, extra in (("installed", "all"), ("installed-test", "test"), ("installed-dev", "dev")):
        assert re.search(rf"^\.venv/{target}:.*\n.*--editable '\.\[{extra}\]'$", makefile, re.MULTILINE), target
    assert "phylatent[all,docs]" in PROJECT["optional-dependencies"]["test"]
    assert "phylatent[test]" in PROJECT["optional-dependencies"]["dev"]


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    need("report", "report")
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert missing("report") == ["plotly"]
    line = r"report needs plotly and matplotlib: pip install 'phylatent\[report\]'"
    with pytest.raises(UserError, match=rf"^{line} \(plotly missing\)$"):
        need("report", "report")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=f"^{line}$"):
        need("report", "report")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout; with the setuptools that is here."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(SOURCE, copy / "src" / "phylatent", ignore=shutil.ignore_patterns("__pycache__"))
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", build], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [made] = out.glob("*.whl")
    return made


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel_faults(wheel) == []
    assert size_faults(wheel) == []


@pytest.mark.slow
def test_a_plain_installation_works_without_extras(wheel: Path, tmp_path: Path) -> None:
    """In an environment that has the core's requirements and nothing else: what is there is checked in it, and what is not."""
    python = make(tmp_path / "environment", wheel, PROJECT["dependencies"])
    check = subprocess.run([python, "-I", ROOT / "release" / "check_core.py"], capture_output=True, text=True, cwd=tmp_path)
    assert check.returncode == 0, check.stderr
    assert check.stdout.endswith("the core works without extras\n")
