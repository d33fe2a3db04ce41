"""The notebooks run from top to bottom, at smoke size, and what is kept in them came of such a run."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
SMALLER = {'"laptop"': '"smoke"', "200, 600": "6, 4"}
"""What stands in the notebooks → what a test makes of it."""


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            for laptop, smoke in SMALLER.items():
                cell.source = cell.source.replace(laptop, smoke)
    for name in ("PHYLATENT_HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PHYLATENT_HOME", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert list(tmp_path.rglob("report.html")), f"{os.listdir(tmp_path)} and no page"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_outputs_are_of_one_whole_run(path: Path) -> None:
    """And name no place on the machine that made them."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any(cell.outputs for cell in code)
    assert not any("/home/" in str(cell.outputs) or "/tmp/" in str(cell.outputs) for cell in code)


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["audit-your-own-model", "train-judge-look"]
