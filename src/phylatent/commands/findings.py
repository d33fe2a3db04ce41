"""What `doctor` finds, of a machine or of a task: a table to read, and a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from phylatent.records import provenance, write_json


@dataclass(frozen=True)
class Finding:
    what: str
    found: str
    good: bool = True
    advice: str = ""
    needed: bool = True
    """Whether phylatent cannot do its main job without it."""


def show(title: str, findings: Sequence[Finding], console: Console, *, bad: str) -> bool:
    """Print them; true when nothing that is needed is amiss. `bad` is the word for what is."""
    table = Table(title=escape(title))
    for column in ("", "what", "found", "what to do"):
        table.add_column(column)
    for finding in findings:
        mark = "[green]ok[/]" if finding.good else f"[red]{bad}[/]" if finding.needed else "[yellow]optional[/]"
        table.add_row(mark, finding.what, escape(finding.found), "" if finding.good else escape(finding.advice))
    console.print(table)
    return all(finding.good for finding in findings if finding.needed)


def write(out: Path, findings: Sequence[Finding], **about: Any) -> None:
    write_json(out, about | {"findings": [asdict(finding) for finding in findings], "provenance": provenance()})
