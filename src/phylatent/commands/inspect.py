"""`phylatent inspect`: what a data file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import DownloadColumn

from phylatent.commands.request import Keys, configurations, parse
from phylatent.commands.screen import bar, console, line, titled, words
from phylatent.errors import UserError
from phylatent.files import in_full, size_in_words
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
    for name, value in in_words(facts).items():
        table.add_row(words(name), words(value))
    screen.print(table)
    columns = titled("columns")
    for heading in ("name", "type", "shape", "min", "max", "NaNs"):
        columns.add_column(words(heading))
    for name, column in facts["columns"].items():
        found = (
            column["dtype"],
            " × ".join(f"{n:,}" for n in column["shape"]),
            *map(_number, map(column.get, ("min", "max", "nan"))),
        )
        columns.add_row(words(name), *map(words, found))
    screen.print(columns)


def in_words(facts: dict[str, Any]) -> dict[str, str]:
    """What a file holds as one would say it, in units that people read; the record keeps the numbers as they are."""
    height, width = facts["frame_size"]
    stride, window = facts["frame_stride"], f"of {facts['clip_steps']}-step windows"
    together = [
        f"{', '.join(map(_number, values))} after {lag} step{'s' * (lag != '1')}"
        for lag, values in facts["action_autocorrelation"].items()
    ]
    return {
        "task": str(facts["task"]),
        "transitions": f"{facts['transitions']:,}",
        "episodes": f"{facts['episodes']:,}, of {facts['steps_per_episode']:.1f} steps on average",
        "size": size_in_words(round(facts["gib"] * 2**30)),
        "frames": f"{height} × {width} px, " + ("one a step" if stride == 1 else f"one in {stride} steps"),
        "action autocorrelation": "; ".join(together),
        "reaches its goal": _share(facts["reached_goal"], "of episodes"),
        "something moves in": _share(facts["moving_windows"], window),
        "something turns in": _share(facts["turning_windows"], window),
        "fingerprint": facts["fingerprint"][:12],
        **({"notes": "; ".join(facts["notes"])} if facts["notes"] else {}),
    }


def _share(share: float | None, of: str) -> str:
    return "–" if share is None else f"{100 * share:.1f} % {of}"


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) >= 1 else f"{value:.2g}"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
