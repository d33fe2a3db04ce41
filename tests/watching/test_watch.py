"""`watch`: a run at any moment of its life, on a page that only this machine can read."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import assert_user_mistake
from training_runs import copy_unfinished

from phylatent.errors import UserError
from phylatent.watching import state
from phylatent.watching.live import Live
from phylatent.watching.server import Server
from phylatent.watching.state import GrowingTable, Watched, check_watchable

ROOT = Path(__file__).parents[2]
EVIL = "</script><img src=x onerror=alert(1)>"


@contextlib.contextmanager
def served(*runs: Path) -> Iterator[Server]:
    with Server(Live(runs, films=False)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: Server, path: str = "/state", method: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def told(*runs: Path) -> list[dict[str, Any]]:
    return json.loads(Live(runs, films=False).state())["runs"]


@pytest.fixture
def run(uninterrupted: Path, tmp_path: Path) -> Path:
    """A run that was killed: no result, and nothing written for a while."""
    directory = copy_unfinished(uninterrupted, tmp_path / "killed")
    long_ago = time.time() - 3600
    for path in (directory, *directory.rglob("*")):
        os.utime(path, (long_ago, long_ago))
    return directory


def test_a_finished_run(uninterrupted: Path) -> None:
    with served(uninterrupted) as server:
        status, headers, body = ask(server)
    assert status == 200
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    found = json.loads(body)
    [shown] = found["runs"]
    assert (shown["status"], shown["step"], shown["total"]) == ("finished", 60, 60)
    assert shown["seconds"] > 0
    assert shown["clips_per_second"] > 0
    assert "seconds_left" not in shown
    assert ["variant", "phylatent"] in shown["facts"]
    figures = {figure["name"]: figure for figure in found["figures"]}
    titles = [panel["title"] for panel in figures["training"]["panels"]]
    assert {"Prediction", "SIGReg", "CASC", "Effective rank of validation latents"} <= set(titles)
    assert {"Prediction", "CASC"} <= {panel["title"] for panel in figures["shares"]["panels"]}
    rank = figures["training"]["panels"][titles.index("Effective rank of validation latents")]
    assert rank["data"][0]["x"] == [20, 40, 60]


def test_a_finished_run_is_at_its_last_step_though_its_tables_are_not(uninterrupted: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(uninterrupted, tmp_path / "run"))
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("predictor_steps: 0", "predictor_steps: 40"))
    [shown] = told(run)
    assert (shown["status"], shown["step"], shown["total"]) == ("finished", 100, 100)


def test_a_run_that_was_killed_and_one_that_trains(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [shown] = told(run)
    assert shown["status"] == "stopped"
    assert f"phylatent train out={run} resume=true" in shown["sentence"]
    assert shown["seconds_ago"] > 3000

    (run / "train.csv").touch()
    assert told(run)[0]["status"] == "training"
    os.utime(run / "train.csv", (0, 0))
    place = (run / ".lock").stat()
    locks = run / "locks"
    locks.write_text(
        f"1: FLOCK  ADVISORY  WRITE 7 {os.major(place.st_dev):02x}:{os.minor(place.st_dev):02x}:{place.st_ino} 0 EOF\n"
    )
    monkeypatch.setattr(state, "LOCKS", locks)
    assert told(run)[0]["status"] == "training"


def test_the_time_left_is_that_of_the_steps_left(run: Path) -> None:
    rows = (run / "train.csv").read_text().splitlines(keepends=True)
    (run / "train.csv").write_text("".join(rows[:31]))  # 30 of 60 steps
    (run / "validation.csv").unlink()
    [shown] = told(run)
    header, last = (row.strip().split(",") for row in (rows[0], rows[30]))
    speed = float(last[header.index("clips_per_second")])
    assert (shown["status"], shown["step"]) == ("training", 30)
    assert shown["seconds_left"] == pytest.approx(30 * 8 / speed, abs=0.06)


def test_a_run_that_has_not_begun(tmp_path: Path, uninterrupted: Path) -> None:
    later = tmp_path / "later"
    live = Live([later], films=False)
    assert json.loads(live.state())["runs"][0]["status"] == "not begun"
    later.mkdir()
    shutil.copy(uninterrupted / "config.yaml", later)
    live.made = (0.0, "")
    [shown] = json.loads(live.state())["runs"]
    assert (shown["status"], shown["step"], shown["total"]) == ("training", 0, 60)


def test_a_line_that_is_still_being_written_is_left_out(run: Path) -> None:
    whole = (run / "train.csv").read_bytes()
    for cut in (len(whole) - 3, len(whole) - 1, whole.index(b"\n") + 4, whole.index(b"\n") - 3, 0):
        (run / "train.csv").write_bytes(whole[:cut])
        table = GrowingTable(run / "train.csv").read()
        assert (table is None) == (cut <= whole.index(b"\n") + 4)
        if table is not None:
            assert table["step"][-1] == 59
        assert told(run)[0]["status"] == "training"


def test_a_damaged_table_is_told_and_the_other_run_is_shown(run: Path, uninterrupted: Path) -> None:
    (run / "train.csv").write_text("step,pred\n1,2,3\n")
    broken, fine = told(run, uninterrupted)
    assert "line 2 has not as many cells" in broken["sentence"]
    assert fine["status"] == "finished"
    assert not fine["sentence"]


def test_a_long_table_is_drawn_with_few_points_and_looked_at_rarely(run: Path) -> None:
    (run / "train.csv").write_text("step,pred,clips_per_second\n" + "".join(f"{at},0.5,9\n" for at in range(1, 3001)))
    watched = Watched(run, "run")
    table = watched.snapshot().train
    assert table is not None
    assert len(table["step"]) <= state.ROWS
    assert table["step"][-1] == 3000
    grows = GrowingTable(run / "train.csv")
    grows.read()
    with (run / "train.csv").open("a") as handle:
        handle.write("3001,0.4,9\n")
    columns = grows.read()
    assert columns is not None
    assert columns["step"][-1] == 3000, "read again at once"
    grows.not_before = 0.0
    columns = grows.read()
    assert columns is not None
    assert columns["step"][-1] == 3001


def test_rates_that_were_measured_on_the_way_have_a_figure(run: Path) -> None:
    (run / "validation.csv").write_text("step,pred,diagnose/invariance\n10,1.0,nan\n20,0.5,0.25\n30,0.4,0.125\n")
    figures = {figure["name"]: figure for figure in json.loads(Live([run], films=False).state())["figures"]}
    [panel] = figures["rates"]["panels"]
    assert panel["data"][0]["y"] == [0.25, 0.125]
    assert "diagnose/invariance" not in [one["title"] for one in figures["training"]["panels"]]


def test_what_is_no_run_is_one_sentence(here, tmp_path: Path, uninterrupted: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("none")
    for place, sentence in {
        "other": "other is neither a run directory (no config.yaml) nor a model directory",
        "other/notes.txt": "other/notes.txt is a file; watch takes the directory that train writes to",
        "nowhere/run": "nowhere/run is not there, nor is the directory it would be in",
        "x" * 300: "cannot be watched",
    }.items():
        assert_user_mistake(here("watch", place, cwd=tmp_path), sentence)
    assert_user_mistake(here("watch", cwd=tmp_path), "name what to watch")
    for key, sentence in {
        "port=many": "port=many: expected a whole number up to 65535",
        "port=70000": "expected a whole number",
        "until=tomorrow": "until=tomorrow: expected finished",
        "address=0.0.0.0": "nothing else; found address",
        "films=perhaps": "expected true or false",
        "out=x": "watch takes runs, port=",
    }.items():
        assert_user_mistake(here("watch", str(uninterrupted), key, cwd=tmp_path), sentence)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_user_mistake(here("watch", str(uninterrupted), f"port={port}", cwd=tmp_path), f"port={port} cannot be used")
    with pytest.raises(UserError, match="named twice"):
        Live([uninterrupted, uninterrupted / "."], films=False)
    alone = Path(shutil.copytree(uninterrupted / "model", tmp_path / "alone"))
    with pytest.raises(UserError, match="a model without its training"):
        check_watchable(alone)


def test_only_this_machine_and_only_reading(uninterrupted: Path) -> None:
    with served(uninterrupted) as server:
        assert server.server_address[0] == "127.0.0.1"
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::]", "localhost:80:evil"):
            assert ask(server, Host=host)[0] == 421, host
        for host in ("localhost", f"localhost:{server.server_port}", "127.0.0.1:9999", "LocalHost"):
            assert ask(server, Host=host)[0] == 200, host
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
            assert ask(server, method=method)[0] == 405, method
        assert ask(server, method="BREW")[0] == 501
        for path in (
            "/config.yaml",
            "/../config.yaml",
            "/state/",
            "/%2e%2e/config.yaml",
            f"{uninterrupted}/run.json",
        ):
            status, _, body = ask(server, path)
            assert status == 404, path
            assert b"tworooms" not in body
        assert ask(server, Sec_Fetch_Site="cross-site")[0] == 403
        assert ask(server, Sec_Fetch_Site="same-origin")[0] == 200
        _, headers, _ = ask(server, "/films")
        assert ask(server, "/films", If_None_Match=headers["ETag"])[0] == 304


def test_the_page_runs_its_own_scripts_only(uninterrupted: Path, tmp_path: Path) -> None:
    evil = Path(shutil.copytree(uninterrupted, tmp_path / EVIL.replace("/", "")))
    table = (evil / "validation.csv").read_text()
    (evil / "validation.csv").write_text(table.replace("effective_rank", '"<b>%{x}$\\evil$\x1b"', 1))
    with served(evil) as server:
        status, headers, page = ask(server, "/")
        state = ask(server)[2]
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    text = page.decode()
    assert "onerror" not in text.split("<script>")[0]
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=[\"']?(http|//)", text)
    assert b"\\u001b" not in state
    assert b"&lt;b&gt;" in state, "plotly reads tags"


def test_the_command_draws_films_writes_nothing_and_ends_with_ctrl_c(uninterrupted: Path, tmp_path: Path) -> None:
    run = copy_unfinished(uninterrupted, tmp_path / "run")
    shutil.rmtree(run / "model")
    before = {path: path.stat().st_mtime_ns for path in (run, *run.rglob("*"))}
    command = [sys.executable, "-m", "phylatent", "watch", str(run)]
    environment = os.environ | {"COLUMNS": "200"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            found = re.match(r"watch: http://127\.0\.0\.1:(\d+)/\n", process.stdout.readline())
            assert found is not None
            films: dict[str, Any] = {}
            deadline = time.monotonic() + 120
            while not films and time.monotonic() < deadline:
                connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
                connection.request("GET", "/films")
                films = json.loads(connection.getresponse().read())
                connection.close()
                time.sleep(0.1)
            assert films["0"]["image"].startswith("data:image/webp;base64,"), films
            assert films["0"]["weights"] == "step-00000060"
            assert films["0"]["rows"] == ["real", "imagined", "real", "imagined"]
            assert films["0"]["columns"][:3] == ["start", "5", "10"]
        finally:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert "stopped watching" in out
    assert before == {path: path.stat().st_mtime_ns for path in (run, *run.rglob("*"))}


def test_the_guides_commands(here, uninterrupted: Path, tmp_path: Path) -> None:
    """As they stand, but with runs that are finished, so that each ends by itself."""
    shown = re.findall(r"^phylatent watch .*$", (ROOT / "docs" / "watch.md").read_text(), re.MULTILINE)
    assert len(shown) >= 3
    for line in shown:
        arguments = line.partition("#")[0].replace("port=8080", "port=0").split()[1:]
        for name in (argument for argument in arguments if argument.startswith("runs/")):
            (tmp_path / "runs").mkdir(exist_ok=True)
            if not (tmp_path / name).exists():
                (tmp_path / name).symlink_to(shutil.copytree(uninterrupted, tmp_path / Path(name).name))
        done = here(*arguments, "until=finished", "films=false", cwd=tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert "http://127.0.0.1:" in done.stdout
