"""PhyLatent: train JEPA world models whose latent space can be planned in, and measure whether it can."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

if TYPE_CHECKING:
    from phylatent.commands.collect import collect
    from phylatent.commands.exchange import export_model, import_model
    from phylatent.commands.inspect import inspect
    from phylatent.commands.prepare import prepare
    from phylatent.commands.report import report
    from phylatent.composition import compose
    from phylatent.judging.audit import Audit, audit
    from phylatent.judging.decode import decode
    from phylatent.judging.diagnose import diagnose
    from phylatent.judging.plan import plan
    from phylatent.models.world_model import WorldModel
    from phylatent.planning.planner import Planner
    from phylatent.training.graph import build
    from phylatent.training.run import train

_WHERE = {
    "Audit": "phylatent.judging.audit",
    "Planner": "phylatent.planning.planner",
    "WorldModel": "phylatent.models.world_model",
    "audit": "phylatent.judging.audit",
    "build": "phylatent.training.graph",
    "collect": "phylatent.commands.collect",
    "compose": "phylatent.composition",
    "decode": "phylatent.judging.decode",
    "diagnose": "phylatent.judging.diagnose",
    "export_model": "phylatent.commands.exchange",
    "import_model": "phylatent.commands.exchange",
    "inspect": "phylatent.commands.inspect",
    "plan": "phylatent.judging.plan",
    "prepare": "phylatent.commands.prepare",
    "report": "phylatent.commands.report",
    "train": "phylatent.training.run",
}
__all__ = [
    "Audit",
    "Planner",
    "WorldModel",
    "audit",
    "build",
    "collect",
    "compose",
    "decode",
    "diagnose",
    "export_model",
    "import_model",
    "inspect",
    "plan",
    "prepare",
    "report",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `phylatent --version` does not wait for torch."""
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'phylatent' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What tab completion shows: the public names, imported or not yet."""
    return sorted([*__all__, "__version__"])
