"""An objective of the user's own, docs/own-objective.md: from a file or an installed package to a judged run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from own_packages import install
from own_tasks import call
from training_runs import copy_unfinished

from phylatent import build, compose
from phylatent.composition import load_config, save_config, without_paths
from phylatent.errors import UserError
from phylatent.objectives import OBJECTIVES, SHIPPED, find_objective

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "own-objective.md").read_text()
EXAMPLE, TESTS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
[VARIANT] = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
STRAIGHT = ROOT / "docs" / "examples" / "straight.py"


@pytest.fixture(autouse=True)
def forget():
    yield
    for name in [name for name in OBJECTIVES if name not in SHIPPED]:
        del OBJECTIVES[name]


def phylatent(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "phylatent", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ | {"COLUMNS": "300"})


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a stranger followed the guide, command by command, with the smoke preset in the laptop's place."""
    place = tmp_path_factory.mktemp("walk")
    (place / "straight.py").write_text(EXAMPLE)
    (place / "straighter.yaml").write_text(VARIANT.replace("laptop", "smoke"))
    for block in re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL):
        for line in block.splitlines():
            assert call(*line.replace("laptop", "smoke").split()[1:], cwd=place) == 0, line
    return place


def test_the_guide_leads_to_judged_runs(walked: Path) -> None:
    run = walked / "runs" / "straight"
    assert "straight" in (run / "train.csv").read_text().splitlines()[0].split(",")
    saved = yaml.safe_load((run / "config.yaml").read_text())
    assert saved["objectives"] == ["pred", "sigreg", str(walked / "straight.py")]
    assert saved["straight"]["weight"] == 0.1
    varied = walked / "runs" / "tworooms-smoke-straighter-seed0"
    saved = yaml.safe_load((varied / "config.yaml").read_text())
    assert (saved["variant"], saved["straight"]["weight"], saved["straight"]["power"]) == ("straighter", 0.1, 2.0)
    assert json.loads((varied / "planning" / "paper" / "result.json").read_text())["model"]["variant"] == "straighter"


def test_a_published_model_does_not_carry_paths(walked: Path) -> None:
    for run in (walked / "runs").glob("*straight*"):
        published = (run / "model" / "config.json").read_text()
        assert str(walked) not in published
        assert json.loads(published)["provenance"]["config"]["objectives"][-1] == "straight"


def test_a_run_resumes_from_anywhere_and_is_judged_without_its_files(walked: Path, tmp_path: Path) -> None:
    run = copy_unfinished(walked / "runs" / "tworooms-smoke-straighter-seed0", tmp_path / "run")
    (walked / "straighter.yaml").rename(walked / "gone.yaml")
    done = phylatent("train", f"out={run}", "resume=true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (walked / "straight.py").rename(walked / "gone.py")
    try:
        for source in (run, run / "model"):
            done = phylatent(
                "diagnose", str(source), "diagnose.states=10", f"data={walked}/data/tworooms-smoke.h5", cwd=tmp_path
            )
            assert done.returncode == 0, done.stderr
        (run / "result.json").unlink()
        done = phylatent("train", f"out={run}", "resume=true", cwd=tmp_path)
        assert done.returncode == 2
        assert f"there is no objective file {walked / 'straight.py'}" in done.stderr
    finally:
        (walked / "gone.py").rename(walked / "straight.py")
        (walked / "gone.yaml").rename(walked / "straighter.yaml")


def test_the_tests_of_the_guide(walked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(walked)
    monkeypatch.syspath_prepend(walked)
    assert "assert " in TESTS, "the guide's own tests are what can fail here"
    exec(TESTS, {})


def test_the_guide_shows_the_example() -> None:
    code = [line for line in STRAIGHT.read_text().splitlines() if not line.lstrip().startswith(('"""', "#"))]
    shown = [line for line in EXAMPLE.splitlines() if not line.lstrip().startswith('"""')]
    assert [line for line in code if line] == [line for line in shown if line]


def test_a_saved_configuration_is_the_same_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(STRAIGHT.parent)
    config = compose(preset="smoke", overrides=["objectives=[straight.py,sigreg,pred]", "straight.power=3"])
    assert config.objectives == ("pred", "sigreg", "straight"), "the shipped ones first, in their order"
    assert config.objective_settings["straight"].power == 3
    save_config(config, tmp_path / "config.yaml")
    monkeypatch.chdir(tmp_path)
    del OBJECTIVES["straight"]
    assert load_config(tmp_path / "config.yaml") == config
    assert str(STRAIGHT.parent) not in str(without_paths(config))


def test_the_others_do_not_notice() -> None:
    with_it = build(compose(preset="smoke", variant="lewm", overrides=[f"objectives=[pred,sigreg,{STRAIGHT}]"])).state_dict()
    without = build(compose(preset="smoke", variant="lewm")).state_dict()
    assert all(torch.equal(tensor, with_it[name]) for name, tensor in without.items())


IMPORTS = "from dataclasses import dataclass\nfrom phylatent.objectives.objective import Objective, ObjectiveSettings\n"
CLASS = IMPORTS + "class A(Objective):\n    {}\n{}"


@pytest.mark.parametrize("text, sentence", [
    ("x = 1", "declares no OBJECTIVE; add OBJECTIVE = YourClass to it; docs/own-objective.md"),
    ("OBJECTIVE = 3", "must be a subclass of phylatent.objectives.objective.Objective"),
    (CLASS.format("pass", "OBJECTIVE = A"), "must have a `name` that is an identifier"),
    (CLASS.format("name = 'a'; Settings = int", "OBJECTIVE = A"), "must be a dataclass based on ObjectiveSettings"),
    (CLASS.format("name = 'a'", "OBJECTIVE = A"), "a is among the objectives, but a.weight is 0"),
    (CLASS.format("name = 'casc'", "OBJECTIVE = A"), "is called 'casc', and so is another one"),
    (CLASS.format("name = 'train'", "OBJECTIVE = A"), "there are settings called 'train' already"),
    (CLASS.format("name = 'conv'", "OBJECTIVE = A"), "there are settings called 'conv' already"),
    (CLASS.format("name = 'a'", "@dataclass(frozen=True)\nclass S(ObjectiveSettings):\n    kernel: object = print\n"
                 "A.Settings = S\nOBJECTIVE = A"), "settings of 'a' cannot be used; each needs a plain type and a default"),
    ("import nothing_of_that_name", "line 1 cannot be imported: ModuleNotFoundError"),
    ("class", "is not valid Python"),
])  # fmt: skip
def test_files_that_declare_none(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        compose(preset="smoke", overrides=[f"objectives=[pred,{path}]"])
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_and_a_path_that_lead_nowhere() -> None:
    with pytest.raises(UserError, match=r"there is no objective file nowhere\.py; check the path in objectives="):
        compose(overrides=["objectives=[pred,nowhere.py]"])
    with pytest.raises(UserError, match=r"unknown objective 'xyz'; .*one of your own is named by its file: objectives="):
        compose(overrides=["objectives=[pred,xyz]"])
    with pytest.raises(UserError, match=r"unknown key 'straight\.weight'"):
        compose(overrides=["straight.weight=1"])


def test_an_installed_package_that_is_broken(site: Path) -> None:
    install(site, {"phylatent.objectives": {"straight": "bent:straight.Straight"}}, "bent")
    with pytest.raises(UserError, match=r"objective 'straight' of package bent .* cannot be imported: AttributeError"):
        compose(overrides=["objectives=[pred,straight]"])


def test_an_installed_package(site: Path, tmp_path: Path) -> None:
    points = {"straight": "lines.straight:Straight", "curved": "lines.straight:Straight"}
    install(site, {"phylatent.objectives": points}, "lines", straight=EXAMPLE)
    config = compose(preset="smoke", overrides=["objectives=[pred,sigreg,straight]", "straight.weight=0.3"])
    assert config.objective_settings["straight"].weight == 0.3
    save_config(config, tmp_path / "config.yaml")
    del OBJECTIVES["straight"]
    assert load_config(tmp_path / "config.yaml") == config
    with pytest.raises(UserError, match=r"the entry point 'curved' of package lines .* called 'straight'; give both the same"):
        find_objective("curved")
