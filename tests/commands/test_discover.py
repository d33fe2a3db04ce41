"""What a newcomer finds without a manual: lists, settings with their meaning, the resolved configuration, completion."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from command_line import assert_user_mistake
from rich.console import Console

from phylatent import compose
from phylatent.commands import catalogue, completion
from phylatent.composition import to_dict
from phylatent.composition.described import DEFAULT, describe
from phylatent.composition.layers import available
from phylatent.composition.sections import known_keys
from phylatent.tasks import all_tasks, get_task
from phylatent.training.callbacks import TwoLines, told


@pytest.mark.parametrize("kind", list(catalogue.KINDS))
def test_every_kind_is_listed_a_line_each(here, tmp_path: Path, kind: str) -> None:
    found = catalogue.entries(kind)
    assert len(found) >= 3
    for name, line in found.items():
        assert line, name
        assert len(line) <= 140, line
        assert "\n" not in line
    done = here("list", kind, cwd=tmp_path)
    assert done.returncode == 0
    assert all(name in done.stdout for name in found)


def test_lists_hold_all_there_is(here, tmp_path: Path) -> None:
    assert set(catalogue.entries("variants")) == set(available("variants"))
    assert set(catalogue.entries("presets")) == set(available("presets"))
    assert set(catalogue.entries("tasks")) == set(all_tasks())
    assert_user_mistake(here("list", "variant", cwd=tmp_path), "unknown kind 'variant'; did you mean 'variants'?")


@pytest.mark.parametrize("task", ["tworooms", "pusht", "reacher", "cube"])
def test_every_key_is_described(task: str) -> None:
    found = {setting.key: setting for setting in describe(get_task(task), "laptop", "phylatent-plus")}
    assert found.keys() == set(known_keys()) - {"task_file"}
    for setting in found.values():
        assert setting.meaning.endswith((".", ")")), setting.key
        assert setting.kind.split()[0] in ("whole", "number", "text", "true", "list"), setting.kind


def test_settings_say_who_sets_them_and_what_compose_makes_of_it() -> None:
    found = {setting.key: setting for setting in describe(get_task("pusht"), "laptop", "phylatent-plus")}
    assert found["train.lr"].said_by == "preset laptop"
    assert found["train.steps"].said_by == "task pusht in preset laptop"
    assert found["svic.light"].said_by == "variant phylatent-plus in preset laptop on task pusht"
    assert (found["train.clip_norm"].said_by, found["train.clip_norm"].value) == (DEFAULT, 1.0)
    resolved = to_dict(compose("pusht", "laptop", "phylatent-plus"))
    for key, setting in found.items():
        section, _, name = key.partition(".")
        if section in resolved and (not name or isinstance(resolved[section], dict)):
            value = resolved[section][name] if name else resolved[section]
            same = list(value) == list(setting.value) if isinstance(value, (list, tuple)) else value == setting.value
            assert same, key


def test_settings_are_shown(here, tmp_path: Path) -> None:
    done = here("settings", "plan.noise", "task=cube", cwd=tmp_path)
    assert done.returncode == 0
    assert "plan.noise = data  (preset laptop; default white)" in done.stdout
    assert "text: white, data." in done.stdout
    assert_user_mistake(here("settings", "plam.", cwd=tmp_path), "no key begins with 'plam.'; they begin with casc, clip,")
    assert_user_mistake(here("settings", "train.lr=3", cwd=tmp_path), "sets nothing")


def test_config_is_printed_without_running(here, tmp_path: Path) -> None:
    done = here("config", "task=pusht", "variant=lewm", "preset=smoke", "train.steps=7", cwd=tmp_path)
    assert done.returncode == 0
    expected = compose("pusht", "smoke", "lewm", ["train.steps=7"])
    assert yaml.safe_load(done.stdout) == yaml.safe_load(yaml.safe_dump(_plain(to_dict(expected))))
    assert not any(tmp_path.iterdir())
    assert here("config", "preset=smoke", "out=mine.yaml", cwd=tmp_path).returncode == 0
    assert here("config", "config=mine.yaml", "train.steps=9", cwd=tmp_path).returncode == 0
    assert_user_mistake(here("config", "preset=smoke", "out=mine.yaml", cwd=tmp_path), "nothing was overwritten")
    assert_user_mistake(here("config", "train.stepps=3", cwd=tmp_path), "did you mean 'train.steps'?")


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def test_a_number_is_no_flag(here, tmp_path: Path) -> None:
    assert_user_mistake(here("config", "plan.compile=3", cwd=tmp_path), "plan.compile is 3; it must be true or false")


@pytest.mark.parametrize("command", ["train", "plan", "settings"])
def test_short_help_names_the_settings(here, tmp_path: Path, command: str) -> None:
    done = here(command, "-h", cwd=tmp_path)
    assert done.returncode == 0
    assert "phylatent settings" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["tr"], ["train"]),
        (["train", "train.st"], ["train.steps="]),
        (["train", "tra"], ["train."]),
        (["train", "casc.ma"], ["casc.margin_scale=", "casc.max_margin="]),
        (["train", "task=t"], ["task=tworooms"]),
        (["train", "variant=phylatent-p"], ["variant=phylatent-plus"]),
        (["train", "train.compile="], ["train.compile=true", "train.compile=false"]),
        (["plan", "run", "protocol=paper,mo"], ["protocol=paper,moderate"]),
        (["plan", "run", "noi"], ["noise="]),
        (["train", "objectives=[pred,sig"], ["objectives=[pred,sigreg"]),
        (["settings", "plan.sol"], ["plan.solver"]),
        (["list", "so"], ["solvers"]),
        (["train", "out=x"], []),
    ],
)
def test_completion(words: list[str], found: list[str]) -> None:
    assert completion.candidates(words, ["demo", "train", "plan"]) == found


def test_bash_completes_after_an_equals_sign(tmp_path: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    asked = """
COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDBREAKS=$' \\t\\n=:'
compopt() {{ echo "compopt $*"; }}
_phylatent; printf '[%s]\\n' "${{COMPREPLY[@]}}"
"""
    (tmp_path / "phylatent").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m phylatent "$@"\n')
    (tmp_path / "phylatent").chmod(0o755)
    lines = "".join(asked.format(line=line) for line in ("phylatent train task=tw", "phylatent train train.ste"))
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", completion.BASH + lines], capture_output=True, text=True, env=path, check=True)
    assert done.stdout.split("\n")[:3] == ["[tworooms]", "compopt -o nospace", "[train.steps=]"]


def test_progress_keeps_its_numbers_at_80_columns() -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    screen = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    progress = TwoLines(*columns, TextColumn("{task.fields[speed]} clips/s"), console=screen)
    losses = "  ".join(f"loss{number} 0.123" for number in range(20))
    progress.add_task("predictor", total=20000, completed=12345, speed="1234", losses=losses)
    screen.print(progress.get_renderable())
    first, second = screen.file.getvalue().rstrip("\n").split("\n")
    assert "12345/20000" in first
    assert "1234 clips/s" in first
    assert re.search(r"\d:\d\d:\d\d|-:--:--", first)
    assert second.strip().startswith("loss0 0.123")
    assert max(len(first), len(second)) <= 80


def test_a_validation_is_told_in_lines() -> None:
    values = {"loss": 1.0, "pred": 0.5, "share/z/pred": 1.0, "effective_rank": 9.0, "r2/x": 0.9, "error/x": 3.21}
    assert told(values | {"diagnose/invariance": 4.0}) == (
        "loss 1  pred 0.5  effective_rank 9\n  read-out errors: x 3.21\n  diagnose/invariance 4"
    )


@pytest.mark.parametrize("command", ["diagnose", "plan", "report", "export"])
def test_a_mistyped_run_is_answered_at_once(here, tmp_path: Path, command: str) -> None:
    """Nothing that looks like a path is looked up on the Hub."""
    (tmp_path / "runs" / "tworooms-lewm-seed0").mkdir(parents=True)
    started = time.perf_counter()
    done = here(command, "runs/tworooms-lewm-sed0", cwd=tmp_path)
    assert_user_mistake(done, "runs/tworooms-lewm-sed0")
    assert "did you mean runs/tworooms-lewm-seed0?" in done.stderr
    assert time.perf_counter() - started < 5


def test_a_mistyped_path_is_answered_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from phylatent import WorldModel
    from phylatent.errors import UserError

    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="there is no directory runs/nothing"):
        WorldModel.from_pretrained("runs/nothing")


def test_doctor_writes_over_nothing_but_its_own(here, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("train: {steps: 3}\n")
    assert_user_mistake(here("doctor", "task=tworooms", "out=mine.yaml", cwd=tmp_path), "nothing was overwritten")
    assert (tmp_path / "mine.yaml").read_text() == "train: {steps: 3}\n"


def test_collect_writes_a_data_file_only_under_such_a_name(here, tmp_path: Path) -> None:
    done = here("collect", "preset=smoke", "out=config.yaml", cwd=tmp_path)
    assert_user_mistake(done, "a data file's name ends in .h5 or .hdf5")
    assert not any(tmp_path.iterdir())
