"""`phylatent diagnose`: how often a latent space fails, and how."""

from __future__ import annotations

from phylatent.commands.request import Runs, judging, parse
from phylatent.commands.screen import bars, console, say

EXAMPLE = "phylatent diagnose runs/tworooms-laptop-phylatent-seed0"


def command(keys: Runs = None) -> None:
    """Measure the failure rates of models: invariance, identifiability, counterfactual dynamics, or what diagnostics= names."""
    request = judging(parse(keys or []))

    from phylatent.commands.tables import show_rates
    from phylatent.judging.diagnose import diagnose

    with bars(console) as progress:
        records = diagnose(**request, progress=progress, say=say)
    show_rates(records, console)
