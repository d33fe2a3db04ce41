"""`phylatent inspect`: what a data file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from phylatent.commands.request import Keys, configurations, parse
from phylatent.commands.screen import console
from phylatent.errors import UserError

if TYPE_CHECKING:
    from phylatent.schema import Config

EXAMPLE = "phylatent inspect data/tworooms-laptop.h5 task=tworooms"


def command(keys: Keys = None) -> None:
    """Say what a data file holds: size, columns, ranges, NaNs, how actions and objects move; write sample frames."""
    request = parse(keys or [])
    if len(request.plain) > 1:
        raise UserError(f"inspect takes one file; found {len(request.plain)}")
    path = Path(request.plain[0]) if request.plain else None
    inspect(configurations(request)[0], path=path, out=request.out, screen=console)


def inspect(
    config: Config, *, path: Path | None = None, out: Path | None = None, screen: Console | None = None
) -> dict[str, Any]:
    """What a data file holds, as a dictionary; also written to `out` with a sheet of sample frames."""
    from phylatent.composition import to_dict
    from phylatent.data.inspect import contact_sheet, inspect_data
    from phylatent.data.readers import open_episodes
    from phylatent.records import provenance, write_json
    from phylatent.runs import data_path, home

    path = path or data_path(config)
    facts = inspect_data(path, config.spec)
    folder = out or home() / "runs" / f"inspect-{path.stem}"
    write_json(folder / "inspect.json", facts | {"config": to_dict(config), "provenance": provenance()})
    contact_sheet(open_episodes(path, config.spec), folder / "frames.png")
    if screen is not None:
        _show(facts, screen)
        screen.print(f"record and sample frames: [bold]{escape(str(folder))}[/]")
    return facts


def _show(facts: dict[str, Any], screen: Console) -> None:
    table = Table(title=escape(facts["path"]), show_header=False)
    for name, value in facts.items():
        if name not in ("columns", "path"):
            table.add_row(name.replace("_", " "), _text(value))
    screen.print(table)
    columns = Table(title="columns")
    fields = list(dict.fromkeys(field for column in facts["columns"].values() for field in column))
    for heading in ("name", *fields):
        columns.add_column(heading)
    for name, column in facts["columns"].items():
        columns.add_row(name, *(_text(column.get(field)) for field in fields))
    screen.print(columns)


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
