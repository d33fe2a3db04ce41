"""`phylatent plan`: whether planning with a model gets there, in the real environment."""

from __future__ import annotations

from phylatent.commands.request import Runs, judging, parse
from phylatent.commands.screen import bars, console, say

EXAMPLE = "phylatent plan runs/tworooms-laptop-phylatent-seed0 protocol=paper,strict video=4"


def command(keys: Runs = None) -> None:
    """Plan with models in the real environment, beside random, do-nothing and expert policies."""
    request = judging(parse(keys or []))

    from phylatent.commands.tables import show_success
    from phylatent.judging.plan import plan

    with bars(console) as progress:
        records = plan(**request, progress=progress, say=say)
    show_success(records, console)
