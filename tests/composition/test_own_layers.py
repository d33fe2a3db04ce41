"""Variants and presets of the user's own: YAML files named by their paths, or brought by an installed package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from own_packages import install

from phylatent import compose
from phylatent.composition import load_config, save_config
from phylatent.errors import UserError
from phylatent.objectives import OBJECTIVES
from phylatent.runs import data_path, default_directory
from phylatent.trust import allow

STRAIGHTER = Path(__file__).parents[2] / "docs" / "examples" / "straighter.yaml"
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """write(text, name="mine.yaml") → its path."""

    def write(text: str, name: str = "mine.yaml") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_a_variant(write: Write, tmp_path: Path) -> None:
    config = compose(preset="smoke", variant=write("objectives: [pred, sigreg]\nsigreg: {weight: 0.3}"))
    assert (config.variant, config.objectives, config.objective_settings["sigreg"].weight) == ("mine", ("pred", "sigreg"), 0.3)
    assert default_directory(config).name == "tworooms-smoke-mine-seed0"
    save_config(config, tmp_path / "config.yaml")
    (tmp_path / "mine.yaml").unlink()
    assert load_config(tmp_path / "config.yaml") == config


def test_a_variant_that_extends_another_wins_over_all_that_it_says(write: Write) -> None:
    plus, mine = (compose("pusht", "laptop", name) for name in ("phylatent-plus", write("extends: phylatent-plus")))
    assert replace(mine, variant=plus.variant) == plus
    path = write(
        "extends: mine.yaml\nsvic: {weight: 0.7}\npresets: {laptop: {tasks: {pusht: {ld: {weight: 0.2}}}}}", "next.yaml"
    )
    further = compose("pusht", "laptop", path).objective_settings
    assert (plus.objective_settings["svic"].weight, further["svic"].weight, further["ld"].weight) == (1.0, 0.7, 0.2)
    assert further["casc"] == plus.objective_settings["casc"]
    assert compose("tworooms", "laptop", path).objective_settings["ld"].weight == 0.01


def test_paths_in_a_variant_are_relative_to_it() -> None:
    allow(STRAIGHTER.with_name("straight.py"))
    config = compose(preset="smoke", variant=str(STRAIGHTER))
    OBJECTIVES.pop("straight")
    assert config.objectives[-1] == "straight"
    assert config.objective_files == {"straight": str(STRAIGHTER.with_name("straight.py"))}
    assert config.objective_settings["straight"].power == 2


def test_a_preset(write: Write) -> None:
    shipped, mine = (compose("pusht", name) for name in ("laptop", write("extends: laptop\ntrain: {steps: 7}", "evening.yaml")))
    assert (mine.preset, mine.train.steps) == ("evening", 7)
    assert replace(mine, preset="laptop", train=shipped.train) == shipped
    assert data_path(mine).name == "pusht-evening.h5"


@pytest.mark.parametrize("kind", ["preset", "variant"])
@pytest.mark.parametrize("name, text, sentence", [
    ("mine.yaml", "- 1", "mine.yaml is a list; a {kind} is a mapping of keys"),
    ("mine.yaml", "", "mine.yaml is empty; a {kind} is a mapping of keys"),
    ("mine.yaml", "a: [", "mine.yaml is not YAML: "),
    ("mine.yaml", "train: {stpes: 3}", "mine.yaml: unknown key 'train.stpes'; did you mean 'train.steps'?"),
    ("mine.yaml", "casc: {weigth: 3}", "mine.yaml: unknown key 'casc.weigth'; did you mean 'casc.weight'?"),
    ("mine.yaml", "train: 3", "mine.yaml: unknown key 'train'"),
    ("mine.yaml", "train: {steps: many}", "mine.yaml: wrong value for train.steps"),
    ("mine.yaml", "task: pusht", "mine.yaml: a {kind} cannot say what task is"),
    ("mine.yaml", "extends: [a, b]", "mine.yaml: extends is ['a', 'b']; it must be the name or the path of one {kind}"),
    ("mine.yaml", "extends: mine.yaml", "mine.yaml extends itself"),
    ("mine.yaml", "extends: phylatint", "unknown {kind} 'phylatint'"),
    ("my file.yaml", "seed: 1", "its name becomes part of directory names"),
    ("mine.txt", "seed: 1", "mine.txt is not a {kind} file: one is a YAML file, *.yaml"),
])  # fmt: skip
def test_files_that_are_none(kind: str, name: str, text: str, sentence: str, write: Write) -> None:
    with pytest.raises(UserError) as caught:
        compose(**{kind: write(text, name)})
    assert sentence.format(kind=kind) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind, name", [("preset", "laptop"), ("variant", "phylatent")])
def test_a_name_that_is_taken(kind: str, name: str, write: Write) -> None:
    with pytest.raises(UserError, match=f"called '{name}', which is the name of one of phylatent's own; rename the file"):
        compose(**{kind: write("seed: 1", f"{name}.yaml")})


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"there is no variant file nowhere\.yaml; check the path in variant="):
        compose(variant="nowhere.yaml")
    with pytest.raises(UserError, match="one of your own is named by its file: preset=path/to/file"):
        compose(preset="xyzxyz")


def test_an_installed_package(site: Path) -> None:
    points = {
        "phylatent.variants": {"bent": "layered.all:BENT", "odd": "layered.all:ODD", "lewm": "layered.all:BENT"},
        "phylatent.presets": {"evening": "layered.all:EVENING"},
    }
    text = """
from pathlib import Path
BENT = {"extends": "phylatent", "ld": {"weight": 0.5}}
EVENING = Path(__file__).with_name("evening.yaml")
ODD = 3
"""
    install(site, points, "layered", all=text)
    (site / "layered" / "evening.yaml").write_text("extends: smoke\ntrain: {steps: 9}")
    for _ in range(2):  # the dictionary is not used up
        config = compose(preset="evening", variant="bent")
        assert (config.preset, config.variant) == ("evening", "bent")
        assert (config.train.steps, config.objective_settings["ld"].weight) == (9, 0.5)
    with pytest.raises(UserError, match=r"variant 'odd' of package layered .* is of type int; it must be a dictionary, or"):
        compose(variant="odd")
    with pytest.raises(UserError, match=r"package layered .* brings a variant 'lewm', which is the name of one of phylatent"):
        compose(variant="lewm")
    with pytest.raises(UserError, match="unknown variant 'bend'; did you mean 'bent'"):
        compose(variant="bend")
