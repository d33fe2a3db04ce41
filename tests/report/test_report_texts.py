"""A text from a file is a text on the page, in its figures and in its files, whatever it says."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command_line import assert_user_mistake
from hostile_records import IMAGE, MARKERS, harmless, write_hostile_run
from matplotlib.figure import Figure as Canvas
from report_extras import latent_map, write_map
from report_records import write_run

from phylatent.reporting import make_report, static
from phylatent.reporting.harmless import in_figure, in_html, in_plotly, in_script, policy, slug
from phylatent.reporting.marks import Figure, Guide, Key, Panel, Series
from phylatent.reporting.page import read_methods, render

NASTY_NAMES = (
    "$\\frac$",
    "$",
    "$x$ $y",
    "a_b^c",
    "100 %",
    "\\",
    "\\$",
    "x" * 400,
    "two\nlines",
    "\x1b[2J\x00\x07",
    "_hidden",
    "\udcff",
)
DIRECTORIES = {
    "script": b"<script>alert(1)<|script>",
    "markup": b"[red]x[|] [bold",
    "quotes": b'quo\'te "s"',
    "long": b"x" * 255,
    "long, two bytes a letter": "é".encode() * 127,
    "not UTF-8": b"bytes \xff\xfe",
    "steering": b"\x1b[2J\n",
}


class Skeleton(HTMLParser):
    """Elements and the names of their attributes in order, and the text of each script and style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.code: list[tuple[str, str]] = []
        self.words = ""
        self.inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        if tag in ("script", "style"):
            self.inside = "data" if dict(attrs).get("type") == "application/json" else tag
            self.code.append((self.inside, ""))
        elif tag == "meta" and dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            kind, text = self.code[-1]
            self.code[-1] = (kind, text + data)
        else:
            self.words += data

    @property
    def data(self) -> Any:
        return json.loads(next(text for kind, text in self.code if kind == "data"))


def strings(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from strings(item, f"{place}/{key}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from strings(item, f"{place}/{at}")
    elif isinstance(value, str):
        yield place, value


def page_of(text: str, base: Path) -> str:
    runs = [write_hostile_run(base, text, number) for number in (0, 1)]
    return render(read_methods([write_map(run, latent_map(names=(text, f"{text} 2", "angle"))) for run in runs]))


@pytest.mark.parametrize("marker", MARKERS)
def test_a_text_never_changes_the_structure_of_the_page(tmp_path: Path, marker: str) -> None:
    html = page_of(marker, tmp_path / "hostile")
    hostile, plain = Skeleton(html), Skeleton(page_of(harmless(marker), tmp_path / "plain"))
    assert hostile.elements == plain.elements
    assert hostile.words.count(marker) > 50, "the texts are shown, not dropped"
    assert marker not in html
    assert [kind for kind, _ in hostile.code] == [kind for kind, _ in plain.code]
    assert [text for kind, text in hostile.code if kind != "data"] == [text for kind, text in plain.code if kind != "data"]


@pytest.mark.parametrize("marker", MARKERS)
def test_plotly_gets_no_tag_and_no_template_that_is_not_ours(tmp_path: Path, marker: str) -> None:
    hostile, plain = (
        dict(strings(Skeleton(page_of(text, tmp_path / name)).data["figures"]))
        for name, text in (("hostile", marker), ("plain", harmless(marker)))
    )
    assert hostile.keys() == plain.keys()
    changed = [place for place in hostile if hostile[place] != plain[place]]
    assert any(place.endswith("/xaxis/title/text") for place in changed), "the unit stands on an axis"
    assert any(place.endswith("/hovertemplate") for place in changed)
    for place in changed:
        for sign in ("<", ">", "%{", "$", '"'):
            assert hostile[place].count(sign) == plain[place].count(sign), (place, hostile[place])


def test_one_place_one_function() -> None:
    assert in_plotly("<b>%{x}</b> & $x$") == "&lt;b&gt;&#37;{x}&lt;/b&gt; &amp; &#36;x&#36;"
    assert in_plotly("abcde", 2) == "ab<br>cd<br>e"
    assert in_plotly("") == in_plotly("", 5) == in_figure("", 5) == ""
    assert json.loads(in_script({"a": IMAGE + "</script><!--\u2028"})) == {"a": IMAGE + "</script><!--\u2028"}
    assert not set("<>&\u2028") & set(in_script({"a": IMAGE + "</script><!--\u2028"}))
    assert in_html("a\x1b[2J\u202e\udcff\n\tb") == "a\\x1b[2J\\u202e\\xff\n\tb"
    assert in_html(7) == 7
    assert in_figure("$x$\n\x07") == r"\$x\$\n\x07"
    assert len(in_figure("x" * 1000)) == 300
    assert slug("../<b>É\x00") == "b"
    assert len(slug("x" * 1000)) == 100


def test_the_policy_allows_what_the_page_holds_by_hash_and_nothing_else(tmp_path: Path) -> None:
    html = render(read_methods([write_run(tmp_path / "run")]))
    page = Skeleton(html)
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in page.policy
    assert "http" not in page.policy
    for kind in ("script", "style"):
        held = {
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            for k, text in page.code
            if k == kind
        }
        assert held == set(rules[f"{kind}-src"].split())
    assert not any(name == "style" or name.startswith("on") for _, names in page.elements for name in names)
    assert policy(["a"], []) != policy(["b"], [])


def test_figures_write_any_name_as_it_is(tmp_path: Path) -> None:
    """Neither typeset as mathematics nor refused, and no warning of a layout that found no room."""
    for name in NASTY_NAMES:
        short = name[:20]  # what stands at marks and on guides is ours
        dots = Series(name, "#000000", (name, "other"), (0.2, 0.4), texts=(short, short))
        bars = Series(name, "#000000", (name, "other"), (0.2, 0.4), "bars", (0.1, 0.1), (0.5, 0.5), texts=("20 %\n−3 %", short))
        panels = (
            Panel(name, (dots,), (Guide(short, 0.3),), name, name, percent=True, y_from_zero=True, missing=("gone " + name,)),
            Panel(name, (bars,), x_label=name),
            Panel(name, (dots, bars), dodge=True),
            Panel(name, reason=name),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            written = static.render_figure(Figure("figure", name, panels, (Key(name, "#000000"),) * 3), tmp_path)
        assert written == ["figure.png", "figure.pdf"]


def test_dollars_are_not_mathematics() -> None:
    canvas = Canvas()
    for name in NASTY_NAMES:
        shown, is_math = canvas.text(0, 0, in_figure(name))._preprocess_math(in_figure(name))
        assert not is_math
        if name.isprintable() and len(name) < 100:
            assert shown == name


def test_a_report_of_hostile_records_is_written_whole(tmp_path: Path) -> None:
    runs = [write_hostile_run(tmp_path, IMAGE, number) for number in (0, 1)]
    page = make_report(runs, tmp_path / "out", title=f"{IMAGE}\x1b[2J\udcff")
    assert "<title>&lt;img" in page.read_text(encoding="utf-8")
    record = json.loads((page.parent / "report.json").read_text())
    assert {path.name for path in (page.parent / "figures").iterdir()} == set(record["figures"])
    assert all(re.fullmatch(r"[a-z0-9-]+\.(png|pdf)", name) for name in record["figures"])
    assert record["methods"][0]["variant"] == IMAGE, "the record keeps the text as it is"


@pytest.mark.parametrize("name", DIRECTORIES.values(), ids=DIRECTORIES.keys())
def test_directories_of_any_name_are_reported_on(here, tmp_path: Path, name: bytes) -> None:
    directory = tmp_path / "placeholder"
    write_run(directory, "lewm", diagnosed=False, protocols=())
    named = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
    directory.rename(named)
    twin = write_run(tmp_path / "twin", "lewm", diagnosed=False, protocols=())
    done = here("report", str(named), str(twin), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("report: ")
    assert done.stdout.rstrip("\n").isprintable()
    (page,) = (tmp_path / "runs").glob("*/report.html")
    assert page.parent.name.isprintable()
    assert len(os.fsencode(page.parent.name)) < 120
    again = here("report", str(named), str(twin), "out=there", cwd=tmp_path)
    assert (tmp_path / "there" / "report.html").is_file(), again.stderr


def test_two_long_names_that_begin_alike_do_not_share_a_report(here, tmp_path: Path) -> None:
    for end in "ab":
        run = write_run(tmp_path / ("x" * 200 + end), "lewm", diagnosed=False, protocols=())
        assert here("report", str(run), cwd=tmp_path).returncode == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_what_cannot_be_a_directory_gets_a_sentence(here, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", diagnosed=False, protocols=())
    assert_user_mistake(here("report", "x" * 300, cwd=tmp_path), "there are no records of xxx")
    assert_user_mistake(here("report", "~nobody-here/run", cwd=tmp_path), "there are no records of ~nobody-here")
    assert_user_mistake(here("report", str(run), f"out={'x' * 300}", cwd=tmp_path), "File name too long; choose another out=")
    (tmp_path / "file").touch()
    assert_user_mistake(here("report", str(run), "out=file", cwd=tmp_path), "file is a file; out= must name a directory")
    done = here("report", str(run), "out=file/below", cwd=tmp_path)
    assert_user_mistake(done, "file/below cannot be used: a part of it is a file, not a directory")


def test_names_alike_once_shortened_are_two_methods(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, "a" * 60 + name + "b" * 60, training=False, protocols=()) for name in ("x", "y")]
    labels = [method.label for method in read_methods(runs)]
    assert len(set(labels)) == 2
    assert all(len(label) < 80 for label in labels)
