"""`phylatent inspect`: what a data file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import DownloadColumn

from phylatent.commands.request import Keys, configurations, parse
from phylatent.commands.screen import bar, console, line, titled, words
from phylatent.errors import UserError
from phylatent.files import in_full
from phylatent.texts import file_name

if TYPE_CHECKING:
    from phylatent.schema import Config

EXAMPLE = "phylatent inspect data/tworooms-laptop.h5 task=tworooms"


def command(keys: Keys = None) -> None:
    """Say what a data file holds: size, columns, ranges, NaNs, how actions and objects move; write sample frames."""
    request = parse(keys or [])
    if len(request.plain) > 1:
        raise UserError(f"inspect takes one file; found {len(request.plain)}")
    path = Path(request.plain[0]) if request.plain else None
    thorough, request = request.flag("verify")
    inspect(configurations(request)[0], path=path, out=request.out, verify=thorough, screen=console)


def inspect(
    config: Config,
    *,
    path: str | Path | None = None,
    out: str | Path | None = None,
    verify: bool = False,
    screen: Console | None = None,
) -> dict[str, Any]:
    """What a data file holds, as a dictionary; also written to `out` with a sheet of sample frames.

    `verify` reads all of it before, in processes of its own, and compares it with its checksums.

    >>> facts = phylatent.inspect(phylatent.compose("tworooms", "smoke"), path=data, out="look")
    >>> facts["episodes"], "pixels" in facts["columns"]
    (12, True)
    """
    from phylatent.composition import to_dict
    from phylatent.data.inspect import contact_sheet, inspect_data
    from phylatent.data.readers import open_episodes
    from phylatent.records import provenance, write_json
    from phylatent.runs import data_path, home

    path = in_full(path) or data_path(config)
    verified = _verify(path, config, screen) if verify else None
    facts = inspect_data(path, config.spec) | ({} if verified is None else {"verified": verified})
    folder = in_full(out) or home() / "runs" / f"inspect-{file_name(path.stem)}"
    write_json(folder / "inspect.json", facts | {"config": to_dict(config), "provenance": provenance()})
    contact_sheet(open_episodes(path, config.spec), folder / "frames.png")
    if screen is not None:
        _show(facts, screen)
        screen.print(line("record and sample frames: ", words(folder, "bold")), soft_wrap=True)
    return facts


def _verify(path: Path, config: Config, screen: Console | None) -> str:
    from phylatent.data.readers import locate
    from phylatent.data.verify import verify

    screen = screen or Console(quiet=True)
    with bar("verify", screen, DownloadColumn()) as progress:
        verified = str(verify(locate(path, config.spec), progress))
    screen.print(line("verified: ", words(verified)), soft_wrap=True)
    return verified


def _show(facts: dict[str, Any], screen: Console) -> None:
    screen.print(line("data: ", words(facts["path"], "bold")), soft_wrap=True)
    table = titled("contents", show_header=False)
    for name, value in facts.items():
        if name not in ("columns", "path", "verified"):
            table.add_row(words(name.replace("_", " ")), words(_text(value)))
    screen.print(table)
    columns = titled("columns")
    fields = list(dict.fromkeys(field for column in facts["columns"].values() for field in column))
    for heading in ("name", *fields):
        columns.add_column(words(heading))
    for name, column in facts["columns"].items():
        columns.add_row(words(name), *(words(_text(column.get(field))) for field in fields))
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
