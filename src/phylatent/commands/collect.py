"""`phylatent collect`: episodes of a task's behaviour policy, recorded in its simulator."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, TextColumn

from phylatent.commands.request import Keys, configurations, parse, refuse_plain
from phylatent.commands.screen import bar, console, show_path
from phylatent.errors import UserError

if TYPE_CHECKING:
    from phylatent.schema import Config

EXAMPLE = "phylatent collect task=tworooms preset=laptop collect.episodes=800"


def command(keys: Keys = None) -> None:
    """Record episodes of a task's behaviour policy in its simulator. Interrupted, the same command goes on."""
    request = parse(keys or [])
    refuse_plain(request, "collect")
    if len(request.seeds) > 1:
        raise UserError("collect takes one seed; for several data sets call it once for each, with another out=")
    seed = [f"collect.seed={seed}" for seed in request.seeds]
    config = configurations(replace(request, seeds=(), overrides=(*request.overrides, *seed)))[0]
    show_path("data", collect(config, out=request.out, screen=console))


def collect(config: Config, *, out: Path | None = None, screen: Console | None = None) -> Path:
    """Collect the configuration's data set into `out`, or where `train` will look for it; returns the file."""
    from phylatent.composition import to_dict
    from phylatent.data.collect import collect as collect_episodes
    from phylatent.records import provenance, write_json
    from phylatent.runs import data_path

    path = out or data_path(config)
    screen = screen or Console(quiet=True)
    started = time.perf_counter()
    record_file = path.with_name(path.name + ".json")
    with bar("collect", screen, MofNCompleteColumn(), TextColumn("episodes"), total=config.collect.episodes) as progress:
        path = collect_episodes(config.spec, config.collect, seed=config.collect.seed, path=path, progress=progress)
    if record_file.exists():
        screen.print(f"{escape(str(path))} is already collected")
        return path
    seconds = round(time.perf_counter() - started, 1)
    record = {"data": path.name, "seconds": seconds, "config": to_dict(config), "provenance": provenance()}
    write_json(record_file, record)
    screen.print(f"collected {config.collect.episodes} episodes of {config.task} in {seconds:.0f} s")
    return path
