"""Files read back: whatever is wrong with one is said in a sentence that names it."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from phylatent.composition import compose, save_config
from phylatent.errors import UserError
from phylatent.reading import (
    Unreadable,
    parse_yaml,
    read_arrays,
    read_json,
    read_table,
    read_tensors,
    read_yaml,
)
from phylatent.reading.shapes import COUNT, REAL, WHOLE, Maybe, misfit

AGAIN = "make it again"
BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(f"{c}: &{c} [{','.join([f'*{b}'] * 9)}]\n" for b, c in pairwise("abcdefg"))


@pytest.mark.parametrize(
    "content, wrong",
    [
        (b"", "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b"[1]", "it holds a list, not a JSON object"),
        (b"\xff\xfe{}", "it is not text: byte 0 is 0xff"),
        (b'{"a":' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "not JSON"),
    ],
)
def test_json_that_is_damaged(content: bytes, wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(wrong)) as error:
        read_json(path, again=AGAIN)
    assert str(error.value).startswith(f"{path} is damaged: ")
    assert str(error.value).endswith(AGAIN)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    for read in (read_json, read_yaml, read_table, read_tensors):
        with pytest.raises(UserError, match="cannot be read: Is a directory"):
            read(tmp_path, again=AGAIN)


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("&a [*a]", "contains itself"),
        ("!!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (BOMB, "100,000"),
        ("[" * 5000, "nested too deeply"),
        ("a: [", "expected"),
        ("a: \x07", "not allowed"),
    ],
)
def test_yaml_that_is_not_read(text: str, wrong: str) -> None:
    with pytest.raises(Unreadable, match=wrong):
        parse_yaml(text)


def test_a_configuration_of_ours_says_when_its_end_is_missing(tmp_path: Path) -> None:
    """Cut between two lines it is still YAML, and what is missing would silently be the default."""
    save_config(compose(preset="smoke"), tmp_path / "config.yaml")
    whole = (tmp_path / "config.yaml").read_text()
    assert read_yaml(tmp_path / "config.yaml", again="")["preset"] == "smoke"
    lines = whole.splitlines(keepends=True)
    for kept in (4, len(lines) // 2, len(lines) - 1):
        (tmp_path / "config.yaml").write_text("".join(lines[:kept]))
        with pytest.raises(UserError, match="it is cut short"):
            read_yaml(tmp_path / "config.yaml", again="")


def test_yaml_may_use_a_value_twice() -> None:
    assert parse_yaml("a: &here [1, {b: 2}]\nc: *here") == {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}
    assert parse_yaml("") is None


@pytest.mark.parametrize(
    "content, wrong",
    [
        (b"step,loss\n10,\x80\n", "not text"),
        (b"loss\n1.0\n", "line 2 has no step"),
        (b"step,loss\n10,1.0\nx,2.0\n", "line 3 has no step"),
        (b"step,loss\n10,1.0\n20", "line 3 has not as many cells"),
        (b"step,loss\n10,1.0,5\n", "line 2 has not as many cells"),
    ],
)
def test_tables_that_are_damaged(content: bytes, wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=wrong):
        read_table(path, again=AGAIN)


def test_tensors_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    for content in (b"", b"x", b"\x80\x04.", b"PK\x03\x04" + bytes(100)):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"weights\.pt is damaged: it is not a"):
            read_tensors(path, again=AGAIN)


def test_a_table_that_was_being_written_lacks_its_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("step,loss\n10,1.0\n20,2.0")
    assert [row["step"] for row in read_table(path, again=AGAIN, unfinished=True)] == ["10"]
    assert [row["step"] for row in read_table(path, again=AGAIN)] == ["10", "20"]
    path.write_text("step,loss\n10,x\n")
    with pytest.raises(UserError, match="loss in line 2 is 'x', expected a number"):
        read_table(path, again=AGAIN)
    path.write_text("step,loss\n²,1.0\n")
    with pytest.raises(UserError, match="line 2 has no step"):
        read_table(path, again=AGAIN)


def test_json_that_is_nested_beyond_reason(tmp_path: Path) -> None:
    """Deep enough for whoever walks through it to fail, not deep enough for the parser."""
    path = tmp_path / "record.json"
    path.write_text('{"a":' * 300 + "1" + "}" * 300)
    with pytest.raises(UserError, match="nested too deeply"):
        read_json(path, again=AGAIN)
    path.write_text('{"a":' * 20 + "1" + "}" * 20)
    assert read_json(path, again=AGAIN)


def test_arrays_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "points.npz"
    np.savez(path, a=np.arange(3), b=np.ones((2, 2)))
    whole = path.read_bytes()
    assert read_arrays(path, again=AGAIN, prefix="b").keys() == {"b"}
    for content in (b"", b"x", whole[:100], whole[:-40], whole[:80] + bytes(60) + whole[140:]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"points\.npz is damaged: it is not a"):
            read_arrays(path, again=AGAIN)
    np.save(tmp_path / "points", np.arange(3))
    (tmp_path / "points.npy").rename(path)
    with pytest.raises(UserError, match="not an array file"):
        read_arrays(path, again=AGAIN)


@pytest.mark.parametrize(
    "value, wrong",
    [
        ({"name": "a", "rates": {}, "runs": [], "seed": None}, None),
        ({"name": "a", "rates": {"x": 0.5, "y": 1}, "runs": [{"step": 1}], "more": [None]}, None),
        ({"rates": {}, "runs": []}, "it has no name"),
        ({"name": None, "rates": {}, "runs": []}, "name is null, expected a text"),
        ({"name": "a", "rates": [], "runs": []}, "rates is a list, expected an object"),
        ({"name": "a", "rates": {"x": math.nan}, "runs": []}, "rates.x is nan, expected a finite number"),
        ({"name": "a", "rates": {"x": 10**400}, "runs": []}, "rates.x is a huge number, expected a finite number"),
        ({"name": "a", "rates": {"x": True}, "runs": []}, "rates.x is true, expected a finite number"),
        ({"name": "a", "rates": {}, "runs": {}}, "runs is an object, expected a list"),
        ({"name": "a", "rates": {}, "runs": [{"step": 0}, {"step": -1}]}, "runs[1].step is -1, expected a whole number from 0"),
        ({"name": "a", "rates": {}, "runs": [3]}, "runs[0] is 3, expected an object"),
        ({"name": "a", "rates": {}, "runs": [], "seed": "0"}, "seed is '0', expected a whole number"),
        ([], "it is a list, expected an object"),
    ],
)
def test_shapes(value: object, wrong: str | None) -> None:
    shape = {"name": str, "rates": {"*": REAL}, "runs": [{"step": COUNT}], "seed?": Maybe(WHOLE)}
    found = misfit(value, shape)
    assert found is None if wrong is None else found is not None and found.startswith(wrong), found
