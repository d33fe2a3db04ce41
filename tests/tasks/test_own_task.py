"""A user's own task, docs/own-task.md: a file outside the package, or an installed package, from declaration to report."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from own_tasks import EXAMPLE, GUIDE, WriteTask, call
from training_runs import copy_unfinished

from phylatent.errors import UserError
from phylatent.tasks import get_task

RUN = "pendulum-smoke-phylatent-seed0"


def phylatent(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "phylatent", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ | {"COLUMNS": "300"} | environment)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a stranger followed the guide, command by command, with the smoke preset in the laptop's place."""
    place = tmp_path_factory.mktemp("walk")
    (place / "pendulum.py").write_text(EXAMPLE)
    blocks = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    shown = [line for block in blocks for line in block.splitlines()]
    assert {line.split()[1] for line in shown} == {"doctor", "collect", "inspect", "train", "diagnose", "plan", "report"}
    for line in shown:
        arguments = line.partition("#")[0].replace("laptop", "smoke").split()[1:]
        assert call(*arguments, cwd=place) == 0, line
    return place


def test_the_guide_leads_to_a_report(walked: Path) -> None:
    record = json.loads((walked / "runs" / RUN / "planning" / "moderate" / "result.json").read_text())
    assert record["policies"].keys() == {"model", "random", "nothing"}
    assert record["unit"] == "rad"
    assert (walked / "runs" / RUN / "diagnostics" / "paper.json").is_file()
    [page] = (walked / "runs").glob("report-*/report.html")
    assert "pendulum" in page.read_text()


def test_a_published_model_does_not_carry_the_path_of_its_task(walked: Path) -> None:
    run = walked / "runs" / RUN
    assert f"task_file: {walked / 'pendulum.py'}" in (run / "config.yaml").read_text()
    assert str(walked) not in (run / "model" / "config.json").read_text()


def test_the_python_of_the_guide(walked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(walked)
    [script] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    found: dict = {}
    exec(script.replace("laptop", "smoke"), found)
    assert found["config"].task == "pendulum"
    assert found["graph"].world_model.config.action_high == (2.0,)


@pytest.fixture
def moved(walked: Path, tmp_path: Path) -> Path:
    """The run, unfinished, after its task's file was moved away."""
    run = copy_unfinished(walked / "runs" / RUN, tmp_path / "run")
    config = run / "config.yaml"
    config.write_text(config.read_text().replace(str(walked / "pendulum.py"), "/gone/pendulum.py"))
    return run


def test_a_moved_file(moved: Path, walked: Path, task_file: WriteTask, capsys: pytest.CaptureFixture[str]) -> None:
    now, other = task_file(), task_file(('name="pendulum"', 'name="rod"'), name="rod.py")
    resume = ("train", f"out={moved}", "resume=true")
    for command in (resume, ("diagnose", str(moved)), ("plan", str(moved)), ("train", f"config={moved / 'config.yaml'}")):
        assert call(*command, cwd=walked) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "task 'pendulum' was declared in /gone/pendulum.py, which is not there any more" in said
        assert "task=path/to/pendulum.py" in said
    assert call(*resume, f"task={other}", cwd=walked) == 2
    assert "declares task 'rod', but 'pendulum' is wanted here" in capsys.readouterr().err
    assert call(*resume, f"task={now}", cwd=walked) == 0
    assert (moved / "result.json").is_file()
    assert call("diagnose", str(moved), f"task={now}", cwd=walked) == 0
    assert "already measured" in capsys.readouterr().out


def test_the_variable_says_where_tasks_are(moved: Path, walked: Path, task_file: WriteTask) -> None:
    files = task_file(('name="pendulum"', 'name="rod"'), name="rod.py"), task_file()
    done = phylatent("diagnose", str(moved), cwd=walked, PHYLATENT_TASKS=os.pathsep.join(map(str, files)))
    assert done.returncode == 0, done.stderr


def test_a_model_without_its_run(walked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = shutil.copytree(walked / "runs" / RUN / "model", tmp_path / "published")
    diagnose = ("diagnose", str(model), "diagnose.states=10")
    assert call(*diagnose, cwd=walked) == 2
    assert "a task of your own is named by its file: task=path/to/file.py" in capsys.readouterr().err
    assert call(*diagnose, "task=pendulum.py", cwd=walked) == 0


@pytest.mark.slow
def test_two_processes_train_together(walked: Path, tmp_path: Path) -> None:
    data = walked / "data" / "pendulum-smoke.h5"
    train = ("train", "task=pendulum.py", "preset=smoke", "variant=lewm", "train.steps=2", "devices=2", "device=cpu")
    done = phylatent(*train, f"data={data}", f"out={tmp_path / 'run'}", cwd=walked)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model").is_dir()


def test_functions_reach_a_process_that_knows_nothing(task_file: WriteTask, tmp_path: Path) -> None:
    """As pickle, by their names: also from a directory with dots, spaces and underscores."""
    place = tmp_path / "my.tasks _v1"
    place.mkdir()
    path = shutil.copy(task_file(), place / "pendulum.v2.py")
    task = get_task(str(path))
    (tmp_path / "task.pickle").write_bytes(pickle.dumps((task.rules["paper"], task)))
    script = "import pickle, sys; rule, task = pickle.load(open(sys.argv[1], 'rb')); print(task.name, rule.solved.__name__)"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "task.pickle")], capture_output=True, text=True)
    assert done.stdout.split() == ["pendulum", "reached"], done.stderr


def install(site: Path, name: str = "pendulum", value: str = "swinging.rods:TASK", package: str = "swinging") -> Path:
    """What `pip install` leaves of a package with an entry point."""
    (site / "swinging").mkdir(parents=True, exist_ok=True)
    (site / "swinging" / "__init__.py").touch()
    (site / "swinging" / "rods.py").write_text(EXAMPLE)
    facts = site / f"{package}-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
    (facts / "entry_points.txt").write_text(f"[phylatent.tasks]\n{name} = {value}\n")
    return site


COMMANDS = """
import sys
from phylatent.cli import main
run = "runs/pendulum-smoke-lewm-seed0"
train = ["train", "task=pendulum", "preset=smoke", "variant=lewm", "train.steps=3"]
if __name__ == "__main__":
    for arguments in (["collect", "task=pendulum", "preset=smoke"], train, ["diagnose", run], ["plan", run]):
        sys.argv = ["phylatent", *arguments]
        try:
            main()
        except SystemExit as end:
            assert not end.code, arguments
"""


@pytest.mark.slow
def test_an_installed_package(tmp_path: Path) -> None:
    site = install(tmp_path / "site")
    (tmp_path / "commands.py").write_text(COMMANDS)
    environment = os.environ | {"PYTHONPATH": str(site)}
    command = [sys.executable, "commands.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "pendulum-smoke-lewm-seed0"
    assert "task_file: null" in (run / "config.yaml").read_text()
    assert (run / "planning" / "paper" / "result.json").is_file()


@pytest.mark.parametrize(
    "points, asked, sentence",
    [
        (
            [{"name": "tworooms"}],
            "tworooms",
            "package swinging brings a task 'tworooms', which is the name of a task of phylatent",
        ),
        ([{"name": "rod"}], "rod", r"the entry point 'rod' of .* leads to a task called 'pendulum'"),
        ([{"value": "swinging.rods:NOTHING"}], "pendulum", "cannot be imported: AttributeError"),
        ([{"value": "swinging.rods:reached"}], "pendulum", "is of type function; it must be a phylatent.schema.TaskSpec"),
        ([{}, {"package": "other", "value": "other.rods:TASK"}], "pendulum", "both bring a task 'pendulum'"),
        ([{}], "FILE", r"pendulum.py calls its task 'pendulum', and so does the installed package swinging"),
    ],
)
def test_entry_points_that_lie(points, asked: str, sentence: str, tmp_path: Path, monkeypatch, task_file: WriteTask) -> None:
    for point in points:
        install(tmp_path / "site", **point)
    for name in [name for name in sys.modules if name.partition(".")[0] == "swinging"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(UserError, match=sentence):
        get_task(str(task_file()) if asked == "FILE" else asked)
