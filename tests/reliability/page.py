"""Fills the tables of docs/reliability.md from tests/reliability/results/*.json, each between its two marks.

python tests/reliability/page.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parents[1] / "docs" / "reliability.md"
MARKED = re.compile(r"<!-- reliability (?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def of_fuzz(record: dict[str, Any]) -> str:
    rows = []
    for row in record["rows"]:
        failures = ", ".join(f"{number} {sort}" for sort, number in row["failures"].items()) or "0"
        rows.append((row["kind"], row["cases"], row["answered"], row["succeeded"], failures))
    sums = [sum(row[name] for row in record["rows"]) for name in ("cases", "answered", "succeeded")]
    failed = sum(sum(row["failures"].values()) for row in record["rows"])
    rows.append(("**all**", *(f"**{number:,}**" for number in (*sums, failed))))
    table = _table(("kind", "cases", "answered with a sentence", "succeeded", "failures"), rows)
    return f"{table}\n\nSeed {record['seed']}, {record['minutes']:g} minutes."


def of_kills(record: dict[str, Any]) -> str:
    head = ("command", "takes", "kills", "of them too late", "same result", "failures")
    names = ("kills", "too_late", "equal")
    rows = [
        (row["name"], f"{row['seconds']:g} s", *(row[name] for name in names), len(row["failures"])) for row in record["rows"]
    ]
    return f"{_table(head, rows)}\n\nSeed {record['seed']}, {record['minutes']:g} minutes."


def of_endurance(record: dict[str, Any]) -> str:
    head = ("what", "how often", "memory at a quarter", "at the end", "slope over the last three quarters", "minutes")
    rows = [
        (
            row["what"],
            f"{row['count']:,}",
            f"{row['quarter_mb']:.0f} MB",
            f"{row['end_mb']:.0f} MB",
            f"{row['slope_mb']:+.1f} MB in all",
            f"{row['minutes']:.1f}",
        )
        for row in record["rows"]
    ]
    return _table(head, rows)


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {"fuzz": of_fuzz, "kills": of_kills, "endurance": of_endurance}


def filled(page: str, results: Path) -> str:
    def fill(mark: re.Match[str]) -> str:
        path = results / f"{mark['name']}.json"
        body = TABLES[mark["name"]](json.loads(path.read_text())) if path.is_file() else "Not measured yet."
        return f"<!-- reliability {mark['name']} -->\n{body}\n<!-- end -->"

    return MARKED.sub(fill, page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), RESULTS))
