"""A diagnostic is one file: the guide's own is in the record, in the terminal's table and on the page."""

from __future__ import annotations

import html
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from episode_files import write_file
from rich.console import Console

from phylatent import diagnostics
from phylatent.commands.tables import show_rates
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import Split
from phylatent.diagnostics.diagnose import diagnose_model, save
from phylatent.diagnostics.diagnostic import Diagnostic
from phylatent.diagnostics.during_training import columns, shrink
from phylatent.diagnostics.sample import Sample, make_sample
from phylatent.errors import UserError
from phylatent.reporting import make_report
from phylatent.schema import PAPER_DIAGNOSTICS, ClipConfig, DiagnoseConfig
from phylatent.tasks.tworooms import TASK

GUIDE = Path(__file__).parents[2] / "docs" / "diagnostics.md"
SPLIT = Split(train=(0,), validation=(), test=(1, 2, 3, 4, 5), seed=0)
SETTINGS = DiagnoseConfig(diagnostics=("stillness",), seeds=(0, 1), bootstrap=50, workers=1)


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Diagnostic:
    (tmp_path / "files").mkdir()
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "files" / "stillness.py").write_text(code)
    monkeypatch.setattr(diagnostics, "__path__", [*diagnostics.__path__, str(tmp_path / "files")])
    found = diagnostics._find()
    monkeypatch.delitem(sys.modules, "phylatent.diagnostics.stillness")
    assert [*found] == [*PAPER_DIAGNOSTICS, "reachability", "stillness"]
    monkeypatch.setitem(diagnostics.DIAGNOSTICS, "stillness", found["stillness"])
    return found["stillness"]


@pytest.fixture
def episodes(tmp_path: Path) -> Episodes:
    return open_episodes(write_file(tmp_path / "rows.h5", [40] * 6), TASK)


class Stuck:
    """The latent is the number that a frame is filled with, which is its row, but for the first hundred, which are alike."""

    def encode(self, frames: torch.Tensor) -> torch.Tensor:
        return frames[:, 0, 0, :1].float().clamp(min=100)

    def rollout(self, z: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
        return z[:, None].expand(-1, blocks.shape[1], -1)


def test_the_guides_file_is_all_it_takes(stranger: Diagnostic, episodes: Episodes, tmp_path: Path) -> None:
    found = diagnose_model(Stuck(), task=TASK, episodes=episodes, split=SPLIT, clip=ClipConfig(), settings=SETTINGS)
    section = found.record["stillness"]
    assert 0 < section["rate"] < 1
    assert section["failures"] == sum(half["failures"] for half in section["by_half"].values())
    own = {name for name in found.arrays if not name.startswith("map/")}
    assert own == {f"seed{seed}/stillness/{name}" for seed in (0, 1) for name in ("moved", "row")}

    runs = []
    for variant in ("lewm", "other"):
        facts = {"model": {"name": variant, "variant": variant, "training_seed": 0, "task": "tworooms"}}
        save(found, tmp_path / variant / "diagnostics", facts)
        runs.append(tmp_path / variant)

    screen = Console(record=True, width=200, file=io.StringIO())
    show_rates([json.loads((run / "diagnostics" / "paper.json").read_text()) for run in runs], screen)
    shown = screen.export_text()
    assert f"{100 * section['rate']:.1f} %" in shown
    # Rows 40 to 74 and 80 to 95: those of the test episodes that are not beyond the hundred a block later, with both seeds.
    assert "stillness: 102 of 350 eligible, ± 0.0 over 2 seeds" in shown

    page = html.unescape(make_report(runs, tmp_path / "page").read_text())
    for words in (
        "Latent stillness ↓",
        stranger.meaning,
        "175 states drawn",
        "Stillness, by half of the file",
        "d<sub>spread</sub>: of all latents;",
        'data-cloud="stillness"',
        "as many stillness failures",
        "invariance",
    ):
        assert words in page, words
    record = json.loads((tmp_path / "page" / "report.json").read_text())
    assert record["methods"][0]["rates"]["stillness"]["mean"] == section["rate"]
    assert record["methods"][0]["rates"]["invariance"]["mean"] is None
    (change,) = [one for one in record["diagnostic_comparisons"] if one["diagnostic"] == "stillness"]
    assert change["relative_reduction"] == 0


def test_a_name_that_is_none_gets_the_nearest() -> None:
    with pytest.raises(UserError, match=r"^unknown diagnostic 'reachabilty'; did you mean 'reachability'\?$"):
        diagnostics.choose(("invariance", "reachabilty"))
    assert [*diagnostics.choose(("counterfactual", "invariance"))] == ["invariance", "counterfactual"]
    with pytest.raises(UserError, match=r"diagnose\.diagnostics is empty"):
        DiagnoseConfig(diagnostics=())
    with pytest.raises(UserError, match="does nothing with protocol=ordering"):
        DiagnoseConfig(protocol="ordering", diagnostics=("reachability",))


def test_while_training_the_chosen_ones_are_columns() -> None:
    settings = DiagnoseConfig(diagnostics=("reachability", "invariance"))
    assert columns(settings) == ("diagnose/invariance", "diagnose/reachability")
    assert shrink(settings).diagnostics == settings.diagnostics


def test_the_fingerprint_tells_samples_apart_and_not_how_they_were_asked_for(episodes: Episodes) -> None:
    def sample(*names: str) -> Sample:
        settings = DiagnoseConfig(diagnostics=names, states=20, frames=20, pairs=30, horizons=(1,), seeds=(0,))
        return make_sample(task=TASK, episodes=episodes, split=SPLIT, clip=ClipConfig(), settings=settings)

    both, turned = sample("invariance", "identifiability"), sample("identifiability", "invariance")
    more = sample("invariance", "identifiability", "reachability")
    assert both.fingerprint == turned.fingerprint != more.fingerprint
    assert both.settings == more.settings
    assert np.array_equal(both.seeds[0]["invariance"].rows, more.seeds[0]["invariance"].rows)


def test_finding_them_does_not_wait_for_torch() -> None:
    script = "import sys, phylatent.diagnostics, phylatent.reporting.page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


@pytest.mark.parametrize("one", diagnostics.DIAGNOSTICS.values(), ids=lambda one: one.name)
def test_every_diagnostic_says_what_it_is(one: Diagnostic) -> None:
    assert type(one).__module__ == f"phylatent.diagnostics.{one.name}"
    assert one.meaning.startswith("Share of ")
    assert one.meaning.endswith(".")
    assert one.counted in ("states", "pairs", "paths")
