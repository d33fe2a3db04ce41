"""`phylatent report`: one page about runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from phylatent.commands.request import Runs, parse
from phylatent.commands.screen import show_path
from phylatent.errors import UserError

EXAMPLE = "phylatent report runs/tworooms-laptop-lewm-seed0 runs/tworooms-laptop-phylatent-seed0"


def command(keys: Runs = None) -> None:
    """Write one self-contained page about runs: rates, planning, scatter plots, filmstrips, training curves."""
    request = parse(keys or [])
    title = [o.partition("=")[2] for o in request.overrides if o.startswith("title=")]
    other = [o for o in request.overrides if not o.startswith("title=")]
    if other or request.choices or request.seeds or request.config or request.resume:
        raise UserError("report takes run directories, out= and title=, nothing else")
    if not request.plain:
        raise UserError("name what to report on: run directories, or those that diagnose and plan wrote")
    show_path("report", report(request.plain, out=request.out, title=title[0] if title else None))


def report(sources: Sequence[str | Path], *, out: Path | None = None, title: str | None = None) -> Path:
    """One self-contained page about one or several runs; returns its path."""
    from phylatent.report.page import make_report
    from phylatent.runs import home, records_of

    directories = [records_of(source) for source in sources]
    for source, directory in zip(sources, directories, strict=True):
        if not directory.is_dir():
            raise UserError(f"there are no records of {source}; report takes runs, or what diagnose and plan wrote")
    names = "-".join(dict.fromkeys(directory.resolve().name for directory in directories))[:80]
    return make_report(directories, out or home() / "runs" / f"report-{names}", title=title)
