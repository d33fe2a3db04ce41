"""`phylatent prepare`: a data set as raw frames, which training reads as fast as memory can be copied."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import MofNCompleteColumn, TextColumn

from phylatent.commands.request import Keys, configurations, parse
from phylatent.commands.screen import bar, console, line, show_path, words
from phylatent.errors import UserError
from phylatent.files import check_target, in_full

if TYPE_CHECKING:
    from phylatent.schema import Config

EXAMPLE = "phylatent prepare data/tworooms-laptop.h5 task=tworooms prepare.frame_size=64"


def command(keys: Keys = None) -> None:
    """Turn a data set into raw frames that training reads fastest, once. Interrupted, the same command goes on."""
    request = parse(keys or [])
    if len(request.plain) > 1:
        raise UserError(f"prepare takes one data set; found {len(request.plain)}")
    if request.seeds:
        raise UserError("prepare takes no seed; what it writes is what the data set holds")
    source = Path(request.plain[0]) if request.plain else None
    show_path("data", prepare(configurations(request)[0], source=source, out=request.out, screen=console))


def prepare(
    config: Config, *, source: str | Path | None = None, out: str | Path | None = None, screen: Console | None = None
) -> Path:
    """Prepare a data set (the configuration's, unless `source` names one) into `out`, or into `data/`; returns where.

    >>> phylatent.prepare(phylatent.compose("tworooms", "smoke", overrides=["prepare.workers=1"]), source=data).suffix
    '.frames'
    """
    from phylatent.data.prepare import prepare as prepare_frames
    from phylatent.data.readers import locate
    from phylatent.runs import data_path, home

    found = locate(in_full(source) or data_path(config), config.spec)
    size = config.prepare.frame_size
    path = in_full(out) or home() / "data" / f"{found.stem}{'' if size is None else f'-{size}px'}.frames"
    check_target(path, directory=True)
    screen = screen or Console(quiet=True)
    there = path.exists()
    started = time.perf_counter()
    with bar("prepare", screen, MofNCompleteColumn(), TextColumn("frames")) as progress:
        prepare_frames(found, config.spec, config.prepare, path=path, progress=progress)
    if there:
        screen.print(line(words(path), " is already prepared"))
    else:
        screen.print(line("prepared ", words(source), f" in {time.perf_counter() - started:.0f} s"))
    return path
