"""Pictures of a report page for the documents: `python docs/screenshots.py path/to/report.html [directory]`.

Needs Debian's `chromium` and the `test` extra's playwright.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FLAGS = ["--no-sandbox", "--disable-background-networking", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
SHOTS = {
    "report-light": {"viewport": {"width": 1280, "height": 1600}, "color_scheme": "light"},
    "report-dark": {"viewport": {"width": 1280, "height": 1600}, "color_scheme": "dark"},
    "report-phone": {"viewport": {"width": 390, "height": 1400}, "color_scheme": "light", "has_touch": True, "is_mobile": True},
}


SECTIONS = {"report-diagnostics": "#diagnostics", "report-map": "#map", "report-rollouts": "#rollouts"}
"""Pictures of one section each, in light."""


def take(page_file: Path, directory: Path, *, whole: bool = False) -> list[Path]:
    """The top of the page in light, dark and on a phone, `whole` for all of it, and some of its sections."""
    written = []
    directory.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, options in SHOTS.items():
            page = browser.new_context(device_scale_factor=1, **options).new_page()
            page.goto(page_file.resolve().as_uri())
            page.wait_for_selector("html[data-ready=true]", timeout=120_000)
            page.wait_for_timeout(500)
            page.screenshot(path=directory / f"{name}.png", full_page=whole)
            written.append(directory / f"{name}.png")
            for section, found in SECTIONS.items() if name == "report-light" else ():
                _at_a_step(page, 10)
                page.locator(found).first.screenshot(path=directory / f"{section}.png")
                written.append(directory / f"{section}.png")
        browser.close()
    return written


def _at_a_step(page: Page, step: int) -> None:
    """Every film at one step, as nothing has happened yet at the first; of the episodes two, which a picture has room for."""
    move = "(all, step) => all.forEach((e) => { e.value = step; e.dispatchEvent(new Event('input')); })"
    page.locator(".player input").evaluate_all(move, step)
    page.locator("details.more, .more ~ article, article ~ article ~ article").evaluate_all(
        "(all) => all.forEach((e) => e.remove())"
    )
    page.wait_for_timeout(500)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python docs/screenshots.py path/to/report.html [directory]")
    target = Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).parent
    for path in take(Path(sys.argv[1]), target):
        print(path)
