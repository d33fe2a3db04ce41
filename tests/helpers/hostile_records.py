"""Records in which every text is somebody's choice: each string of them replaced, and names of one's own put in."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from report_records import write_run

IMAGE = """<img src=x onerror=document.title='pwned'>"'&{{7*7}}%{x}$\\frac$"""
SCRIPT = """</script><script>document.title='pwned'</script><!--%{y:.1%}"""
LINK = """<a href="javascript:document.title='pwned'">x</a></title>${7*7}`%s`"""
MARKERS = (IMAGE, SCRIPT, LINK)


def harmless(text: str) -> str:
    """As long as the text, and plain: the page of it has the same structure, if the text is nothing but text."""
    return "w" * len(text)


def in_a_path(text: str) -> str:
    return text.replace("/", "|")


def replaced(value: Any, text: str) -> Any:
    """The same structure, with this text for every string in it."""
    if isinstance(value, dict):
        return {key: replaced(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, text) for item in value]
    return text if isinstance(value, str) else value


def write_hostile_run(base: Path, text: str, number: int = 0, *, directory: str | None = None) -> Path:
    """A run whose records hold `text` wherever they hold a text, and beside each name that a record chooses itself."""
    run = write_run(base / (directory or f"{in_a_path(text)}{number}"), "phylatent", protocols=("paper", "strict"), shown=60)
    _edit(run / "config.yaml", yaml.safe_load, yaml.safe_dump, lambda config: replaced(config, text) | {text: text})
    for path in run.rglob("*.json"):
        _edit(path, json.loads, json.dumps, lambda record: _named(replaced(record, text), text))
    rate = json.loads((run / "diagnostics" / "paper.json").read_text())["invariance"]
    (run / "diagnostics" / "ordering.json").write_text(json.dumps({text: rate, "split": {"name": text}, "notes": [text]}))
    for name in ("train.csv", "validation.csv"):
        _add_columns(run / name, [text, f"r2/{text}", f"share/z/{text}", f"weight/{text}"])
    (run / "planning" / "paper" / "videos").mkdir()
    (run / "planning" / "paper" / "videos" / f"{in_a_path(text)}.webp").touch()
    (run / "diagnostics" / f"{in_a_path(text)}.json").write_text("{}")
    return run


def _edit(path: Path, read: Callable[[str], Any], write: Callable[[Any], str], change: Callable[[Any], Any]) -> None:
    path.write_text(write(change(read(path.read_text()))))


def _named(record: dict[str, Any], text: str) -> dict[str, Any]:
    """With a condition, a policy, a rule and a section of a name that no version knows."""
    record |= {"rule": text, text: text}
    for section in ("invariance", "counterfactual"):
        for conditions in ("by_kind", "by_horizon"):
            known = record.get(section, {}).get(conditions)
            if known:
                known[text] = next(iter(known.values()))
    if "policies" in record:
        record["policies"][text] = record["policies"]["random"]
        record["imagination"]["failures"][text] = 1
    return record


def _add_columns(path: Path, names: list[str]) -> None:
    with path.open(newline="") as handle:
        rows = [row | dict.fromkeys(names, "0.5") for row in csv.DictReader(handle)]
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
