"""What `diagnose` and `plan` print."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from report_records import write_run
from rich.console import Console

from phylatent.commands.tables import show_rates, show_success
from phylatent.schema import PERTURBATIONS


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
