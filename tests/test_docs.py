"""The documents say what is so: the map of the paper resolves, and no short name is used before it is spelled out."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from phylatent.composition.layers import available

ROOT = Path(__file__).parents[1]
LABELS = (ROOT / "tests" / "helpers" / "paper_labels.txt").read_text().split()
HERE, REST = (ROOT / "docs" / "paper-map.md").read_text().split("## What is not here yet")
NOT_YET, SIBLINGS = REST.split("## Sibling methods")


def rows(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `([a-z]+:\w+)` \|[^|]*\| (.*) \|$", text, re.MULTILINE))


def test_every_label_is_mapped_once() -> None:
    here, not_yet = rows(HERE), rows(NOT_YET)
    assert not here.keys() & not_yet.keys()
    assert here.keys() | not_yet.keys() == set(LABELS)


def test_the_list_of_labels_is_the_papers() -> None:
    paper = ROOT.parent / "shared" / "paper" / "phylatent.tex"
    if not paper.exists():
        pytest.skip("the paper's source is not beside this checkout")
    assert re.findall(r"\\label\{((?:eq|tab|fig):[^}]*)\}", paper.read_text()) == LABELS


def siblings() -> dict[str, str]:
    return dict(re.findall(r"^\| `([\w-]+)` \|[^|]*\| (.*) \|$", SIBLINGS, re.MULTILINE))


def test_every_variant_that_is_no_ablation_is_mapped() -> None:
    assert siblings().keys() == {name for name in available("variants") if not name.startswith("no-")} - {"lewm", "phylatent"}


MAPPED = rows(HERE) | siblings()


@pytest.mark.parametrize("label, where", [(k, w) for k, v in MAPPED.items() for w in re.findall(r"`([^`]+)`", v)])
def test_every_entry_resolves(label: str, where: str) -> None:
    if where.startswith("src/"):
        assert (ROOT / where).is_file()
        return
    module, _, path = where.partition(":")
    found = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)


def test_equations_are_named_where_they_are() -> None:
    """A reader who searches the code for a label finds it."""
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for label in rows(HERE):
        if label.startswith("eq:"):
            assert label in code, label


SPELLED = dict(re.findall(r"^\*\[(\w+)\]: (.*)$", (ROOT / "docs" / "abbreviations.txt").read_text(), re.MULTILINE))
"""Short name → its words. The site shows them wherever the name stands."""
ASKED = ("SVIC", "PSG", "FRA", "CASC", "LD", "SIGReg", "CEM", "JEPA", "MPC")
EXPLAINED = ["README.md", "docs/index.md", "docs/tutorial.md", "docs/collapses.md", "docs/faq.md", "docs/comparison.md"]
EXPLAINED += [f"docs/{name}.md" for name in ("choices", "experiments", "paper-map", "results", "results-vit", "performance")]
EXPLAINED += ["docs/reliability.md"]
NEAR = 130
"""Letters between a short name and its words."""


def prose(page: str) -> str:
    """What one reads: no code, no addresses of links, one line."""
    text = (ROOT / page).read_text()
    for code in (r"(?ms)^```.*?^```$", r"`[^`]*`", r"\]\([^)]*\)", r"[*_]"):
        text = re.sub(code, " ", text)
    return " ".join(text.split())


@pytest.mark.parametrize("page", EXPLAINED)
def test_short_names_are_spelled_out_at_their_first_use(page: str) -> None:
    text = prose(page)
    for name in ASKED:
        first = re.search(rf"\b{name}s?\b", text)
        if first:
            around = text[max(0, first.start() - NEAR) : first.end() + NEAR].lower()
            assert SPELLED[name].lower() in around, f"{name} in {page}: …{around}…"


def test_the_glossary_and_the_paper_spell_them_alike() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    for name in ASKED:
        assert re.search(rf"^\| {name} \| {SPELLED[name]}", glossary, re.MULTILINE), name
    paper = ROOT.parent / "shared" / "paper" / "phylatent.tex"
    if not paper.exists():
        pytest.skip("the paper's source is not beside this checkout")
    words = " ".join(paper.read_text().split()).lower()
    for name in ASKED:
        assert SPELLED[name].lower() in words or name == "CEM", f"the paper spells {name} otherwise"
