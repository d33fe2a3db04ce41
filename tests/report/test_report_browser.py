"""The page in a real browser: it draws what the records hold, offline, in both themes, on a phone, and by keyboard."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from report_records import write_run

from phylatent.report.page import read_methods, render

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the test extra holds it)")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
POINTS = """() => [...document.querySelectorAll("[data-cloud]")].map((element) =>
    element.data.filter((trace) => trace.type === "scatter3d").reduce((sum, trace) => sum + trace.x.length, 0))"""
FIRST = """() => document.querySelector('[data-cloud="invariance"]').data[0].x[0]"""
PAPER = """() => document.querySelector('[data-figure="headline"]')._fullLayout.paper_bgcolor"""
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("runs")
    return [write_run(base / variant, variant, shown=300) for variant in ("lewm", "phylatent")]


@pytest.fixture(scope="module")
def address(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(read_methods(runs)), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def opened(browser: Any, address: str) -> Iterator[Open]:
    """opened(**context options) → the page, drawn; it notes errors and requests."""
    contexts = []

    def opened(**options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.errors, page.requests = [], []
        page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("html[data-ready=true]")
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def desktop(opened: Open) -> Any:
    return opened(viewport={"width": 1280, "height": 900}, color_scheme="light")


def test_no_error_and_no_network(desktop: Any) -> None:
    assert desktop.errors == []
    outside = [url for url in desktop.requests if not url.startswith(("file:", "data:", "blob:"))]
    assert outside == []


def test_every_figure_is_drawn(desktop: Any) -> None:
    assert desktop.evaluate("() => document.querySelectorAll('[data-figure]').length") > 10
    assert desktop.evaluate("() => [...document.querySelectorAll('[data-figure]')].every((e) => e.querySelector('svg'))")


def test_the_scatter_holds_every_point_and_the_switch_changes_it(desktop: Any, runs: list[Path]) -> None:
    def expected(run: Path) -> list[int]:
        record = json.loads((run / "diagnostics" / "paper.json").read_text())
        return [record["invariance"]["eligible"], 300, record["counterfactual"]["eligible"]]

    assert desktop.evaluate(POINTS) == expected(runs[0])
    before = desktop.evaluate(FIRST)
    other = desktop.get_by_role("button", name="phylatent · seed 0")
    other.focus()
    desktop.keyboard.press("Enter")
    desktop.wait_for_function(f"() => ({FIRST})() !== {before}")
    assert desktop.evaluate(POINTS) == expected(runs[1])
    assert other.get_attribute("aria-pressed") == "true"
    failing = desktop.evaluate("() => document.querySelector('[data-cloud]').data.slice(0, 2).map((t) => t.marker.symbol)")
    assert len(set(failing)) == 2
    desktop.get_by_role("button", name="lewm · seed 0").focus()
    desktop.keyboard.press("Space")
    desktop.wait_for_function(f"() => ({FIRST})() === {before}")


def test_the_theme_changes_the_page_and_its_figures(desktop: Any) -> None:
    background = "() => getComputedStyle(document.body).backgroundColor"
    light, paper = desktop.evaluate(background), desktop.evaluate(PAPER)
    toggle = desktop.get_by_role("button", name="Dark theme")
    assert toggle.get_attribute("aria-pressed") == "false"
    toggle.focus()
    desktop.keyboard.press("Space")
    desktop.wait_for_function(f"() => ({PAPER})() !== {paper!r}")
    assert desktop.evaluate(background) != light
    assert toggle.get_attribute("aria-pressed") == "true"
    desktop.keyboard.press("Enter")
    desktop.wait_for_function(f"() => ({PAPER})() === {paper!r}")
    assert desktop.evaluate(background) == light


def test_the_keyboard_reaches_the_controls(desktop: Any) -> None:
    desktop.evaluate("() => document.querySelector('.skip').focus()")
    assert desktop.locator(".skip").bounding_box()["x"] >= 0, "the skip link shows itself when it has the focus"
    reached = []
    for _ in range(30):
        desktop.keyboard.press("Tab")
        reached.append(desktop.evaluate("() => document.activeElement.id || document.activeElement.dataset.run"))
    assert "theme" in reached
    assert {"0", "1"} <= set(reached)
    assert "turn-left" in reached


def test_a_phone_scrolls_one_way(opened: Open) -> None:
    page = opened(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, color_scheme="dark")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    low = page.evaluate("() => [...document.querySelectorAll('button')].filter((b) => !b.hidden && b.offsetHeight < 40).length")
    assert low == 0
    lefts = page.evaluate(
        "() => [...document.querySelectorAll('[data-cloud]')].map((e) => Math.round(e.getBoundingClientRect().left))"
    )
    assert len(set(lefts)) == 1, "panels stack"
    page.get_by_role("button", name="Rotate by touch").tap()
    page.wait_for_function("() => document.querySelector('[data-cloud]')._fullLayout.scene.dragmode === 'turntable'")
    assert page.errors == []
