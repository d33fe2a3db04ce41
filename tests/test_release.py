"""What a release says agrees with itself, its container copies what is there, and a model's folder is ready for the Hub."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import hub_folders
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from report_records import write_run

import phylatent
from phylatent import WorldModel, build, compose
from phylatent.errors import UserError

ROOT = Path(__file__).parents[1]


def test_every_file_names_the_same_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest, day = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)[0]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert phylatent.__version__ == newest == cited["version"]
    assert day == cited["date-released"]


def test_the_changelog_keeps_its_form() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert "## [Unreleased]" in lines
    kinds = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    named = [re.findall(r"\[(.*?)\]", line)[0] for line in lines if line.startswith("## ")]
    links = {found[1] for line in lines if (found := re.match(r"\[(.*?)\]: https://", line))}
    assert set(named) == links


def test_the_container_copies_what_is_there() -> None:
    """Docker is not here to build it: at least every path it copies exists and is not ignored."""
    steps = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    allowed = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [line.split()[1:-1] for line in steps.splitlines() if line.startswith("COPY ") and "--from=" not in line]
    paths = {path for paths in copied for path in paths}
    assert {"src", "pyproject.toml", "constraints.txt"} <= paths == allowed
    assert all((ROOT / path).exists() for path in paths)
    assert re.search(r"^USER phylatent$", steps, re.MULTILINE), "it must not run as root"
    extra = re.search(r"^ARG EXTRAS=(\w+)$", steps, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extra is not None
    assert extra.group(1) in project["optional-dependencies"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As training, diagnosis and planning would leave it, with an untrained model; its records name where they were made."""
    directory = write_run(tmp_path_factory.mktemp("runs") / "tworooms-lewm-seed0")
    build(compose(preset="smoke", variant="lewm")).world_model.save_pretrained(directory / "model")
    planned = directory / "planning" / "paper"
    (planned / "pairs.json").write_text("{}")
    record = json.loads((planned / "result.json").read_text()) | {"rule": "closer than 16 px"}
    record["provenance"] |= {"command": ["phylatent", "plan", "/home/me/runs"], "config": {"data": "/home/me/tworooms.h5"}}
    (planned / "result.json").write_text(json.dumps(record))
    return directory


def test_a_folder_for_the_hub(run: Path, tmp_path: Path) -> None:
    hub_folders.main([str(run), "--out", str(tmp_path)])
    folder = tmp_path / "tworooms-lewm"
    assert {path.name for path in folder.iterdir()} == {
        *("README.md", "config.json", "figures", "hub.json", "model.safetensors", "records", "report.html")
    }
    model, trained = (WorldModel.from_pretrained(place) for place in (folder, run / "model"))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), trained.parameters(), strict=True))
    assert json.loads((folder / "hub.json").read_text())["precision"] == "float32"
    check_card(folder)
    record = json.loads((folder / "records" / "planning" / "paper" / "result.json").read_text())
    assert record["provenance"]["config"] == {"data": "tworooms.h5"}
    assert "/home/me" not in "".join(path.read_text() for path in folder.rglob("*.json"))


def test_large_weights_are_stored_at_half_precision(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def store() -> dict[str, object]:
        model.save_pretrained(tmp_path)
        return hub_folders.store_weights(model, run, tmp_path)

    model = WorldModel.from_pretrained(run / "model").eval()
    size = (run / "model" / "model.safetensors").stat().st_size
    monkeypatch.setattr(hub_folders, "LARGEST", 0.7 * size)
    monkeypatch.setattr(hub_folders, "MOST_CHANGED", 0.5)  # untrained latents lie close together, and move more
    assert 0 < store()["latents_moved"] < 0.5
    half = WorldModel.from_pretrained(tmp_path)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.float32}
    assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(half.parameters(), model.parameters(), strict=True))
    monkeypatch.setattr(hub_folders, "MOST_CHANGED", 1e-9)
    with pytest.raises(UserError, match="half precision moves its latents by"):
        store()
    monkeypatch.setattr(hub_folders, "LARGEST", 1000)
    with pytest.raises(UserError, match="MB at half precision; at most"):
        store()


def check_card(folder: Path) -> None:
    """Front matter that the Hub understands, and no link into nowhere."""
    text = (folder / "README.md").read_text()
    facts = ModelCard(text).data
    assert (facts.license, facts.library_name, facts.pipeline_tag) == ("mit", "phylatent", "robotics")
    assert {"world-model", "tworooms"} <= set(facts.tags)
    assert {result.metric_type for result in facts.eval_results} >= {"success_rate", "invariance_failures"}
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert pictures
    assert all((folder / picture).is_file() for picture in pictures)
    assert "\n\n\n" not in text
    assert "{{" not in text


def test_a_run_without_records_is_not_published(run: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("diagnostics"))
    with pytest.raises(UserError, match="was not diagnosed and planned with yet"):
        hub_folders.prepare(bare, tmp_path / "out")
    (bare / "result.json").unlink()
    with pytest.raises(UserError, match="is no finished run"):
        hub_folders.prepare(bare, tmp_path / "out")
    assert not (tmp_path / "out").exists()
