"""Full and read-only disks, places that vanish, clocks that jump, two of a command at once: a sentence or the same result."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from small_collection import contents
from training_runs import assert_same_run

from phylatent import import_model
from phylatent.commands.report import report
from phylatent.data.readers import open_episodes
from phylatent.data.verify import read_all
from phylatent.judging.diagnose import diagnose
from phylatent.judging.plan import plan
from phylatent.tasks.tworooms import TASK
from phylatent.training import callbacks

Command = Callable[[Path], list[str]]
"""Where it writes → its command line."""
COMMANDS = [
    *("collect", "prepare", "inspect", "train", "train the predictor", "diagnose", "plan", "report"),
    *("import a model", "import data", "export"),
]


@pytest.fixture(scope="module")
def judged(uninterrupted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with records, for pages about it."""
    run = Path(shutil.copytree(uninterrupted, tmp_path_factory.mktemp("judged") / "run"))
    diagnose([run], overrides=["workers=1"])
    plan([run], overrides=["workers=1"])
    return run


@pytest.fixture(scope="module")
def commands(
    tworooms_data: Path, uninterrupted: Path, judged: Path, released: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Command]:
    archive = tmp_path_factory.mktemp("archive") / "tworoom.h5.zst"
    archive.write_bytes(zstandard.compress(tworooms_data.read_bytes()))
    train = ["train", "preset=smoke", f"data={tworooms_data}", "device=cpu", "train.steps=10"]
    return {
        "collect": lambda out: ["collect", "preset=smoke", "collect.workers=1", f"out={out}/data.h5"],
        "prepare": lambda out: ["prepare", str(tworooms_data), "prepare.workers=1", f"out={out}/data.frames"],
        "inspect": lambda out: ["inspect", str(tworooms_data), f"out={out}/inspected"],
        "train": lambda out: [*train, f"out={out}/run"],
        "train the predictor": lambda out: [*train, "train.predictor_steps=10", f"out={out}/run"],
        "diagnose": lambda out: ["diagnose", str(uninterrupted), "diagnose.workers=1", f"out={out}/judged"],
        "plan": lambda out: ["plan", str(uninterrupted), "plan.workers=1", f"out={out}/judged"],
        "report": lambda out: ["report", str(judged), f"out={out}/page"],
        "import a model": lambda out: ["import", str(released), "task=tworooms", f"out={out}/model"],
        "import data": lambda out: ["import", str(archive), f"out={out}/tworoom.h5"],
        "export": lambda out: ["export", str(uninterrupted), f"out={out}/exported"],
    }


def assert_one_sentence(done: subprocess.CompletedProcess, *parts: str) -> None:
    """Of the last line, since trainings talk before it."""
    assert done.returncode in (1, 2), (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    assert "not your mistake" not in done.stderr, done.stderr
    sentence = done.stderr.strip().splitlines()[-1]
    assert sentence.startswith("error: "), done.stderr
    assert any(part in sentence for part in parts), sentence


def assert_nothing_half(place: Path) -> None:
    """Whatever has a name is whole."""
    for path in place.rglob("*"):
        assert ".partial" not in path.name, path
        if path.suffix == ".json":
            json.loads(path.read_text())
        if path.suffix == ".h5":
            read_all(path)


# Too little for anything, and enough to get somewhere: into the training, to its second checkpoint, to the export, to figures.
SIZES = {
    "collect": (16, 60),
    "prepare": (16, 1132),
    "inspect": (4, 12),
    "train": (4, 12, 16, 20, 60, 15_000, 21_900),
    "train the predictor": (22_200,),
    "diagnose": (4, 28),
    "plan": (4, 32),
    "report": (4, 300),
    "import a model": (8, 400),
    "import data": (8, 100),
    "export": (8, 400),
}


@pytest.mark.parametrize("name, kilobytes", [(name, size) for name in COMMANDS for size in SIZES[name]])
def test_a_full_disk(here, mount, tmp_path, commands, name, kilobytes):
    disk = mount(kilobytes)
    done = here(*commands[name](disk), cwd=tmp_path)
    assert_one_sentence(done, "no space left on the disk", "but the disk has")
    assert_nothing_half(disk)
    if kilobytes > 20_000:
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        done = here("train", f"out={disk}/run", "resume=true", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (disk / "run" / "result.json").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_can_only_be_read_from(here, mount, tmp_path, commands, name):
    disk = mount(64)
    if subprocess.run(["mount", "-o", "remount,ro", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a disk anew is not permitted here")
    done = here(*commands[name](disk), cwd=tmp_path)
    assert_one_sentence(done, "the disk can only be read from", "Read-only file system")
    assert str(disk) in done.stderr


def test_a_home_that_is_not_there_yet(here, monkeypatch, tmp_path):
    monkeypatch.setenv("PHYLATENT_HOME", str(tmp_path / "new" / "home"))
    assert here("collect", "preset=smoke", "collect.workers=1", cwd=tmp_path).returncode == 0
    assert (tmp_path / "new" / "home" / "data" / "tworooms-smoke.h5").is_file()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("diagnose", "plan")])
def test_a_home_that_is_a_file(here, monkeypatch, tmp_path, commands, name):
    """Records of a run go into the run; everything else goes home unless it is told otherwise."""
    home = tmp_path / "home"
    home.write_text("mine")
    monkeypatch.setenv("PHYLATENT_HOME", str(home))
    arguments = [argument for argument in commands[name](tmp_path) if not argument.startswith("out=")]
    assert_one_sentence(here(*arguments, cwd=tmp_path), "a part of it is a file, not a directory")
    assert home.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [home]


def after(calls: int, then: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does something else, too, when it is called for the n-th time."""
    count = 0

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count == calls:
            then()
        return original(*arguments, **named)

    return counted


def test_a_home_that_vanishes_during_a_collection(here, monkeypatch, tmp_path):
    from phylatent.data import shards

    home = tmp_path / "home"
    monkeypatch.setenv("PHYLATENT_HOME", str(home))
    monkeypatch.setattr(shards, "record_episode", after(6, lambda: shutil.rmtree(home), shards.record_episode))
    done = here("collect", "preset=smoke", "collect.workers=1", cwd=tmp_path)
    assert_one_sentence(done, "shard-00001.h5: its directory is not there, or no longer")
    assert not list(tmp_path.rglob("*.h5"))


@pytest.mark.parametrize("log_every", [1, 50])
def test_a_run_that_vanishes_during_its_training(here, monkeypatch, tmp_path, commands, log_every):
    """Nothing of it comes back: half a run would look like a whole one."""
    run = tmp_path / "run"
    seen = callbacks.Checkpoints.on_train_batch_end
    monkeypatch.setattr(callbacks.Checkpoints, "on_train_batch_end", after(3, lambda: shutil.rmtree(run), seen))
    done = here(*commands["train"](tmp_path), f"train.log_every={log_every}", "train.validate_every=10", cwd=tmp_path)
    assert_one_sentence(done, str(run))
    assert not list(tmp_path.rglob("*.ckpt"))
    assert not (run / "model").exists()


DAY, YEAR = 86_400.0, 365 * 86_400.0


@pytest.fixture(params=[-DAY, YEAR], ids=["a day back", "a year on"])
def jump(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The wall clock, which jumps when it is called."""
    real, real_ns, shift = time.time, time.time_ns, 0.0

    def jump() -> None:
        nonlocal shift
        shift = request.param

    monkeypatch.setattr(time, "time", lambda: real() + shift)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(shift * 1e9))
    return jump


def test_a_clock_that_jumps_during_a_training(here, monkeypatch, tmp_path, arguments, uninterrupted, jump):
    """Weights, tables and checkpoints are those of a run in calm times, and the time it took is the time it took."""
    saved: list[int] = []
    save, seen = callbacks.Checkpoints._save, callbacks.Checkpoints.on_train_batch_end

    def counted(self: Any, trainer: Any, module: Any) -> None:
        saved.append(trainer.global_step)
        save(self, trainer, module)

    monkeypatch.setattr(callbacks.Checkpoints, "_save", counted)
    monkeypatch.setattr(callbacks.Checkpoints, "on_train_batch_end", after(7, jump, seen))
    done = here("train", *arguments, "train.checkpoint_every=20", f"out={tmp_path}/run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert saved == [20, 40, 60], "none for the minutes that only the wall clock counted"
    assert_same_run(tmp_path / "run", uninterrupted)
    (seconds,) = json.loads((tmp_path / "run" / "time.json").read_text())["seconds_of_starts"]
    assert 0 < seconds < 600


def test_a_clock_that_jumps_during_a_collection(here, monkeypatch, tmp_path, tworooms_data, jump):
    from phylatent.data import shards

    monkeypatch.setattr(shards, "record_episode", after(3, jump, shards.record_episode))
    done = here("collect", "preset=smoke", "collect.workers=1", "out=data.h5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "data.h5") == contents(tworooms_data)
    assert 0 <= json.loads((tmp_path / "data.h5.json").read_text())["seconds"] < 600


def _run_all(number: int, lines: list[list[str]], together: Any, answers: Any) -> None:
    """One command after another, each at the same moment as the other process."""
    if hasattr(os, "sched_setaffinity"):  # threads of two trainings that wait for each other on the same cores crawl
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})
    from phylatent.cli import main

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for line in lines:
        sys.argv = ["phylatent", *line]
        out, err = io.StringIO(), io.StringIO()
        together.wait(120)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                answers.send((end.code, err.getvalue()))


def test_two_of_each_command_at_once(tmp_path, commands, tworooms_data, uninterrupted):
    """Both end well, or one of them with a sentence; what is there afterwards is whole, and what one alone would have made."""
    names = [name for name in COMMANDS if name != "train the predictor"]
    lines = [commands[name](tmp_path / name.replace(" ", "-")) for name in names]
    context = multiprocessing.get_context("spawn")
    together, pipes = context.Barrier(2), [context.Pipe(duplex=False) for _ in range(2)]
    processes = [
        context.Process(target=_run_all, args=(number, lines, together, ours), daemon=True)
        for number, (_, ours) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    try:
        for name in names:
            ends = []
            for theirs, _ in pipes:
                assert theirs.poll(120), name
                ends.append(theirs.recv())
            assert min(code for code, _ in ends) == 0, (name, ends)
            print(name, *(said.strip() or "well" for _, said in ends), sep=": ")
            for code, said in ends:
                if code:
                    assert_one_sentence(
                        subprocess.CompletedProcess(name, code, "", said), "another process", "by now", "overwritten"
                    )
                    assert code == 2
    finally:
        for process in processes:
            process.kill()
            process.join()
    for place in tmp_path.iterdir():
        assert_nothing_half(place)
        assert not [path for path in place.rglob("*.lock") if path != place / "run" / ".lock"]
    fingerprint = open_episodes(tworooms_data, TASK).fingerprint()
    for made in ("collect/data.h5", "prepare/data.frames", "import-data/tworoom.h5"):
        assert open_episodes(tmp_path / made, TASK).fingerprint() == fingerprint
    for made in ("train/run/result.json", "plan/judged/planning/paper/result.json", "report/page/report.html"):
        assert (tmp_path / made).is_file()
    for made in ("import-a-model/model/config.json", "export/exported/config.json", "diagnose/judged/diagnostics/paper.json"):
        assert (tmp_path / made).is_file()


def test_while_one_measures_another_is_told(monkeypatch, tmp_path, uninterrupted):
    """With other settings, whose record would take the place of the first one's."""
    from phylatent.errors import UserError
    from phylatent.judging import diagnose as judging

    def meanwhile() -> None:
        with pytest.raises(UserError, match=r"another process is measuring .*paper\.json right now; wait for it"):
            diagnose([uninterrupted], overrides=["workers=1", "pairs=100"], out=tmp_path / "judged")

    monkeypatch.setattr(judging, "diagnose_model", after(1, meanwhile, judging.diagnose_model))
    (record,) = diagnose([uninterrupted], overrides=["workers=1"], out=tmp_path / "judged")
    assert record["key"]["pairs"] == 200
    with pytest.raises(UserError, match=r"other settings \(pairs\); nothing was overwritten"):
        diagnose([uninterrupted], overrides=["workers=1", "pairs=100"], out=tmp_path / "judged")
    assert not list(tmp_path.rglob("*.lock"))


def test_while_one_reports_another_is_told(monkeypatch, tmp_path, uninterrupted):
    from phylatent.errors import UserError
    from phylatent.reporting import page

    def meanwhile() -> None:
        with pytest.raises(UserError, match="another process is writing a report to"):
            report([uninterrupted], out=tmp_path / "page", title="another")

    monkeypatch.setattr(page, "write_json", after(1, meanwhile, page.write_json))
    assert "<title>the first" in report([uninterrupted], out=tmp_path / "page", title="the first").read_text()
    assert json.loads((tmp_path / "page" / "report.json").read_text())["title"] == "the first"


def test_two_imports_of_one_name_leave_the_first(tmp_path, released):
    """One that is done while another is still at it: the later one says so, and takes nothing away."""
    from phylatent.errors import UserError
    from phylatent.models.lewm import exchange

    with pytest.MonkeyPatch.context() as patch:
        first = lambda: import_model(released, task="tworooms", out=tmp_path / "model")  # noqa: E731
        patch.setattr(exchange, "from_lewm", after(1, first, exchange.from_lewm))
        with pytest.raises(UserError, match="something is there by now"):
            import_model(released, task="tworooms", out=tmp_path / "model")
    assert (tmp_path / "model" / "config.json").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
