"""`phylatent collect`: episodes of a task's behaviour policy, recorded in its simulator."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import MofNCompleteColumn, TextColumn

from phylatent.commands.request import Keys, configurations, parse, refuse_plain
from phylatent.commands.screen import bar, console, line, show_path, words
from phylatent.errors import UserError
from phylatent.files import check_target, in_full

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


def collect(config: Config, *, out: str | Path | None = None, screen: Console | None = None) -> Path:
    """Collect the configuration's data set into `out`, or where `train` will look for it; returns the file.

    >>> config = phylatent.compose("tworooms", "smoke", overrides=["collect.episodes=3", "collect.workers=1"])
    >>> phylatent.collect(config, out="few.h5").name
    'few.h5'
    """
    from phylatent.composition import to_dict
    from phylatent.data.collect import collect as collect_episodes
    from phylatent.data.formats.hdf5 import HDF5Store
    from phylatent.records import provenance, write_json
    from phylatent.runs import data_path

    path = in_full(out) or data_path(config)
    check_target(path)
    if path.suffix not in HDF5Store.suffixes:
        raise UserError(f"out={path}: a data file's name ends in {' or '.join(HDF5Store.suffixes)}; give it such a name")
    screen = screen or Console(quiet=True)
    started = time.perf_counter()
    record_file = path.with_name(path.name + ".json")
    with bar("collect", screen, MofNCompleteColumn(), TextColumn("episodes"), total=config.collect.episodes) as progress:
        path = collect_episodes(config.spec, config.collect, seed=config.collect.seed, path=path, progress=progress)
    if record_file.exists():
        screen.print(line(words(path), " is already collected"))
        return path
    seconds = round(time.perf_counter() - started, 1)
    record = {"data": path.name, "seconds": seconds, "config": to_dict(config), "provenance": provenance()}
    write_json(record_file, record)
    screen.print(f"collected {config.collect.episodes} episodes of {config.task} in {seconds:.0f} s")
    return path
