"""The page in a real browser: it draws what the records hold, offline, in both themes, on a phone, and by keyboard."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_records import MARKERS, write_hostile_run
from page_checks import (
    DRAWN,
    FIRST,
    FOREIGN,
    HOVER,
    OVERLAPS,
    PAPER,
    PLACE,
    POINTS,
    TOO_WIDE,
    VIOLATIONS,
    serious_findings,
)
from report_extras import STATES, latent_map, write_films, write_map
from report_records import write_run

from phylatent.reporting.page import read_methods, render

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the test extra holds it)")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("runs")
    made = [write_run(base / variant, variant, shown=300) for variant in ("lewm", "phylatent")]
    for turn, run in enumerate(made):
        write_map(run, latent_map(float(turn)))
        write_films(run, (0,))
    return made


@pytest.fixture(scope="module")
def address(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(read_methods(runs)), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of six methods of long names, one of them with three training seeds."""
    base = tmp_path_factory.mktemp("several")
    names = ("lewm", *(f"phylatent-without-part-{number}" for number in range(4)))
    made = [write_run(base / name, name, shown=60) for name in names]
    made += [write_run(base / f"phylatent-seed{seed}", "phylatent", seed, shown=60) for seed in (0, 1, 2)]
    path = base / "report.html"
    path.write_text(render(read_methods([write_map(run) for run in made])), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def opened(browser: Any, address: str) -> Iterator[Open]:
    """opened(**context options) → the page, drawn; it notes errors, requests, dialogs, and what the page's policy refused."""
    contexts = []

    def opened(at: str = address, **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.errors, page.requests, page.dialogs = [], [], []
        page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("dialog", lambda dialog: (page.dialogs.append(dialog.message), dialog.dismiss()))
        page.add_init_script(VIOLATIONS)
        page.goto(at)
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
    low = page.evaluate(
        "() => [...document.querySelectorAll('button')].filter((b) => b.checkVisibility() && b.offsetHeight < 40).length"
    )
    assert low == 0
    lefts = page.evaluate(
        "() => [...document.querySelectorAll('[data-cloud]')].map((e) => Math.round(e.getBoundingClientRect().left))"
    )
    assert len(set(lefts)) == 1, "panels stack"
    page.get_by_role("button", name="Rotate by touch").tap()
    page.wait_for_function("() => document.querySelector('[data-cloud]')._fullLayout.scene.dragmode === 'turntable'")
    assert page.errors == []


def test_films_play_and_the_scrubber_moves_every_screen(desktop: Any) -> None:
    """The film with every step changes at every step; what was imagined, at every block; and the keyboard moves both."""
    episode = desktop.locator("article.episode", has_text="Pair 0:")
    desktop.evaluate("() => { document.querySelector('details.more').open = true; }")
    slider, shown = episode.get_by_label("Step", exact=True), "(all) => all.map((e) => e.toDataURL())"
    pictures = []
    for step in ("0", "4", "6", "50"):
        slider.fill(step)
        desktop.wait_for_timeout(150)
        pictures.append(episode.locator(".screen[data-strip] canvas").evaluate_all(shown))
    assert len(pictures[0]) == 4, "real and imagined of two models"
    at = [list(one) for one in zip(*pictures, strict=True)]
    assert len(set(at[0])) == 4, "a film with every step"
    assert at[1][0] == at[1][1] != at[1][2], "what was imagined for a block stays until the next one"
    assert slider.get_attribute("aria-valuetext") == "step 50 of 50"
    slider.focus()
    desktop.keyboard.press("Home")
    desktop.keyboard.press("ArrowRight")
    assert episode.locator("output").text_content() == "step 1 of 50"
    episode.get_by_role("button", name="Play").click()
    desktop.wait_for_function("() => [...document.querySelectorAll('output')].some((e) => /^step [4-9]/.test(e.textContent))")
    episode.get_by_role("button", name="Pause").click()
    assert episode.get_by_role("button", name="Play").is_visible()


def test_the_map_shows_the_frame_of_the_state_that_is_pointed_at(desktop: Any) -> None:
    marked = "() => [...document.querySelectorAll('[data-map]')].map((e) => [...e.data[1].x, ...e.data[1].y])"
    seen = "() => document.getElementById('map-picture').toDataURL()"
    held = latent_map()
    assert desktop.evaluate("() => document.querySelector('[data-map]').data[0].x.length") == STATES
    before, ringed = desktop.evaluate(seen), desktop.evaluate(marked)
    desktop.locator("[data-map]").first.scroll_into_view_if_needed()
    desktop.mouse.move(*desktop.evaluate(PLACE, 17))
    desktop.wait_for_function(f"() => ({seen})() !== {before!r}")
    after = desktop.evaluate(marked)
    assert after[0] == pytest.approx(held.scores[17].tolist())
    assert all(new != old for new, old in zip(after, ringed, strict=True)), "the same state is marked in every map"
    assert desktop.locator("#map-where").text_content() == f"Episode {held.episodes[17]}, row {held.steps[17]}"
    colours = "() => [...document.querySelector('[data-map]').data[0].marker.color]"
    desktop.get_by_label("Colour by").select_option("heading")
    desktop.wait_for_function(f"() => Math.abs(({colours})()[0] - {held.states[0, 2] % (2 * 3.14159265):.4f}) < 0.01")
    slider = desktop.get_by_label("State", exact=True)
    slider.focus()
    desktop.keyboard.press("End")
    assert slider.get_attribute("aria-valuetext").startswith("heading 6")


@pytest.mark.parametrize("kind, begins", [("svg", b"<svg"), ("png", b"\x89PNG"), ("csv", b"\xef\xbb\xbfpanel")])
def test_figures_are_downloaded_from_the_page(opened: Open, desktop: Any, kind: str, begins: bytes) -> None:
    with desktop.expect_download() as found:
        desktop.get_by_role(
            "button", name=f"{kind.upper()}: download Failure rates and planning success of each method"
        ).click()
    content = Path(found.value.path()).read_bytes()
    assert found.value.suggested_filename == f"headline.{kind}"
    assert content.startswith(begins)
    if kind == "svg":
        assert content.count(b"<svg") > 4
        assert b"Physical invariance" in content
        assert b"phylatent" in content
    if kind == "csv":
        assert b"Physical invariance" in content
    assert desktop.evaluate("violations") == []
    assert [url for url in desktop.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_tables_and_scatters_are_downloaded_as_tables(desktop: Any) -> None:
    rows = {}
    for name in ("Failure rates (lower", "the diagnostics in 3-D", "the map of the latent"):
        with desktop.expect_download() as found:
            desktop.get_by_role("button", name=f"CSV: download {name}").click()
        with Path(found.value.path()).open(newline="", encoding="utf-8-sig") as handle:
            rows[name[:3]] = list(csv.reader(handle))
    assert rows["Fai"][0][:3] == ["Method", "Physical invariance ↓", "Physical invariance ↓ (note)"]
    assert rows["Fai"][1][0] == "lewm"
    assert rows["Fai"][1][1].endswith("%")
    points = desktop.evaluate(POINTS)
    assert len(rows["the"]) == 1 + 2 * STATES, "the map comes last under this name"
    assert rows["the"][0][-1] == "heading"
    assert sum(points) > 0


def test_labels_keep_apart_and_nothing_is_too_wide(opened: Open, several: str) -> None:
    page = opened(several, viewport={"width": 1440, "height": 900})
    for width in (1440, 1024, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(200)
        page.wait_for_selector("html[data-ready=true]")
        page.wait_for_timeout(200)
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(TOO_WIDE) == []
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    page.evaluate("() => { document.querySelector('.lead').style.marginTop = '-2rem'; }")
    assert page.evaluate(OVERLAPS) != [], "the check sees what overlaps"
    page.context.close()


def test_nobody_is_shut_out(opened: Open) -> None:
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed (the test extra holds it)")
    page = opened(viewport={"width": 1280, "height": 900}, color_scheme="light", bypass_csp=True)
    assert serious_findings(page) == []
    page.get_by_role("button", name="Dark theme").click()
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    assert serious_findings(page) == []
    page.evaluate("() => document.querySelector('#map-colour').removeAttribute('id')")
    assert serious_findings(page, "#map"), "axe sees a control without its label"
    page.context.close()


def _agree(strict: Any, free: Any) -> bool:
    """Whether both pages show the same, once they are done with drawing: they are not at the same moment."""
    for _ in range(50):
        if strict.evaluate(DRAWN) == free.evaluate(DRAWN):
            return True
        strict.wait_for_timeout(200)
    return False


def test_the_policy_takes_nothing_from_the_drawing(opened: Open, address: str, tmp_path: Path) -> None:
    html = Path(address.removeprefix("file://")).read_text()
    without = tmp_path / "without.html"
    without.write_text(POLICY.sub("", html))
    options = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}
    strict, free = opened(**options), opened(without.as_uri(), **options)
    assert min(strict.evaluate(DRAWN)) > 0
    assert _agree(strict, free)
    assert strict.evaluate(HOVER) == free.evaluate(HOVER)
    assert all(strict.evaluate(HOVER))
    assert strict.screenshot() == free.screenshot()
    for page in (strict, free):
        page.get_by_role("button", name="Dark theme").click()
        page.get_by_role("button", name="Turn the figures left").click()
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 700, "height": 900})
        page.wait_for_function("() => !document.querySelector('nav').offsetHeight")
    assert _agree(strict, free)
    assert strict.evaluate("violations") == []
    assert strict.errors == []


def test_the_policy_stops_what_the_page_does_not_hold(opened: Open) -> None:
    page = opened(viewport={"width": 1280, "height": 900})
    page.evaluate("() => document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">')")
    page.evaluate("() => document.body.append(Object.assign(document.createElement('script'), { text: 'window.ran = 2' }))")
    page.wait_for_function("() => violations.length >= 3")
    assert page.evaluate("window.ran") is None
    # Later, because what playwright itself evaluates may evaluate in turn.
    late = "() => setTimeout(() => { try { Function('window.ran = 3')(); } catch (error) { window.refused = error.name; } })"
    page.evaluate(late)
    page.wait_for_function("() => window.refused === 'EvalError'")
    assert page.evaluate("window.ran") is None


@pytest.mark.parametrize("marker", MARKERS)
def test_texts_of_records_do_nothing(opened: Open, tmp_path: Path, marker: str) -> None:
    runs = [write_hostile_run(tmp_path, marker, number) for number in (0, 1)]
    html = render(read_methods([write_map(run, latent_map(names=(marker, "y", "angle"))) for run in runs]))
    pages = {"free": POLICY.sub("", html), "strict": html}  # escaped texts need no policy to be harmless
    if marker != MARKERS[0]:
        del pages["strict"]
    for name, content in pages.items():
        (tmp_path / f"{name}.html").write_text(content)
        page = opened((tmp_path / f"{name}.html").as_uri(), viewport={"width": 390, "height": 844}, is_mobile=True)
        shown = page.evaluate(HOVER)
        assert any(marker in text for text in shown), "hovering shows the text itself"
        assert marker in page.evaluate("() => document.querySelector('#training').textContent")
        titles = page.evaluate("() => [...document.querySelectorAll('.xtitle')].map((e) => e.textContent)")
        assert any(marker[:20] in title for title in titles), "the unit stands on an axis, as it is written"
        assert page.locator("#map-values dt").first.text_content() == marker
        assert page.title() != "pwned"
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        assert page.evaluate(FOREIGN) == []
        assert (page.dialogs, page.errors, page.evaluate("violations")) == ([], [], [])
        assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        assert len([url for url in page.requests if url.startswith("file:")]) == 1
