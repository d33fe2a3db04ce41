"""Paths that lead nowhere, in circles, or to something of another kind: one sentence, and nothing is replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from command_line import assert_user_mistake
from episode_files import write_file

LONG = "x" * 300
NEARLY = "x" * 240
"""As a name it is fine, with anything behind it it is not."""


def loop(place: Path, name: str) -> Path:
    (place / name).symlink_to(name)
    return place / name


def dangling(place: Path, name: str) -> Path:
    (place / name).symlink_to("nowhere")
    return place / name


def fifo(place: Path, name: str) -> Path:
    os.mkfifo(place / name)
    return place / name


def below_a_file(place: Path, name: str) -> Path:
    (place / "file").write_text("mine")
    return place / "file" / name


def directory(place: Path, name: str) -> Path:
    (place / name).mkdir()
    return place / name


def file(place: Path, name: str) -> Path:
    (place / name).write_text("mine")
    return place / name


def long_name(place: Path, name: str) -> Path:
    return place / f"{LONG}{name}"


def nearly_long_name(place: Path, name: str) -> Path:
    return place / f"{NEARLY}{name}"


def null_device(place: Path, name: str) -> Path:
    return Path("/dev/null")


IN_CIRCLES = "is a link that leads back to itself"
TARGETS = {
    loop: IN_CIRCLES,
    dangling: "is a link to nowhere, where there is nothing; nothing was overwritten",
    fifo: "is a device, pipe or socket, but a {kind} is to be written there; nothing was overwritten",
    null_device: "is a device, pipe or socket, but a {kind} is to be written there; nothing was overwritten",
    below_a_file: "a part of it is a file, not a directory",
    long_name: "a name of {long} characters is too long",
    nearly_long_name: "its name is too long",
}
SOURCES = {
    loop: IN_CIRCLES,
    fifo: "",
    below_a_file: "a part of it is a file, not a directory",
    long_name: "a name of {long} characters is too long",
    dangling: "there is no",
}


def kinds(place: Path) -> dict[Path, tuple[int, str]]:
    """Everything in a directory: what it is, and where links lead."""
    found = {}
    for path in sorted(place.rglob("*")):
        mode = path.lstat().st_mode
        found[path] = (mode, os.readlink(path) if stat.S_ISLNK(mode) else path.read_text() if stat.S_ISREG(mode) else "")
    return found


def assert_refused(here, place: Path, *arguments: str, sentence: str) -> None:
    before = kinds(place)
    assert_user_mistake(here(*arguments, cwd=place), sentence)
    assert kinds(place) == before


@pytest.fixture
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_file(tmp_path_factory.mktemp("elsewhere") / "data.h5")


@pytest.fixture
def archive(data: Path) -> Path:
    import zstandard

    path = data.with_name("tworoom.h5.zst")
    path.write_bytes(zstandard.compress(data.read_bytes()))
    return path


@pytest.mark.parametrize("make, sentence", [*TARGETS.items(), (directory, "is a directory, but a file is to be written there")])
@pytest.mark.parametrize("key", ["out", "data"])
def test_collect(tmp_path, here, make, sentence, key):
    path = make(tmp_path, "data.h5")
    sentence = sentence.format(kind="file", long=307)
    assert_refused(here, tmp_path, "collect", "preset=smoke", f"{key}={path}", sentence=sentence)


@pytest.mark.parametrize("make, sentence", [*TARGETS.items(), (file, "is a file, but a directory is to be written there")])
def test_prepare_to(tmp_path, here, make, sentence, data):
    path = make(tmp_path, "data.frames")
    sentence = sentence.format(kind="directory", long=311)
    assert_refused(here, tmp_path, "prepare", str(data), f"out={path}", sentence=sentence)


@pytest.mark.parametrize("make, sentence", [*SOURCES.items(), (directory, "holds no"), (file, "not an HDF5 file")])
@pytest.mark.parametrize("command", ["prepare", "inspect"])
def test_prepare_and_inspect_from(tmp_path, here, make, sentence, command):
    path = make(tmp_path, "data.h5")
    sentence = sentence.format(long=307) or "is a device, pipe or socket; data= takes a data file"
    assert_refused(here, tmp_path, command, str(path), sentence=sentence)


@pytest.mark.parametrize("make", [loop, dangling, fifo, below_a_file, file])
def test_inspect_to(tmp_path, here, make, data):
    """`out=` is the directory of its record."""
    path = make(tmp_path, "out")
    before = kinds(tmp_path)
    done = here("inspect", str(data), f"out={path}", cwd=tmp_path)
    assert_user_mistake(done, str(path))
    assert kinds(tmp_path) == before


@pytest.mark.parametrize("make, sentence", TARGETS.items())
def test_import_to(tmp_path, here, make, sentence, archive):
    path = make(tmp_path, "data.h5")
    before = kinds(tmp_path)
    done = here("import", str(archive), f"out={path}", cwd=tmp_path)
    # A device is taken for something that is there, a name without .h5 for a directory.
    assert_user_mistake(done, "" if make in (fifo, null_device) else sentence.format(kind="file", long=307))
    assert kinds(tmp_path) == before


@pytest.mark.parametrize("make, sentence", [*SOURCES.items(), (directory, "there is no archive")])
def test_import_from(tmp_path, here, make, sentence):
    path = make(tmp_path, "data.h5.zst")
    assert_refused(here, tmp_path, "import", str(path), sentence=sentence.format(long=311) or "there is no archive")


def test_an_archive_that_is_not_one(tmp_path, here):
    path = file(tmp_path, "data.tar.zst")
    assert_refused(here, tmp_path, "import", str(path), "out=data.h5", sentence="holds neither an HDF5 file nor a tar")


def test_a_nul_character(tmp_path, here):
    assert_refused(here, tmp_path, "collect", "preset=smoke", "out=data\0.h5", sentence="holds a NUL character")
