"""`phylatent report`: one page about runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from phylatent.commands.request import Runs, parse
from phylatent.commands.screen import show_path
from phylatent.errors import UserError
from phylatent.extras import need
from phylatent.files import in_full
from phylatent.texts import file_name

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


def report(sources: Sequence[str | Path], *, out: str | Path | None = None, title: str | None = None) -> Path:
    """One self-contained page about runs, records or audits, as they are compared; returns its path.

    >>> phylatent.report([run], out="page").name
    'report.html'
    """
    need("report", "report")

    from phylatent.reporting.page import make_report
    from phylatent.runs import home

    directories = [_records(source) for source in sources]
    names = file_name("-".join(dict.fromkeys(directory.resolve().name for directory in directories)), most=80)
    return make_report(directories, in_full(out) or home() / "runs" / f"report-{names}", title=title)


def _records(source: str | Path) -> Path:
    from phylatent.runs import beside, records_of

    meant = beside(Path(source))
    nothing = f"there are no records of {source}; report takes runs, or what diagnose and plan wrote{meant}"
    try:
        directory = records_of(source)
        found = directory.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, one that no file can have, or nobody's home
        raise UserError(nothing) from error
    if not found:
        raise UserError(nothing)
    return directory
