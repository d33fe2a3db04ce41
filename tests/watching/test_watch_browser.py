"""The watching page in a real browser: drawn from a run that grows, without a flicker, an error or a request elsewhere."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from page_checks import VIOLATIONS, serious_findings
from training_runs import copy_unfinished

from phylatent.watching.films import Shown
from phylatent.watching.live import Live
from phylatent.watching.server import Server

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the test extra holds it)")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)")
FLAGS = ["--no-sandbox", "--disable-background-networking"]
PIXEL = "data:image/webp;base64,UklGRh4AAABXRUJQVlA4TBEAAAAvA8AAAAdQjyLXo/+BiOh/AAA="
STEPS = "() => document.querySelector('#cards dd').textContent"
POINTS = "() => Math.max(...[...document.querySelectorAll('.plot')].flatMap((e) => e.data.flatMap((t) => t.x)))"
EVIL = "<img src=x onerror=alert(1)>"


def test_the_page_grows_with_its_run_and_stays_at_home(uninterrupted: Path, tmp_path: Path) -> None:
    run = copy_unfinished(uninterrupted, tmp_path / EVIL)
    whole = (run / "train.csv").read_text().splitlines(keepends=True)
    (run / "train.csv").write_text("".join(whole[:21]))
    (run / "validation.csv").unlink()
    live = Live([run, tmp_path / "later"])
    assert live.films is not None
    live.films.shown[0] = Shown(1, "step-00000020", "", PIXEL, ("real",), ("start",), (4, 4))
    live.films.shown[1] = Shown(1, "", f"there is {EVIL}")
    with Server(live) as server, sync_api.sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        errors, requests = [], []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.add_init_script(VIOLATIONS)
        page.goto(server.address)
        page.wait_for_selector("html[data-ready=true]", timeout=120_000)
        assert page.evaluate(STEPS) == "20 of 60"
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        card = page.query_selector("#cards article")
        (run / "train.csv").write_text("".join(whole[:41]))
        page.wait_for_function(f"() => ({STEPS})() === '40 of 60' && ({POINTS})() === 40", timeout=60_000)
        assert card.is_visible(), "the card was made anew"
        assert EVIL in page.inner_text("#cards")
        assert page.evaluate("() => document.querySelectorAll('canvas').length") == 1
        assert page.evaluate("() => document.querySelectorAll('img').length") == 0
        page.click("#theme")
        assert page.evaluate("() => violations") == []
        seen = browser.new_context(bypass_csp=True).new_page()  # axe is a script that the page does not hold
        seen.goto(server.address)
        seen.wait_for_selector("html[data-ready=true]", timeout=120_000)
        assert serious_findings(seen) == []
        server.shutdown()
        server.server_close()
        page.wait_for_selector("#gone:not([hidden])", timeout=60_000)
        browser.close()
    assert [error for error in errors if "ERR_CONNECTION_REFUSED" not in error] == []
    assert all(url.startswith((server.address, "data:")) for url in requests)
