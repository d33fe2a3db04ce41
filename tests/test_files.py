"""Files and directories that are whole or absent."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from phylatent.errors import UserError
from phylatent.files import atomic, check_path, check_target, is_disk_full, locked, remove_partials, whole_directory


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


def test_names_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / ".data.h5.12.partial").write_text("another's")
    (tmp_path / ".d*.12.partial").write_text("half")
    remove_partials(tmp_path, "d*.")
    assert [path.name for path in tmp_path.iterdir()] == [".data.h5.12.partial"]


def test_what_can_be_a_path_and_what_cannot(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    for good in (tmp_path, tmp_path / "file", tmp_path / "new" / "newer", ".", "/"):
        check_path(good)
    for bad, sentence in {
        tmp_path / "loop": "leads back to itself",
        tmp_path / "loop" / "below": "leads back to itself",
        tmp_path / "file" / "below": "a part of it is a file",
        tmp_path / "not" / "there" / ("x" * 256): "a name of 256 characters is too long",
        "a\0b": "NUL",
        Path(*["x" * 200] * 30): "longer than a path can be",
    }.items():
        with pytest.raises(UserError, match=sentence):
            check_path(bad)


@pytest.mark.parametrize("kind", ["loop", "dangling", "pipe"])
def test_nothing_of_another_kind_is_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "target"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("target" if kind == "loop" else "nowhere")
    before = path.lstat()
    for write in (atomic(path), whole_directory(path), whole_directory(path, replace=True)):
        with pytest.raises(UserError, match=str(path)), write:
            raise AssertionError("it must not come to writing")
    with pytest.raises(UserError, match=str(path)), locked(path, "lock", busy="", elsewhere="go away"):
        pass
    assert path.lstat() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UserError):
        check_target(path)


def test_a_directory_that_goes_while_a_file_is_written(tmp_path: Path) -> None:
    place = tmp_path / "place"

    def write() -> None:
        with atomic(place / "record.json") as temporary:
            temporary.write_text("all of it")
            shutil.rmtree(place)

    with pytest.raises(UserError, match=r"cannot write .*record.json: its directory is not there, or no longer"):
        write()


def test_an_error_about_another_file_is_not_the_target_s(tmp_path: Path) -> None:
    def copy() -> None:
        with atomic(tmp_path / "copy") as temporary:
            shutil.copyfile(tmp_path / "missing", temporary)

    with pytest.raises(FileNotFoundError):
        copy()


def test_a_lock_that_another_process_deletes_as_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening the file and locking it: the lock is then taken on the file that is there now."""
    import fcntl

    place, flock = tmp_path / "place", fcntl.flock
    left = iter([True, False])

    def leave(handle, how):
        if next(left, False):
            shutil.rmtree(place)
        return flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", leave)
    with locked(place, "lock", busy="somebody else is at it", elsewhere="go away"):
        assert (place / "lock").exists()


def test_an_error_that_is_its_own_cause_comes_to_an_end() -> None:
    first, second = OSError("first"), OSError("second")
    first.__cause__, second.__cause__ = second, first
    assert not is_disk_full(first)
    second.errno = 28
    assert is_disk_full(first)
