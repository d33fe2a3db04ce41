"""The docs site: built without a warning, nothing asked of another machine, readable with a keyboard and a screen reader."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

mkdocs = pytest.importorskip("mkdocs", reason="mkdocs is not installed (the docs extra holds it)")

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-background-networking"]
FOREIGN = re.compile(r"""<(?:script|link|img|iframe|source|video)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""")
READ = ("tutorial.html", "collapses.html", "reference/settings.html")
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A process of its own: modules of the tests have names that the theme's have, too."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return place


def test_every_page_is_there_and_asks_nobody(site: Path) -> None:
    pages = {page: page.read_text() for page in site.rglob("*.html")}
    assert len(pages) >= 30
    for page, text in pages.items():
        loaded = [found for found in FOREIGN.findall(text) if "rel=canonical" not in found]
        assert not loaded, f"{page.relative_to(site)} loads {loaded}"
        assert "<!-- made:" not in text
    for name in ("index.html", "404.html"):
        assert "https://api.github.com" not in pages[site / name]


def test_the_reference_is_made_from_the_code(site: Path) -> None:
    import phylatent
    from phylatent.cli import COMMANDS

    commands, settings = ((site / "reference" / f"{name}.html").read_text() for name in ("commands", "settings"))
    for name in COMMANDS:
        assert f'id="{name}"' in commands
    for key in ("train.lr", "plan.receding", "svic.weight", "icem.beta", "conv.channels", "seed"):
        assert f"<code>{key}</code>" in settings
    python = (site / "reference" / "python.html").read_text()
    for name in phylatent.__all__:
        assert re.search(rf'id="phylatent\.[\w.]*{name}"|id="phylatent\.{name}"', python), name


def test_links_that_leave_the_docs_lead_somewhere(site: Path) -> None:
    text = (site / "own-task.html").read_text()
    assert 'href="security.html"' in text
    assert 'href="examples/pendulum.py"' in text
    assert (site / "examples" / "pendulum.py").is_file()
    assert "/blob/main/benchmarks/results" in (site / "performance.html").read_text()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)")
def test_the_site_in_a_browser(address: str) -> None:
    """Light and dark, on a desk and on a phone: no serious finding of axe-core, nothing asked of others; the search finds."""
    sync_api = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the test extra holds axe").Axe()
    asked: list[str] = []
    serious: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for scheme, width in (("light", 1280), ("dark", 390)):
            page = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}).new_page()
            page.on("request", lambda request: asked.append(request.url))
            for name in READ:
                page.goto(f"{address}/{name}")
                page.wait_for_selector("body[data-md-color-scheme]")
                shown = page.locator("body").get_attribute("data-md-color-scheme")
                assert shown == {"light": "default", "dark": "slate"}[scheme]
                for entry in axe.run(page).response["violations"]:
                    if entry["impact"] in SERIOUS:
                        where = [node["html"][:120] for node in entry["nodes"][:3]]
                        serious.append(f"{name}, {scheme}: {entry['id']} {where}")
            if scheme == "light":
                page.locator(".md-search__input").click()
                page.keyboard.type("appearance")
                page.wait_for_selector(".md-search-result__item")
        browser.close()
    assert not serious, "\n".join(serious)
    assert len(asked) > 20
    assert not [url for url in asked if not url.startswith((address, "data:", f"blob:{address}"))]
