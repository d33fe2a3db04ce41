"""What `diagnose` and `plan` print."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hostile_records import replaced
from report_records import write_run
from rich.console import Console

from phylatent.commands.tables import show_rates, show_success
from phylatent.schema import PERTURBATIONS
from phylatent.texts import printable


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("tables")
    return [write_run(base / variant, variant) for variant in ("lewm", "phylatent")]


def console() -> Console:
    return Console(record=True, width=220, file=io.StringIO())


def test_rates_are_shown_for_every_perturbation_and_for_seen_and_unseen_ones(runs: list[Path]) -> None:
    records = [json.loads((run / "diagnostics" / "paper.json").read_text()) for run in runs]
    screen = console()
    show_rates(records, screen)
    shown = screen.export_text()
    assert all(word in shown for word in (*PERTURBATIONS, "seen", "unseen"))
    for record in records:
        for kind in PERTURBATIONS:
            assert f"{100 * record['invariance']['by_kind'][kind]['rate']:.1f} %" in shown
    assert f"{100 * records[1]['invariance']['unseen']['rate']:.1f} %" in shown
    for record in records:
        del record["invariance"]["seen"], record["invariance"]["unseen"]
    show_rates(records, screen)  # records from before there were such rates


def test_success_has_intervals_and_tests_over_episodes(runs: list[Path]) -> None:
    records = [{"paper": json.loads((run / "planning" / "paper" / "result.json").read_text())} for run in runs]
    screen = console()
    show_success(records, screen)
    shown = screen.export_text()
    assert "95 % intervals by bootstrap over episodes" in shown
    low, high = records[0]["paper"]["policies"]["model"]["interval"]
    assert f"[{100 * low:.1f}, {100 * high:.1f}]" in shown
    assert "over 30 episodes, sign flips by episode p = " in shown
    assert "McNemar p = " in shown


@pytest.mark.parametrize("text", ["[red]x[/]", "[/]", "a\\", ":smile:", "\x1b[2J\x07\u202e\n", "{{7*7}}"])
def test_texts_of_records_are_printed_as_they_are(tmp_path: Path, text: str) -> None:
    """Each string of the records, one like the other."""
    run = write_run(tmp_path / "run", "phylatent", health="constant")
    kinds = write_run(tmp_path / "kinds", "phylatent")
    screen = Console(width=400, file=io.StringIO())
    for record in (replaced(json.loads((each / "diagnostics" / "paper.json").read_text()), text) for each in (run, kinds)):
        if record["invariance"].get("by_kind"):
            record["invariance"]["by_kind"][text] = record["invariance"]["by_kind"]["noise"]
        show_rates([record | {text: record["invariance"]}], screen)
    plan = replaced(json.loads((run / "planning" / "paper" / "result.json").read_text()), text)
    plan["policies"][text] = plan["policies"]["random"]
    plan["imagination"]["failures"][text] = 2
    show_success([{text: plan}, {text: plan}], screen)
    shown = screen.file.getvalue()
    assert shown.count(printable(text)) > 20
    assert all(line.isprintable() for line in shown.split("\n"))
