"""The objectives, one file each: the equation as a pure function, then the small module that owns its training-only head.

An objective is added by adding its file; `OBJECTIVES` finds it. Order here is the order of eq:full_objective, then by name.
One of a user's own is declared outside: in a file that is listed among them, `objectives=[pred,sigreg,path/to/file.py]`, or in
an installed package with an entry point in the group `phylatent.objectives`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from phylatent.errors import UserError
from phylatent.objectives.objective import Objective, ObjectiveSettings
from phylatent.own_files import OwnKind

ORDER = ("pred", "sigreg", "svic", "psg", "fra", "casc", "ld")
"""The paper's; the sibling methods' come after them."""
OWN = OwnKind(
    noun="an objective",
    constant="OBJECTIVE",
    key="objectives=",
    group="phylatent.objectives",
    guide="docs/own-objective.md shows a whole one",
)


def _find() -> dict[str, type[Objective]]:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    found = {kind.name: kind for kind in Objective.__subclasses__() if kind.__module__.startswith(__name__)}
    ranked = sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return {name: found[name] for name in ranked}


OBJECTIVES: dict[str, type[Objective]] = _find()
"""Those that this process knows; `find_objective` adds others."""
SHIPPED = tuple(OBJECTIVES)


def find_objective(name: str) -> type[Objective]:
    """The objective of that name, of an installed package, or in the file of that path."""
    return OBJECTIVES[name] if name in OBJECTIVES else _register(*OWN.find(name, OBJECTIVES))


def _register(kind: Any, where: str) -> type[Objective]:
    if not (isinstance(kind, type) and issubclass(kind, Objective)):
        raise UserError(f"the objective of {where} must be a subclass of phylatent.objectives.objective.Objective; {OWN.guide}")
    name = getattr(kind, "name", None)
    if not (isinstance(name, str) and name.isidentifier()):
        raise UserError(f'the objective of {where} must have a `name` that is an identifier, such as name = "mine"')
    if not (isinstance(kind.Settings, type) and issubclass(kind.Settings, ObjectiveSettings)):
        raise UserError(f"the `Settings` of objective {name!r} in {where} must be a dataclass based on ObjectiveSettings")
    known = OBJECTIVES.setdefault(name, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise UserError(f"the objective of {where} is called {name!r}, and so is another one; choose another name")
    return known
