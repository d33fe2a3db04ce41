"""`collect` and `inspect` as commands: a progress bar, a record beside the data, a table to read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from phylatent.composition import to_dict
from phylatent.data.collect import collect as collect_episodes
from phylatent.data.inspect import contact_sheet, inspect_data
from phylatent.data.readers import open_episodes
from phylatent.records import data_path, home, provenance, write_json
from phylatent.schema import Config
from phylatent.tasks import get_task


def collect(config: Config, *, out: Path | None = None, console: Console | None = None) -> Path:
    """Collect the configuration's data set into `out`, or where `train` will look for it; returns the file."""
    path = out or data_path(config)
    console = console or Console(quiet=True)
    started = time.perf_counter()
    existed = path.exists()
    columns = (
        TextColumn("collect"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("episodes"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("collect", total=config.collect.episodes)
        path = collect_episodes(
            get_task(config.task),
            config.collect,
            seed=config.collect.seed,
            path=path,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if existed:
        console.print(f"{escape(str(path))} is already collected")
        return path
    seconds = round(time.perf_counter() - started, 1)
    record = {"data": path.name, "seconds": seconds, "config": to_dict(config), "provenance": provenance()}
    write_json(path.with_name(path.name + ".json"), record)
    console.print(f"collected {config.collect.episodes} episodes of {config.task} in {seconds:.0f} s")
    return path


def inspect(
    config: Config, *, path: Path | None = None, out: Path | None = None, console: Console | None = None
) -> dict[str, Any]:
    """What a data file holds, as a dictionary; also written to `out` with a sheet of sample frames."""
    path = path or data_path(config)
    task = get_task(config.task)
    facts = inspect_data(path, task)
    folder = out or home() / "runs" / f"inspect-{path.stem}"
    write_json(folder / "inspect.json", facts | {"config": to_dict(config), "provenance": provenance()})
    contact_sheet(open_episodes(path, task), folder / "frames.png")
    if console is not None:
        _show(facts, console)
        console.print(f"record and sample frames: [bold]{escape(str(folder))}[/]")
    return facts


def _show(facts: dict[str, Any], console: Console) -> None:
    table = Table(title=escape(facts["path"]), show_header=False)
    for name, value in facts.items():
        if name not in ("columns", "path"):
            table.add_row(name.replace("_", " "), _text(value))
    console.print(table)
    columns = Table(title="columns")
    fields = list(dict.fromkeys(field for column in facts["columns"].values() for field in column))
    for heading in ("name", *fields):
        columns.add_column(heading)
    for name, column in facts["columns"].items():
        columns.add_row(name, *(_text(column.get(field)) for field in fields))
    console.print(columns)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "  ".join(f"{name}: {_text(item)}" for name, item in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return str(value)
