"""Nothing foreign runs (SECURITY.md): a path in a file is a hint, whatever file it is."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import assert_user_mistake

from phylatent import compose, own_files, trust
from phylatent.composition import load_config, save_config
from phylatent.errors import UserError
from phylatent.models.encoders import ENCODERS
from phylatent.objectives import OBJECTIVES
from phylatent.planning.solvers import SOLVERS

EVIL = "from pathlib import Path\nPath({canary!r}).write_text('ran')\nTASK = ENCODER = OBJECTIVE = SOLVER = 3\n"
NOT_RUN = "was named by a file and not by you, so it was not run (SECURITY.md); if you trust it, name it in the command: "
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
SECRET = "a-secret-that-is-not-for-files"


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PHYLATENT_CANARY", SECRET)
    before = [(known, dict(known)) for known in (ENCODERS, OBJECTIVES, SOLVERS)]
    trust.forget_named()
    yield
    trust.forget_named()
    for known, names in before:
        known.clear()
        known.update(names)


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[Path]:
    """A file whose code must not run; it is looked for when the test ends."""
    path, canary = tmp_path / "m" / "evil.py", tmp_path / "canary"
    path.parent.mkdir()
    path.write_text(EVIL.format(canary=str(canary)))
    yield path
    assert not canary.exists(), "foreign code ran"


@pytest.fixture
def run(uninterrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(uninterrupted, tmp_path / "run"))


def put(values: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for name in path:
        values = values.setdefault(name, {})
    values[last] = value


def change_json(path: Path, key: str, value: Any) -> None:
    found = json.loads(path.read_text())
    put(found, key, value)
    path.write_text(json.dumps(found))


def change_yaml(path: Path, key: str, value: Any) -> None:
    found = yaml.safe_load(path.read_text())
    put(found, key, value)
    path.write_text(yaml.safe_dump(found))


IN_A_MODEL = {
    "task": "its task is said to be '{evil}', a path where a name should be; if you trust it, give task={evil}",
    "model.encoder": "{evil} holds code and " + NOT_RUN + "trust={evil}",
    "variant": "",
    "provenance.config.preset": "",
    "provenance.config.plan.solver": "",
}
"""Key of config.json → what is said of a path there. Nothing needs to be said where it is not asked for."""


@pytest.mark.parametrize(
    "command, key", [*((command, key) for command in ("diagnose", "plan") for key in IN_A_MODEL), ("export", "model.encoder")]
)
def test_a_models_config(command: str, key: str, run: Path, evil: Path, tworooms_data: Path, here) -> None:
    """A model directory from elsewhere, as a folder or from the Hub: both are this config.json."""
    change_json(run / "model" / "config.json", key, str(evil))
    model = run.rename(run.with_name("elsewhere")) / "model"
    (model.parent / "config.yaml").unlink()
    where = [] if command == "export" else [f"data={tworooms_data}"]
    done = here(command, str(model), *where, f"out={run.with_name('out')}", cwd=evil.parent)
    if IN_A_MODEL[key]:
        assert_user_mistake(done, IN_A_MODEL[key].format(evil=evil))
    assert "evil" not in done.stdout


@pytest.mark.parametrize("command", ["diagnose", "plan", "train"])
@pytest.mark.parametrize("key", ["task", "task_file", "model.encoder", "plan.solver", "objectives"])
def test_a_runs_config(command: str, key: str, run: Path, evil: Path, here) -> None:
    change_yaml(run / "config.yaml", key, ["pred", "sigreg", str(evil)] if key == "objectives" else str(evil))
    if key == "task_file":
        change_yaml(run / "config.yaml", "task", "pendulum")
    (run / "result.json").unlink()
    asked = [f"out={run}", "resume=true"] if command == "train" else [str(run)]
    done = here(command, *asked, cwd=evil.parent)
    if command == "train" or key in ("task", "task_file", "model.encoder"):  # judging asks for no more
        assert_user_mistake(done, str(evil))


def test_a_configuration_that_is_handed_in(run: Path, evil: Path, here) -> None:
    change_yaml(run / "config.yaml", "model.encoder", str(evil))
    done = here("train", f"config={run / 'config.yaml'}", "out=new", cwd=evil.parent)
    assert_user_mistake(done, f"{evil} holds code and {NOT_RUN}trust={evil}")
    assert not (evil.parent / "new").exists()


def test_what_lies_beside_lewm_weights(run: Path, evil: Path, tworooms_data: Path, here) -> None:
    change_yaml(run / "config.yaml", "model.encoder", "vit")
    done = here("export", str(run), "out=lewm", cwd=evil.parent)
    assert done.returncode == 0, done.stderr
    for key in ("config.task", "config.model.encoder"):
        lewm = Path(shutil.copytree(evil.parent / "lewm", evil.parent / key))
        change_json(lewm / "phylatent.json", key, str(evil))
        change_json(lewm / "phylatent.json", "config.action", None)
        assert here("import", str(lewm), f"data={tworooms_data}", "out=in", cwd=evil.parent).returncode == 2


@pytest.mark.parametrize("key", ["objectives", "model.encoder", "plan.solver"])
@pytest.mark.parametrize("kind", ["variant", "preset"])
def test_a_variant_from_elsewhere(kind: str, key: str, evil: Path, here) -> None:
    said: dict[str, Any] = {"extends": "lewm" if kind == "variant" else "smoke"}
    put(said, key, ["pred", "sigreg", "evil.py"] if key == "objectives" else "./evil.py")
    mine = evil.with_name("mine.yaml")
    mine.write_text(yaml.safe_dump(said))
    assert_user_mistake(here("collect", f"{kind}={mine}", "out=x.h5", cwd=evil.parent), NOT_RUN)


@pytest.mark.parametrize("text", ["!!python/object/apply:os.system ['touch canary']", "!!python/name:os.system"])
def test_tags_in_yaml(text: str, evil: Path, tmp_path: Path, here) -> None:
    (evil.parent / "mine.yaml").write_text(f"train: {{steps: {text} }}")
    assert_user_mistake(here("train", "variant=mine.yaml", cwd=evil.parent), "is not YAML: could not determine a constructor")
    assert_user_mistake(here("train", f"train.steps={text}", cwd=evil.parent), "the value cannot be read")
    assert not list(tmp_path.rglob("canary"))


@pytest.mark.parametrize("text", ["${oc.env:PHYLATENT_CANARY}", "${oc.decode:${oc.env:PHYLATENT_CANARY}}", "a ${oc.create:{}}"])
def test_nothing_asks_the_machine(text: str, run: Path, evil: Path, here) -> None:
    (evil.parent / "mine.yaml").write_text(f"extends: lewm\ndata: '{text}'\n")
    change_yaml(run / "config.yaml", "data", text)
    (run / "result.json").unlink()
    for asked in (
        ["train", "variant=mine.yaml"],
        ["train", f"config={run / 'config.yaml'}"],
        ["train", f"out={run}", "resume=true"],
        ["train", f"train.precision={text}"],
    ):
        done = here(*asked, cwd=evil.parent)
        assert_user_mistake(done, "write the value itself")
        assert SECRET not in done.stdout + done.stderr


def test_a_saved_configuration_refers_to_nothing(run: Path, tmp_path: Path) -> None:
    change_yaml(run / "config.yaml", "variant", "${task}")
    with pytest.raises(UserError, match=r"variant is '\${task}'"):
        load_config(run / "config.yaml")
    assert compose(preset="smoke", overrides=["train.schedule_steps=${train.validate_every}"]).train.schedule_steps


def test_what_the_user_named_before_goes_on_until_it_changes(tmp_path: Path) -> None:
    mine = Path(shutil.copy(EXAMPLES / "straight.py", tmp_path))
    config = compose(preset="smoke", overrides=[f"objectives=[pred,sigreg,{mine}]"])
    save_config(config, tmp_path / "config.yaml")
    trust.forget_named()
    OBJECTIVES.pop("straight")
    assert load_config(tmp_path / "config.yaml") == config
    mine.write_text(mine.read_text() + "\n")
    OBJECTIVES.pop("straight")
    with pytest.raises(UserError, match=r"straight\.py holds code and has changed since you named it"):
        load_config(tmp_path / "config.yaml")
    trust.allow(mine)
    assert load_config(tmp_path / "config.yaml") == config


def test_without_a_home_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "below"))
    mine = Path(shutil.copy(EXAMPLES / "straight.py", tmp_path))
    save_config(compose(preset="smoke", overrides=[f"objectives=[pred,sigreg,{mine}]"]), tmp_path / "config.yaml")
    trust.forget_named()
    OBJECTIVES.pop("straight")
    with pytest.raises(UserError, match="named by a file and not by you"):
        load_config(tmp_path / "config.yaml")


def test_compiled_code_beside_a_file_is_not_used(tmp_path: Path, evil: Path) -> None:
    """What the user can read is what runs, even where someone put the compiled code of something else beside it."""
    mine = tmp_path / "mine.py"
    shutil.copy(evil, mine)
    py_compile.compile(str(mine), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    mine.write_text("OBJECTIVE = 3\n")
    trust.allow(mine)
    assert own_files.import_file(mine, "an objective file", "objectives=").OBJECTIVE == 3


def test_trust_is_named_in_the_command(tmp_path: Path, here) -> None:
    for name in ("straight.py", "straighter.yaml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    asked = ["collect", "preset=smoke", "variant=straighter.yaml", "collect.workers=1", "collect.episodes=2", "out=x.h5"]
    assert_user_mistake(here(*asked, cwd=tmp_path), "trust=straight.py")
    assert_user_mistake(here(*asked, "trust=nowhere.py", cwd=tmp_path), "trust=nowhere.py: there is no such file")
    assert here(*asked, "trust=straight.py", cwd=tmp_path).returncode == 0
    assert trust.NAMED in os.environ
