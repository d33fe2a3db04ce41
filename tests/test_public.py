"""The Python front door: every public name is shown, documented, and does what its example says."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import phylatent
from phylatent.errors import UserError


@pytest.fixture(scope="module")
def run(tworooms_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, called `run`."""
    config = phylatent.compose("tworooms", "smoke", "phylatent", [f"data={tworooms_data}", "train.steps=2"])
    return phylatent.train(config, out=tmp_path_factory.mktemp("public") / "run").directory


def test_dir_shows_the_public_names() -> None:
    assert set(dir(phylatent)) == {*phylatent.__all__, "__version__"}
    shown = "import phylatent, sys; print(*dir(phylatent)); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout.split() == dir(phylatent)


@pytest.mark.parametrize("name", phylatent.__all__)
def test_each_public_name_has_an_example_that_runs(
    name: str, run: Path, tworooms_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PHYLATENT_HOME", str(tmp_path))
    thing = getattr(phylatent, name)
    assert thing.__module__.startswith("phylatent.")
    doc = thing.__doc__ or ""
    known = {"phylatent": phylatent, "data": str(tworooms_data), "run": str(run)}
    test = doctest.DocTestParser().get_doctest(doc, known, name, None, None)
    assert test.examples, f"{name} has no example"
    said: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(test, out=said.append).failed == 0, "".join(said)


class Still:
    """Sees a thumbnail, and believes that nothing ever moves."""

    def encode(self, frames):
        small = torch.nn.functional.adaptive_avg_pool2d(frames.float().permute(0, 3, 1, 2), 8)
        return small.flatten(1) / 255

    def rollout(self, z, blocks):
        return z[:, None].expand(-1, blocks.shape[1], -1)


def test_an_audit_agrees_with_diagnose_and_opens_in_a_report(
    run: Path, tworooms_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHYLATENT_HOME", str(tmp_path))
    found = phylatent.audit(str(run), data=str(tworooms_data), preset="smoke")
    (record,) = phylatent.diagnose([run], overrides=["workers=1"], preset="smoke", out=str(tmp_path / "judged"))
    assert found.rates == {name: record[name]["rate"] for name in ("invariance", "identifiability", "counterfactual")}
    other = phylatent.audit(Still(), task="tworooms", data=tworooms_data, preset="smoke")
    assert other.rates["counterfactual"] == 1.0
    assert other.directory == tmp_path / "runs" / "audit-Still"
    page = phylatent.report([found, other], out=tmp_path / "page")
    assert "Still" in page.read_text()
    named = phylatent.audit(Still(), task="tworooms", data=tworooms_data, preset="smoke", test_episodes=[0, 1, 2])
    assert named.record["split"]["name"] == "held-out", "who names episodes keeps none for choices that we know of"
    with pytest.raises(UserError, match="different splits"):
        phylatent.report([found, named], out=tmp_path / "mixed")


def test_an_audit_overwrites_nothing(tworooms_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYLATENT_HOME", str(tmp_path))
    given = {"task": "tworooms", "data": tworooms_data, "preset": "smoke", "overrides": ["diagnostics=invariance"]}
    first, second = (phylatent.audit(Still(), **given) for _ in range(2))
    assert first.directory != second.directory
    assert first.rates == second.rates
    with pytest.raises(UserError, match="nothing was overwritten"):
        phylatent.audit(Still(), out=first.directory, **given)


def test_an_audit_without_the_environments_measures_what_needs_none(
    tworooms_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHYLATENT_HOME", str(tmp_path))
    monkeypatch.setattr("phylatent.judging.audit.missing", lambda extra: ["gymnasium"])
    found = phylatent.audit(Still(), task="tworooms", data=tworooms_data, preset="smoke")
    assert set(found.rates) == {"invariance", "identifiability"}
    assert "pip install 'phylatent[envs]'" in found.left_out["counterfactual"]
    with pytest.raises(UserError, match=r"pip install 'phylatent\[envs\]'"):
        phylatent.audit(Still(), task="tworooms", data=tworooms_data, preset="smoke", overrides=["diagnostics=counterfactual"])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"model": object()}, "needs encode"),
        ({"task": None}, "say which task"),
        ({"test_episodes": [99]}, "must be some of the 12 episodes"),
        ({"test_episodes": []}, "must be some of the 12 episodes"),
        ({"data": "nowhere.h5"}, "nowhere.h5"),
        ({"overrides": ["states=x"]}, "states"),
    ],
)
def test_mistakes_in_an_audit_get_a_sentence(
    given: dict, sentence: str, tworooms_data: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("PHYLATENT_HOME", str(tmp_path))
    asked = {"model": Still(), "task": "tworooms", "data": tworooms_data, "preset": "smoke"} | given
    with pytest.raises(UserError, match=sentence):
        phylatent.audit(asked.pop("model"), **asked)
