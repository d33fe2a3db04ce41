"""The commands under attack, shortly: `make fuzz` and `make kills` go on for as long as one likes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from page import PAGE, TABLES, filled

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process of its own found: cases run in copies of it, which nothing else may have used before."""
    place = tmp_path_factory.mktemp("short")
    source = os.pathsep.join([str(HERE.parents[1] / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(HERE / "short.py"), str(place)],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((place / "short.json").read_text())


def failures(outcomes: list[dict[str, Any]]) -> list[str]:
    passed = ("succeeded", "answered")
    wrong = [outcome for outcome in outcomes if outcome["verdict"]["sort"] not in passed]
    return [f"{one['case']['kind']} {one['case']['number']}: {one['verdict']}: {one['case']['arguments']}" for one in wrong]


@pytest.mark.slow
def test_every_case_gets_what_it_asked_for_or_one_sentence(found: dict[str, Any]) -> None:
    assert not failures(found["new"])
    kinds = {outcome["case"]["kind"] for outcome in found["new"]}
    assert len(kinds) > 50, "every kind of case has its turn"
    assert sum(outcome["verdict"]["sort"] == "succeeded" for outcome in found["new"]) > 5, "not everything can be refused"


@pytest.mark.slow
def test_what_once_failed_does_not_fail_again(found: dict[str, Any]) -> None:
    assert not failures(found["again"])


@pytest.mark.slow
def test_killed_commands_end_in_the_same_files(found: dict[str, Any]) -> None:
    assert [row["failures"] for row in found["kills"] if row["failures"]] == []


def test_the_page_has_a_place_for_every_table(tmp_path: Path) -> None:
    (tmp_path / "fuzz.json").write_text(
        json.dumps(
            {
                "seed": 3,
                "minutes": 1.5,
                "rows": [{"kind": "line train", "cases": 4, "answered": 2, "succeeded": 1, "failures": {"hang": 1}}],
            }
        )
    )
    (tmp_path / "kills.json").write_text(
        json.dumps(
            {
                "seed": 0,
                "minutes": 2,
                "rows": [{"name": "plan", "seconds": 0.5, "kills": 20, "too_late": 1, "equal": 20, "failures": []}],
            }
        )
    )
    page = filled(PAGE.read_text(), tmp_path)
    assert all(f"<!-- reliability {name} -->" in page for name in TABLES)
    assert "| line train | 4 | 2 | 1 | 1 hang |" in page
    assert "| **all** | **4** | **2** | **1** | **1** |" in page
    assert "| plan | 0.5 s | 20 | 1 | 20 | 0 |" in page
