"""The objectives, one file each: the equation as a pure function, then the small module that owns its training-only head.

An objective is added by adding its file; `TERMS` finds it. Order here is the order of eq:full_objective, then by name.
"""

from __future__ import annotations

import importlib
import pkgutil

from phylatent.objectives.term import Term

ORDER = ("pred", "sigreg", "svic", "psg", "fra", "casc", "ld")
"""The paper's; the sibling methods' come after them."""


def _find() -> dict[str, type[Term]]:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    found = {kind.name: kind for kind in Term.__subclasses__() if kind.__module__.startswith(__name__)}
    ranked = sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return {name: found[name] for name in ranked}


TERMS: dict[str, type[Term]] = _find()
