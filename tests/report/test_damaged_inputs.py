"""Records that a page is made of, cut or forged: one sentence that names the file, or shown as missing; never a traceback."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import assert_user_mistake
from report_records import write_run

from phylatent.errors import UserError
from phylatent.reporting.page import read_methods, render
from phylatent.reporting.strips import filmstrips

DEEP = '{"a":' * 100_000
AGAIN = "make that record again, or report without it"
RECORDS = ("diagnostics/paper.json", "diagnostics/ordering.json", "planning/paper/result.json", "result.json")


def change(path: Path, name: str, value: Any) -> None:
    record = json.loads(path.read_text())
    inner = record
    *way, last = [int(part) if part.isdigit() else part for part in name.split(".")]
    for part in way:
        inner = inner[part]
    inner[last] = value
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("content", ["", "{", "null", "[]", DEEP, "\x00\x01"])
def test_a_record_that_is_none(name: str, content: str, tmp_path: Path, here) -> None:
    run = write_run(tmp_path / "run")
    (run / name).write_text(content)
    done = here("report", str(run), "out=page", cwd=tmp_path)
    assert_user_mistake(done, f"{run / name} is damaged: it")
    assert AGAIN in done.stderr
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize(
    "name, content, sentence",
    [
        ("config.yaml", "a: [", "it is not YAML"),
        ("config.yaml", "- 1", "it holds a list, not a mapping of keys"),
        ("config.yaml", "pred: 3", "pred is 3, expected an object"),
        ("config.yaml", "task: [1]", "task is a list, expected a text"),
        ("config.yaml", "seed: x", "seed is 'x', expected a whole number"),
        ("config.yaml", "&a [*a]", "it is not YAML"),
        ("train.csv", "loss\n1\n", "line 2 has no step"),
        ("train.csv", "step,loss\n1,x\n", "loss in line 2 is 'x', expected a number"),
        ("validation.csv", "step,loss\n1\n", "line 2 has not as many cells"),
    ],
)
def test_what_training_left(name: str, content: str, sentence: str, tmp_path: Path, here) -> None:
    run = write_run(tmp_path / "run")
    (run / name).write_text(content)
    assert_user_mistake(here("report", str(run), cwd=tmp_path), f"{run / name} is damaged: {sentence}")


FORGED = [
    ("diagnostics/paper.json", "invariance.rate", "x", "invariance.rate is 'x', expected a finite number"),
    ("diagnostics/paper.json", "invariance", [1], "invariance is a list, expected an object"),
    ("diagnostics/paper.json", "invariance.interval", [1], "expected two finite numbers"),
    ("diagnostics/paper.json", "counterfactual.by_horizon", {"1": None}, "counterfactual.by_horizon.1 is null"),
    ("diagnostics/paper.json", "invariance.failures", None, "invariance has only one of failures and eligible"),
    ("planning/paper/result.json", "policies.model.count", None, "policies.model has only one of successes and count"),
    ("diagnostics/paper.json", "mine", {"rate": "x"}, "mine.rate is 'x', expected a finite number"),
    ("diagnostics/paper.json", "model", [1], "model is a list, expected an object"),
    ("diagnostics/paper.json", "model.training_seed", "x", "model.training_seed is 'x', expected a whole number"),
    ("diagnostics/paper.json", "key", 3, "key is 3, expected an object"),
    ("diagnostics/paper.json", "sample", [1], "sample is a list, expected a text"),
    ("diagnostics/paper.json", "provenance", [1], "provenance is a list, expected an object"),
    ("planning/paper/result.json", "policies.model", [1], "policies.model is a list, expected an object"),
    ("planning/paper/result.json", "policies.model.rate", "x", "policies.model.rate is 'x'"),
    ("planning/paper/result.json", "episodes", [1], "episodes is a list, expected an object"),
    ("planning/paper/result.json", "episodes.model", 3, "episodes.model is 3, expected a list"),
    ("planning/paper/result.json", "episodes.model.1", "x", "episodes.model[1] is 'x', expected an object"),
    ("planning/paper/result.json", "episodes.model.0.pair", "x", "episodes.model[0].pair is 'x'"),
    ("planning/paper/result.json", "episodes.model.0.plans", 3, "episodes.model[0].plans is 3, expected a list"),
    ("planning/paper/result.json", "episodes.model.0.first_success", math.nan, "first_success is nan"),
    ("planning/paper/result.json", "pairs.hash", [1], "pairs.hash is a list, expected a text"),
    ("planning/paper/result.json", "settings", [1], "settings is a list, expected an object"),
    ("result.json", "validation", [1], "validation is a list, expected an object"),
    ("result.json", "steps", "x", "steps is 'x', expected a whole number from 0 on"),
]


@pytest.mark.parametrize("file, name, value, sentence", FORGED, ids=[f"{name} {value!r}" for _, name, value, _ in FORGED])
def test_a_record_with_wrong_types(file: str, name: str, value: Any, sentence: str, tmp_path: Path, here) -> None:
    run = write_run(tmp_path / "run")
    change(run / file, name, value)
    done = here("report", str(run), cwd=tmp_path)
    assert_user_mistake(done, sentence)
    assert f"{run / file} is damaged" in done.stderr


@pytest.mark.parametrize(
    "file, name",
    [
        ("diagnostics/paper.json", "invariance"),
        ("diagnostics/paper.json", "health"),
        ("diagnostics/paper.json", "model"),
        ("diagnostics/paper.json", "seeds"),
        ("planning/paper/result.json", "policies"),
        ("planning/paper/result.json", "episodes"),
        ("planning/paper/result.json", "imagination"),
        ("planning/paper/result.json", "pairs"),
        ("result.json", "validation"),
    ],
)
def test_a_section_of_nothing_is_shown_as_missing(file: str, name: str, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / variant, variant) for variant in ("lewm", "phylatent")]
    change(runs[1] / file, name, None)
    assert "<html" in render(read_methods(runs))


def points(run: Path, **arrays: np.ndarray | None) -> None:
    path = run / "diagnostics" / "paper.npz"
    with np.load(path) as found:
        kept = dict(found) | {f"seed0/{name.replace('__', '/')}": values for name, values in arrays.items()}
    np.savez(path, **{name: values for name, values in kept.items() if values is not None})


POINTS = {
    "shape": ({"invariance__d_nuis": np.ones((3, 4))}, "invariance"),
    "length": ({"invariance__d_nuis": np.ones(7)}, "invariance"),
    "text": ({"invariance__d_nuis": np.array(["a"] * 300), "invariance__d_state": np.array(["b"] * 300)}, "invariance"),
    "index": ({"identifiability__shown": np.array([10**9])}, "identifiability"),
    "float index": ({"identifiability__shown": np.array([0.5])}, "identifiability"),
    "flat": ({"counterfactual__d_true": np.ones(300)}, "counterfactual"),
    "scalar": ({"counterfactual__eligible": np.array(True)}, "counterfactual"),
    "complex": ({"invariance__d_state": np.ones(300, complex)}, "invariance"),
}


@pytest.mark.parametrize("arrays, name", POINTS.values(), ids=POINTS.keys())
def test_points_that_do_not_go_together(arrays: dict, name: str, tmp_path: Path, here) -> None:
    run = write_run(tmp_path / "run")
    points(run, **arrays)
    assert_user_mistake(
        here("report", str(run), cwd=tmp_path), f"paper.npz is damaged: its arrays of {name} do not go together"
    )


def test_points_that_are_not_there_are_missing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    points(run, invariance__d_nuis=None, counterfactual__eligible=None)
    assert "not measured" in render(read_methods([run]))


FILMS = {
    "gone": ("real", None, "it has no real"),
    "dtype": ("real", lambda a: a.astype(float), "real is float64"),
    "steps": ("taken", lambda a: a[:, :3], "taken is bool [12, 3], which does not go with the rest"),
    "kind": ("taken", lambda a: a.astype(int), "taken is int64"),
    "pairs": ("goal", lambda a: a[:2], "goal is uint8 [2, 32, 32, 3]"),
    "colours": ("start", lambda a: a[..., :2], "start is uint8 [12, 32, 32, 2]"),
    "flat": ("imagined", lambda a: a.ravel(), "imagined is uint8"),
}


@pytest.mark.parametrize("name, damage, sentence", FILMS.values(), ids=FILMS.keys())
def test_films_that_do_not_go_together(name: str, damage: Any, sentence: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = run / "planning" / "paper" / "rollouts.npz"
    with np.load(path) as found:
        arrays = dict(found)
    arrays = {key: value for key, value in arrays.items() if key != name} | (
        {} if damage is None else {name: damage(arrays[name])}
    )
    np.savez(path, **arrays)
    with pytest.raises(UserError) as error:
        filmstrips(read_methods([run]))
    assert sentence in str(error.value)
    assert str(path) in str(error.value)


def test_a_table_that_is_being_written_is_shown_up_to_its_last_line(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (method,) = read_methods([run])
    whole = method.runs[0].train
    with (run / "train.csv").open("a") as handle:
        handle.write("1010,0.")
    (method,) = read_methods([run])
    assert method.runs[0].train == whole
