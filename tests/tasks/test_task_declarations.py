"""Declarations of a user's own task: what is refused at once, in one sentence, and what `doctor task=` finds by trying it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from own_tasks import GUIDE, WriteTask, call

from phylatent import compose, tasks
from phylatent.commands.findings import Finding
from phylatent.commands.task_check import examine_task
from phylatent.errors import UserError
from phylatent.simulator import Simulator
from phylatent.tasks import get_task


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ([("TASK = ", "MISSION = ")], "declares no TASK; add TASK = TaskSpec"),
        ([("TASK = TaskSpec(", "TASK = dict(")], "is of type dict; it must be a phylatent.schema.TaskSpec"),
        ([("TASK = TaskSpec(", "TASK = TaskSpec((")], r"is not valid Python: line \d+"),
        ([("import numpy as np", "import numpyy as np")], r"line \d+ cannot be imported: ModuleNotFoundError"),
        ([('    title="Pendulum",\n', ""), ("    episode_steps=100,\n", "")], "it lacks 'title' and 'episode_steps'"),
        ([('name="pendulum"', 'name="my/pendulum"')], "becomes part of file names"),
        ([('name="pendulum"', 'name="cube"')], "which is the name of a task of phylatent's own"),
        ([("    restore=restore,\n", "")], r"it lacks restore: add a function \(environment, row\)"),
        ([("    read_columns=read_columns,\n", "")], "it lacks read_columns: add a function"),
        ([("    behaviour=behaviour,\n", "")], "it lacks behaviour"),
        ([("with_goal=with_goal,\n", ""), ("distance=distance,\n", "")], "it lacks with_goal: .*; it lacks distance: "),
        ([('"paper": Rule', '"strict": Rule')], "its rules are strict, moderate: add 'paper'"),
        (
            [('Rule(solved=reached, meaning="closer than 0.2 rad and 1 rad/s")', "reached")],
            r"the rule 'paper' is a function: write Rule\(solved=…\)",
        ),
        ([("action_high=(MAX_TORQUE,)", "action_high=(MAX_TORQUE, 1.0)")], "action_low has 1 and action_high 2 values"),
        ([("action_high=(MAX_TORQUE,)", "action_high=MAX_TORQUE")], r"action_high is 2.0: write a tuple, such as \(2.0,\)"),
        ([("action_high=(MAX_TORQUE,)", "action_high=(math.inf,)")], "each low must be a finite number below its high"),
        ([('columns=("state", "torque"),\n', 'columns=("torque",),\n')], "reads column 'state', which is not recorded"),
        ([("angles={0: 2", "angles={2: 2")], "target.angles is .* dimensions from 0 to 1"),
        ([("moving_dims=(0,)", "moving_dims=(5,)")], r"moving_dims is \(5,\)"),
        ([("restore=restore", "restore=lambda env, row: None")], r"restore \(<lambda>\) cannot be sent to worker processes"),
        ([("asks=not_reached", "asks=lambda row: True")], "moderate's asks .* write it as a def at the top level"),
        (
            [("episode_steps=100", 'episode_steps=100, severities={"fog": 1.0}')],
            "severities names 'fog': the perturbations are",
        ),
        ([("episode_steps=100", 'episode_steps=100, severities={"noise": -1}')], "the severity of noise is -1"),
        ([("episode_steps=100", 'episode_steps=100, objectives={"psgg": {"weight": 1.0}}')], "unknown key 'psgg.weight'"),
    ],
)
def test_declarations_that_are_wrong(changes, sentence: str, task_file: WriteTask) -> None:
    with pytest.raises(UserError, match=sentence) as raised:
        compose(task=str(task_file(*changes)))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "named, sentence", [("nowhere.py", "there is no task file"), ("folder/notes.txt", "is not a task file")]
)
def test_a_mistake_on_the_command_line(named: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").touch()
    assert call("collect", f"task={named}", cwd=tmp_path) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert sentence in said
    assert not (tmp_path / "data").exists()


def test_one_name_belongs_to_one_file(task_file: WriteTask) -> None:
    first, second = task_file(), task_file(name="again.py")
    assert get_task(str(first)) is get_task("pendulum") is get_task(str(first))
    with pytest.raises(UserError, match=r"pendulum.py and .*again.py both call their task 'pendulum'"):
        get_task(str(second))


def test_what_a_declaration_leaves_out_is_as_on_tworooms(task_file: WriteTask) -> None:
    like = compose(task="tworooms", preset="smoke").objective_settings
    assert compose(task=str(task_file()), preset="smoke").objective_settings == like
    table = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|(.*) ?\|$", GUIDE, re.MULTILINE)
    assert {name for name, _, _ in table} == {"psg", "fra", "svic", "casc", "ld"}
    for name, weight, rest in table:
        told = {"weight": weight} | dict(re.findall(r"`(\w+)` ([\d.]+)", rest))
        assert {key: getattr(like[name], key) for key in told} == {key: float(value) for key, value in told.items()}
    changed = task_file(("episode_steps=100", 'episode_steps=100, objectives={"casc": {"weight": 0.5}}'), name="changed.py")
    tasks._own.clear()
    casc = compose(task=str(changed)).objective_settings["casc"]
    assert (casc.weight, casc.max_margin) == (0.5, like["casc"].max_margin)


def test_an_environment_that_does_not_exist(task_file: WriteTask) -> None:
    task = get_task(str(task_file(('env_id="Pendulum-v1"', 'env_id="Pendulous-v1"'))))
    with pytest.raises(UserError, match="the environment 'Pendulous-v1' of task 'pendulum' cannot be made"):
        Simulator(task, 32)


def test_a_time_limit_ends_nothing(task_file: WriteTask) -> None:
    simulator = Simulator(get_task(str(task_file())), 32)
    simulator.reset(0)
    for _ in range(210):  # Gymnasium's own limit is 200
        simulator.step(np.array([2.0], dtype=np.float32))
    before = simulator.columns()["state"]
    simulator.step(np.array([2.0], dtype=np.float32))
    assert not np.array_equal(simulator.columns()["state"], before)


@pytest.mark.parametrize(
    "change, check, found",
    [
        (('    env.last_u = row["torque"][0]\n', ""), "restore", "reads torque"),
        (('("state", "torque"),\n    target', '("state",),\n    target'), "restore", "KeyError"),
        (
            ('np.array(row["state"], dtype=np.float64)', 'row["state"].round(2)'),
            "restore",
            "restored reads state",
        ),
        (("np.array(env.state, dtype=np.float64)", "np.asarray(env.state * [1, 0])"), "replay", "of the spread off"),
        (("rng.normal()", "np.random.default_rng().normal()"), "behaviour", "recorded twice differs in pixels, action"),
        (("np.clip([push + noise], -MAX_TORQUE, MAX_TORQUE)", "np.array([9 * noise])"), "behaviour", "actions reach from"),
        (("action_high=(MAX_TORQUE,)", "action_high=(5.0,)"), "environment", "declared, [-2.0] to [2.0] there"),
        (('names=("angle", "speed")', 'names=("angle",)'), "columns", "hold {'state': 2}, but 1 dimensions are named"),
        (("angle < ANGLE_TOLERANCE", "angle < 0"), "rules", "not solved under 'paper' with itself as its goal"),
        (("angle < ANGLE_TOLERANCE and speed < SPEED_TOLERANCE", "True"), "rules", "100% of goals"),
        (('row | {"goal_state"', '{"state": other["state"], "goal_state"'), "rules", "with_goal changes the row's own state"),
        (
            ("    env.state = np", "    raise RuntimeError('not today')\n    env.state = np"),
            "replay",
            "RuntimeError: not today",
        ),
    ],
)
def test_the_check_finds_what_is_wrong(change: tuple[str, str], check: str, found: str, task_file: WriteTask) -> None:
    [finding] = examine_task(get_task(str(task_file(change))), [check])
    assert not finding.good
    assert found in finding.found
    assert finding.advice


def test_a_row_that_the_next_step_changes(task_file: WriteTask) -> None:
    """An environment that steps in place, and a declaration that hands out its very array."""
    step = "class InPlace(PendulumEnv):\n    def step(self, u):\n        state = self.state\n        done = super().step(u)\n"
    step += "        state[:] = self.state\n        self.state = state\n        return done\n\n\n"
    step += 'gymnasium.register("InPlace-v0", entry_point=InPlace)\n'
    imports = "import gymnasium\nimport numpy as np\nfrom gymnasium.envs.classic_control.pendulum import PendulumEnv\n"
    path = task_file(
        ("import numpy as np\n", imports),
        ("MAX_TORQUE = 2.0\n", f"MAX_TORQUE = 2.0\n{step}"),
        ('env_id="Pendulum-v1"', 'env_id="InPlace-v0"'),
        ("np.array(env.state, dtype=np.float64)", "env.state"),
    )
    [finding] = examine_task(get_task(str(path)), ["columns"])
    assert "'state' of an earlier row changed" in finding.found


def test_doctor_fails_with_a_wrong_declaration(
    task_file: WriteTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = task_file(('    env.last_u = row["torque"][0]\n', ""), ('"torque": np.array', '"tongue": np.array'))
    assert call("doctor", f"task={path}", f"out={tmp_path / 'findings.json'}", cwd=tmp_path) == 1
    assert "wrong" in capsys.readouterr().out
    findings = [Finding(**finding) for finding in json.loads((tmp_path / "findings.json").read_text())["findings"]]
    assert [finding.what for finding in findings if finding.good] == ["environment"]


def test_doctor_passes_a_shipped_task() -> None:
    assert [finding for finding in examine_task(get_task("tworooms")) if not finding.good] == []


def test_train_before_collect_says_how_to_collect(
    task_file: WriteTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = task_file()
    assert call("train", f"task={path}", "preset=smoke", cwd=tmp_path) == 2
    assert f"`phylatent collect task={path}` makes one" in capsys.readouterr().err
