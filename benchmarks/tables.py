"""Writes the tables of docs/performance.md from benchmarks/results/*.json, each between its two marks.

python benchmarks/tables.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
MARKED = re.compile(r"<!-- benchmark (?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)
HEAD = ("what", "ours", "peer", "times as fast", "spread", "asked")


def table(record: dict[str, Any]) -> str:
    lines = [HEAD, ("---",) * len(HEAD), *(cells(row) for row in record["rows"])]
    machine = record["machine"]
    note = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, load {machine['load']} at the end; "
        f"{record['provenance']['created'][:10]}."
    )
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines] + ["", note])


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    compared = row["ratio"] is not None
    asked = "" if row["asked"] is None else f"{'≤' if row['at_most'] else '≥'} {row['asked']:g}{'×' if compared else ''}"
    return (
        row["what"],
        f"{number(row['ours'])} {row['unit']}",
        f"{number(row['peer'])} ({row['peer_name']})" if compared else "",
        f"**{row['ratio']:.2f}×**" if compared else "",
        f"{row['spread'][0]:.2f}–{row['spread'][1]:.2f}" if compared else "",
        asked,
    )


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def filled(page: str, results: Path) -> str:
    def fill(mark: re.Match[str]) -> str:
        path = results / f"{mark['name']}.json"
        body = table(json.loads(path.read_text())) if path.is_file() else "Not measured yet."
        return f"<!-- benchmark {mark['name']} -->\n{body}\n<!-- end -->"

    return MARKED.sub(fill, page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), HERE / "results"))
