"""What a collection or a preparation left behind about itself, cut or forged; and what the demo remembers of its time."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest
from command_line import assert_user_mistake
from small_collection import SMALL, TASK

from phylatent.data.collect import collect
from phylatent.data.prepare import prepare
from phylatent.data.readers import open_episodes
from phylatent.errors import UserError
from phylatent.schema import PrepareConfig

NONE = {
    "cut": "{",
    "nothing": "null",
    "list": "[1]",
    "deep": '{"a":' * 100_000,
    "bytes": b"\xff\xfe",
}


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collect(TASK, SMALL, seed=0, path=tmp_path_factory.mktemp("collected") / "data.h5")


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("content", NONE.values(), ids=NONE.keys())
def test_a_collection_that_was_begun(content: str | bytes, tmp_path: Path) -> None:
    plan = tmp_path / "data.h5.parts" / "plan.json"
    write(plan, content)
    with pytest.raises(UserError, match=r"plan\.json is damaged: it .*; delete .*data\.h5\.parts to begin anew"):
        collect(TASK, SMALL, seed=0, path=tmp_path / "data.h5")
    write(plan, "{}")
    with pytest.raises(UserError, match="holds an unfinished collection of another kind"):
        collect(TASK, SMALL, seed=0, path=tmp_path / "data.h5")


@pytest.mark.parametrize("content", [*(text for text in NONE.values() if isinstance(text, str)), 3, [1.0, 2.0], b"\xff"])
def test_the_plan_of_a_data_file(content: object, collected: Path, tmp_path: Path) -> None:
    copied = tmp_path / "data.h5"
    copied.write_bytes(collected.read_bytes())
    with h5py.File(copied, "r+") as file:
        del file.attrs["plan"]
        if isinstance(content, str) and len(content) > 60_000:  # more than an attribute holds
            content = content[:60_000]
        file.attrs["plan"] = content
    before = copied.read_bytes()
    with pytest.raises(UserError, match="exists and was not written by `phylatent collect`; nothing was overwritten"):
        collect(TASK, SMALL, seed=0, path=copied)
    assert copied.read_bytes() == before


@pytest.mark.parametrize("content", NONE.values(), ids=NONE.keys())
def test_a_preparation_that_was_begun(content: str | bytes, collected: Path, tmp_path: Path) -> None:
    write(tmp_path / "data.frames.parts" / "plan.json", content)
    with pytest.raises(UserError, match=r"plan\.json is damaged: it .*; delete .*data\.frames\.parts to begin anew"):
        prepare(collected, TASK, PrepareConfig(workers=1), path=tmp_path / "data.frames")


def test_the_mark_of_a_chunk(collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, parts = tmp_path / "data.frames", tmp_path / "data.frames.parts"
    with monkeypatch.context() as patched:
        patched.setattr("phylatent.data.prepare._check_written", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(Exception, match="was interrupted"):
            prepare(collected, TASK, PrepareConfig(workers=1), path=path)
    (mark,) = parts.glob("chunk-*.json")
    for content in (*NONE.values(), "{}", '{"sha256": 3}'):
        write(mark, content)
        with pytest.raises(UserError, match=r"chunk-000000\.json is damaged: .*; delete it, and the same command writes"):
            prepare(collected, TASK, PrepareConfig(workers=1), path=path)
    mark.unlink()
    assert prepare(collected, TASK, PrepareConfig(workers=1), path=path) == path


@pytest.fixture(scope="module")
def prepared(collected: Path) -> Path:
    return prepare(collected, TASK, PrepareConfig(workers=1), path=collected.with_name("data.frames"))


ABOUT = [
    *((content, "is damaged: it") for content in NONE.values()),
    ({"version": "1"}, "of version '1'; this phylatent reads version 1"),
    ({"version": True}, "of version true"),
    ({"version": None}, "of version null"),
    ({"shape": "x"}, "says that frames have shape x"),
    ({"shape": [65, 32, 32, True]}, "says that frames have shape"),
    ({"shape": [-65, 32, 32, 3]}, "says that frames have shape"),
    ({"shape": [10**30, 32, 32, 3]}, "says that frames have shape"),
    ({"shape": [2**62, 4, 1, 3]}, "has 199680 bytes"),
    ({"shape": [65.0, 32, 32, 3]}, "says that frames have shape"),
]


@pytest.mark.parametrize("content, sentence", ABOUT, ids=[str(content)[:30] for content, _ in ABOUT])
def test_what_a_prepared_set_says_of_itself(
    content: str | bytes | dict, sentence: str, prepared: Path, collected: Path
) -> None:
    about = prepared / "prepared.json"
    whole = about.read_bytes()
    write(about, json.dumps(json.loads(whole) | content) if isinstance(content, dict) else content)
    try:
        with pytest.raises(UserError) as error:
            open_episodes(prepared, TASK)
    finally:
        about.write_bytes(whole)
    assert sentence in str(error.value)
    assert "delete it and prepare it again" in str(error.value)


@pytest.mark.parametrize("plan", [None, [1], "x", 3])
def test_the_plan_of_a_prepared_set(plan: object, prepared: Path, collected: Path) -> None:
    about = prepared / "prepared.json"
    whole = about.read_bytes()
    write(about, json.dumps(json.loads(whole) | {"plan": plan}))
    try:
        with pytest.raises(UserError, match="exists and was not written by `phylatent prepare`; nothing was overwritten"):
            prepare(collected, TASK, PrepareConfig(workers=1), path=prepared)
    finally:
        about.write_bytes(whole)


@pytest.mark.parametrize(
    "content, sentence",
    [
        *((content, "demo.json is damaged: it") for content in NONE.values()),
        ("{}", "it has no seconds"),
        ('{"seconds": [1]}', "seconds is a list, expected an object"),
        ('{"seconds": {"plan": "x"}}', "seconds.plan is 'x', expected a finite number"),
    ],
)
def test_what_the_demo_remembers(content: str | bytes, sentence: str, tmp_path: Path, here) -> None:
    """It is told before the first stage, and not after the last one."""
    write(tmp_path / "out" / "demo.json", content)
    done = here("demo", "preset=smoke", "out=out", cwd=tmp_path)
    assert_user_mistake(done, sentence)
    assert "delete it: it only says how long the demo took" in done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]
