"""The command line: one clear sentence and exit code 2 for a mistake, nothing overwritten, help with an example."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from command_line import assert_user_mistake

from phylatent import __version__

ROOT = Path(__file__).parents[2]


def phylatent(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "phylatent", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ | {"COLUMNS": "200"} | environment)


def test_version() -> None:
    assert phylatent("--version").stdout.strip() == f"phylatent {__version__}"


@pytest.mark.parametrize(
    "command", ["demo", "collect", "prepare", "inspect", "train", "diagnose", "plan", "report", "import", "export", "doctor"]
)
def test_help_has_an_example(command: str) -> None:
    done = phylatent(command, "--help")
    assert done.returncode == 0
    assert f"Example: phylatent {command}" in done.stdout


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["train", "train.lrr=1"], "unknown key 'train.lrr'; did you mean 'train.lr'?"),
        (["train", "task=two-rooms"], "unknown task 'two-rooms'; did you mean 'tworooms'?"),
        (["train", "variant=phylatnt"], "did you mean 'phylatent'?"),
        (["train", "data=nowhere.h5"], "nowhere.h5"),
        (["train", "lewm"], "takes key=value arguments only; found 'lewm'"),
        (["train", "seed=one"], "expected a whole number"),
        (["train", "resume=true"], "resume=true needs out=DIR"),
        (["train", "out=nowhere", "resume=true"], "nowhere"),
        (["train", "config=nowhere.yaml"], "no configuration file"),
        (["train", "device=tpu", "DATA"], "device is 'tpu'"),
        (["collect", "task=cubes"], "unknown task 'cubes'; did you mean 'cube'?"),
        (["collect", "seed=0,1"], "collect takes one seed"),
        (["inspect", "nowhere.h5"], "nowhere.h5"),
        (["doctor", "variant=lewm"], "doctor takes task= and out= only"),
        (["demo", "task=cube"], "demo runs lewm and phylatent-plus on tworooms"),
        (["demo", "plan.protocol=[strict]"], "demo plans and diagnoses by the paper's protocol"),
        (["demo", "quick=perhaps"], "quick=perhaps: expected true or false"),
        (["diagnose"], "name what to judge"),
        (["diagnose", "nowhere"], "not a run directory, not a model directory, and not a Hub id"),
        (["plan", "nowhere", "task=cube"], "a model says itself what its task and variant are"),
        (["import", "nowhere"], "nowhere is nothing that import reads; expected a LeWM checkpoint"),
        (["export", "nowhere"], "not a run directory, not a model directory, and not a Hub id"),
        (["report"], "name what to report on"),
        (["report", "nowhere"], "there are no records of nowhere"),
        (["report", "nowhere", "seed=1"], "report takes run directories, out= and title="),
        (["train", "devices=3", "DATA"], "cannot be shared evenly by devices=3"),
        (["train", "train.wandb=true", "DATA"], "pip install 'phylatent[wandb]'"),
        (["train", "out=/dev/null/run", "DATA"], "/dev/null/run cannot be used: a part of it is a file, not a directory"),
    ],
)
def test_mistakes(arguments: list[str], sentence: str, tmp_path: Path, tworooms_data: Path, here) -> None:
    if "train.wandb=true" in arguments and importlib.util.find_spec("wandb"):
        pytest.skip("wandb is installed")
    if "DATA" in arguments:
        arguments = [*arguments[:-1], f"data={tworooms_data}", "preset=smoke"]
    assert_user_mistake(here(*arguments, cwd=tmp_path), sentence)
    assert list(tmp_path.iterdir()) == [], "a mistake leaves nothing behind"


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = phylatent("train", "data=nowhere.h5", "--debug", cwd=tmp_path)
    assert "Traceback" in done.stderr
    assert "UserError" in done.stderr


def test_a_truncated_data_file(tworooms_data: Path, tmp_path: Path, here) -> None:
    cut = tmp_path / "cut.h5"
    cut.write_bytes(tworooms_data.read_bytes()[: tworooms_data.stat().st_size // 2])
    before = cut.read_bytes()
    for command in ("train", "inspect"):
        assert_user_mistake(here(command, "preset=smoke", f"data={cut}", cwd=tmp_path), str(cut))
    assert cut.read_bytes() == before


def test_data_of_another_task(tworooms_data: Path, tmp_path: Path, here) -> None:
    done = here("train", "preset=smoke", "task=pusht", f"data={tworooms_data}", cwd=tmp_path)
    assert_user_mistake(done, "tworooms")


def test_nan_in_an_action_that_is_used(tworooms_data: Path, tmp_path: Path, here) -> None:
    broken = tmp_path / "nan.h5"
    broken.write_bytes(tworooms_data.read_bytes())
    with h5py.File(broken, "r+") as file:
        file["action"][3] = float("nan")
    assert_user_mistake(here("train", "preset=smoke", f"data={broken}", cwd=tmp_path), "row 3")


def test_pixels_with_nan(tworooms_data: Path, tmp_path: Path, here) -> None:
    broken = tmp_path / "float.h5"
    broken.write_bytes(tworooms_data.read_bytes())
    with h5py.File(broken, "r+") as file:
        pixels = file["pixels"][:].astype("float32")
        pixels[5] = float("nan")
        del file["pixels"]
        file["pixels"] = pixels
    done = here("train", "preset=smoke", f"data={broken}", cwd=tmp_path)
    assert_user_mistake(done, "float32")
    assert "NaN" in done.stderr


@pytest.mark.slow
def test_collect_inspect_and_several_seeds(tmp_path: Path, here) -> None:
    assert here("collect", "preset=smoke", "collect.episodes=6", "collect.workers=1", cwd=tmp_path).returncode == 0
    record = json.loads((tmp_path / "data" / "tworooms-smoke.h5.json").read_text())
    assert record["config"]["collect"]["episodes"] == 6
    inspected = here("inspect", "preset=smoke", cwd=tmp_path)
    assert inspected.returncode == 0
    assert "transitions" in inspected.stdout
    facts = json.loads((tmp_path / "runs" / "inspect-tworooms-smoke" / "inspect.json").read_text())
    assert facts["transitions"] == 6 * 31
    done = here("train", "preset=smoke", "variant=lewm", "seed=3,4", "train.steps=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "runs").glob("*seed*")} == {f"tworooms-smoke-lewm-seed{s}" for s in (3, 4)}


@pytest.mark.slow
def test_train_before_collect_can_be_mended(tmp_path: Path, here) -> None:
    """The mistake must not have taken the run's directory."""
    train = ("train", "preset=smoke", "variant=lewm", "train.steps=2")
    assert here(*train, cwd=tmp_path).returncode == 2
    assert here("collect", "preset=smoke", "collect.workers=1", cwd=tmp_path).returncode == 0
    assert here(*train, cwd=tmp_path).returncode == 0


def test_doctor(tmp_path: Path) -> None:
    done = phylatent("doctor", f"out={tmp_path / 'doctor.json'}", PHYLATENT_HOME=str(tmp_path / "not" / "there"))
    findings = {f["what"]: f for f in json.loads((tmp_path / "doctor.json").read_text())["findings"]}
    assert done.returncode == (0 if all(f["good"] for f in findings.values() if f["needed"]) else 1)
    assert findings["simulator tworooms"]["good"]
    assert {"Python", "device", "threads", "disk", "MuJoCo renderer", "versions"} <= findings.keys()


@pytest.mark.slow
def test_demo_ends_with_a_report_and_does_not_do_a_stage_twice(tmp_path: Path) -> None:
    first = phylatent("demo", "preset=smoke", "train.steps=3", PHYLATENT_HOME=str(tmp_path))
    assert first.returncode == 0, first.stderr
    for shown in ("1/6 collect", "6/6 report", "invariance ↓", "success of 3 ↑", "for comparison: random"):
        assert shown in first.stdout
    page = tmp_path / "runs" / "demo-smoke" / "report.html"
    assert first.stdout.strip().endswith(f"report: {page}")
    assert "too short to compare" in page.read_text() or "not the real comparison" in page.read_text()
    kept = {
        path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.suffix in (".h5", ".safetensors", ".ckpt", ".npz")
    }
    assert len({path.suffix for path in kept}) == 4
    again = phylatent("demo", "preset=smoke", "train.steps=3", PHYLATENT_HOME=str(tmp_path))
    assert again.returncode == 0
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
