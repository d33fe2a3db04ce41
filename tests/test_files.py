"""Files and directories that are whole or absent."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from phylatent.errors import UserError
from phylatent.files import atomic, locked, remove_partials, whole_directory


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text("old")

    def half() -> None:
        with atomic(path) as temporary:
            temporary.write_text("new")
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_takes_the_place_of_an_older_one_at_once(tmp_path: Path) -> None:
    out = tmp_path / "model"
    for text in ("first", "second"):
        with whole_directory(out, replace=True) as folder:
            (folder / "weights").write_text(text)
            assert not out.exists() or (out / "weights").read_text() == "first", "until it is whole"
    assert (out / "weights").read_text() == "second"

    def half() -> None:
        with whole_directory(out, replace=True) as folder:
            (folder / "weights").write_text("third")
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        half()
    assert (out / "weights").read_text() == "second"
    assert list(tmp_path.iterdir()) == [out]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    def lock() -> contextlib.AbstractContextManager[None]:
        return locked(tmp_path / "place", "lock", busy="somebody else is at it", elsewhere="go away")

    with lock(), pytest.raises(UserError, match="somebody else is at it"), lock():
        pass
    with lock():
        pass


def test_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    (tmp_path / ".model.12.partial").mkdir()
    (tmp_path / ".data.h5.12.partial").write_text("half")
    (tmp_path / ".data.h5.json.12.partial").write_text("half")
    remove_partials(tmp_path, "data.h5.")
    assert [path.name for path in tmp_path.iterdir()] == [".model.12.partial"]
    remove_partials(tmp_path)
    assert not list(tmp_path.iterdir())
