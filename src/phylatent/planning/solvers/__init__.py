"""The solvers, one file each: a pure function that searches, its settings, and SOLVER, which ties the two to a name.

One is added by adding its file, or anywhere outside: `plan.solver=path/to/file.py`, or an installed package with an entry point
in the group `phylatent.solvers`. Its settings are a section of the command line under its name (`icem.beta`).
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, is_dataclass
from typing import Any

from phylatent.errors import UserError
from phylatent.own_files import OwnKind
from phylatent.planning.solver import Solver
from phylatent.schema import Settings

OWN = OwnKind(
    noun="a solver",
    constant="SOLVER",
    key="plan.solver=",
    group="phylatent.solvers",
    guide="docs/planning.md shows a whole one",
)
FIRST = "cem"
"""The paper's, and the default; the others come after it by name."""


def _shipped() -> dict[str, Solver]:
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found = {module.SOLVER.name: module.SOLVER for module in modules}
    return {name: found[name] for name in sorted(found, key=lambda name: (name != FIRST, name))}


SOLVERS: dict[str, Solver] = _shipped()
"""The solvers that this process knows; `find_solver` adds others."""
SHIPPED = tuple(SOLVERS)


def find_solver(name: str) -> Solver:
    """The solver of that name, of an installed package, or in the file of that path."""
    return SOLVERS[name] if name in SOLVERS else _register(*OWN.find(name, SOLVERS))


def make_settings(solver: Solver, given: Any = None) -> Any:
    """The solver's own settings: those given, or its defaults."""
    if given is None:
        return solver.Settings()
    if not isinstance(given, solver.Settings):
        raise UserError(
            f"the settings of the solver {solver.name!r} are {solver.Settings.__name__}, and these are {type(given).__name__}; "
            "make them with the class beside the solver"
        )
    return given


def _register(solver: Any, where: str) -> Solver:
    if not (isinstance(solver, Solver) and isinstance(solver.name, str) and solver.name.isidentifier()):
        raise UserError(f"the solver of {where} must be a phylatent.planning.solver.Solver whose name is an identifier")
    if not (isinstance(solver.Settings, type) and is_dataclass(solver.Settings)):
        raise UserError(f"the settings of the solver {solver.name!r} of {where} must be a frozen dataclass, which may be empty")
    if solver.name in {entry.name for entry in fields(Settings)}:
        raise UserError(f"there are settings called {solver.name!r} already; give the solver of {where} another name")
    known = SOLVERS.setdefault(solver.name, solver)
    if known != solver:
        raise UserError(f"the solver of {where} is called {solver.name!r}, and so is another one; choose another name")
    return known


def has_settings(solver: Solver) -> bool:
    """Whether it has a section of its own on the command line."""
    return bool(fields(solver.Settings))
