"""`phylatent demo`: the main job in one command."""

from __future__ import annotations

from phylatent.commands.request import Keys, parse, refuse_plain
from phylatent.commands.screen import console

EXAMPLE = "phylatent demo"


def command(keys: Keys = None) -> None:
    """Collect TwoRooms data, train `lewm` and `phylatent-plus` under one budget, and compare them."""
    request = parse(keys or [])
    refuse_plain(request, "demo")

    from phylatent.commands.demo_stages import run_demo

    run_demo(request, console)
