"""The diagnostics of collapse, one file each: what it draws, what it measures, when a sample fails, and how that is shown.

A diagnostic is added by adding its file with a `DIAGNOSTIC`; `DIAGNOSTICS` finds it, and the record, the terminal's table and
the report's page hold it where `diagnose.diagnostics` names it. No torch here: the report shows failures by the same criteria.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

from phylatent.diagnostics.diagnostic import Diagnostic
from phylatent.errors import UserError, unknown
from phylatent.schema import PAPER_DIAGNOSTICS

SHARED = {
    *("branches", "coordinates", "diagnose", "diagnostic", "during_training", "findings", "held_out", "latent_map", "latents"),
    *("material", "ordering", "ordering_sample", "perturbations", "rates", "sample"),
}
"""Files here that declare no diagnostic. Most of them need torch, so looking for one does not import them."""


def _find() -> dict[str, Diagnostic[Any]]:
    """In the paper's order, then by name."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name not in SHARED]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    found = {one.name: one for module in modules if (one := getattr(module, "DIAGNOSTIC", None)) is not None}
    first = [name for name in PAPER_DIAGNOSTICS if name in found]
    return {name: found[name] for name in (*first, *sorted(found.keys() - set(first)))}


DIAGNOSTICS: dict[str, Diagnostic[Any]] = _find()


def choose(names: Sequence[str]) -> dict[str, Diagnostic[Any]]:
    """Those of these names, in the order of `DIAGNOSTICS`."""
    for name in names:
        if name not in DIAGNOSTICS:
            raise UserError(unknown("diagnostic", name, list(DIAGNOSTICS)))
    return {name: one for name, one in DIAGNOSTICS.items() if name in names}
