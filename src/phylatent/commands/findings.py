"""What `doctor` finds, of a machine or of a task: a table to read, and a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from phylatent.commands.screen import titled, words
from phylatent.errors import PhylatentError
from phylatent.files import check_target
from phylatent.reading import check_shape, read_json
from phylatent.records import provenance, write_json


@dataclass(frozen=True)
class Finding:
    what: str
    found: str
    good: bool = True
    advice: str = ""
    needed: bool = True
    """Whether phylatent cannot do its main job without it."""


def check_out(out: Path | None) -> None:
    """An error where the record would take the place of something else: only an earlier one may be written over."""
    if out is None:
        return
    check_target(out)
    if out.exists():
        again = "nothing was overwritten; out= takes the name of a new file, or of a record that doctor wrote"
        check_shape(out, read_json(out, again=again), {"findings": list, "provenance": dict}, again=again)


def show(title: str, findings: Sequence[Finding], console: Console, *, bad: str) -> None:
    """Print them; an error where something that is needed is amiss. `bad` is the word for what is."""
    table = titled(title)
    for column in ("", "what", "found", "what to do"):
        table.add_column(column)
    for finding in findings:
        mark = words("ok", "green") if finding.good else words(bad, "red") if finding.needed else words("optional", "yellow")
        advice = "" if finding.good else finding.advice
        table.add_row(mark, words(finding.what), words(finding.found), words(advice))
    console.print(table)
    amiss = [finding.what for finding in findings if finding.needed and not finding.good]
    if amiss:
        raise PhylatentError(f"{bad}: {', '.join(amiss)}; the table says what to do")


def write(out: Path, findings: Sequence[Finding], **about: Any) -> None:
    write_json(out, about | {"findings": [asdict(finding) for finding in findings], "provenance": provenance()})
