"""`inspect verify=true`: a byte that changed anywhere in a data set is found, and told in one sentence."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import h5py
import numpy as np
import pytest
from command_line import assert_user_mistake
from episode_files import write_file
from published_files import ROWS, content, episodes_of
from small_collection import SMALL, TASK, contents

from phylatent.data import verify as verifying
from phylatent.data.collect import collect
from phylatent.data.formats.checksums import SEAL, column_settings
from phylatent.data.prepare import prepare
from phylatent.data.readers import open_episodes
from phylatent.data.verify import Verified, read_all, verify
from phylatent.errors import PhylatentError, UserError
from phylatent.schema import PrepareConfig

FLIPS = 360
HEADERS = 60
"""Of these, among the first bytes."""
PATIENCE_SECONDS = 5.0
"""For a file that is read in a hundredth of a second."""


def flip(source: Path, target: Path, offset: int, mask: int = 0xFF) -> Path:
    content = bytearray(source.read_bytes())
    content[offset] ^= mask
    target.write_bytes(content)
    return target


def everything(path: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    with h5py.File(path) as file:
        return contents(path), {name: repr(value) for name, value in file.attrs.items()}


def _verify_flipped(pipe: Connection, path: Path, flipped: Path) -> None:
    """In a process of its own, which a damaged file may end: what `verify` does in such a process, flip after flip."""
    known = everything(path)
    while (asked := pipe.recv()) is not None:
        flip(path, flipped, *asked)
        try:
            read_all(flipped)
            pipe.send("nothing changed" if everything(flipped) == known else "missed")
        except PhylatentError as error:
            pipe.send("found" if str(flipped) in str(error) and "\n" not in str(error) else f"not a sentence: {error}")


class Reader:
    """Answers for one flip after another; None where HDF5 crashed, or did not come back."""

    def __init__(self, path: Path, flipped: Path) -> None:
        self.arguments = (path, flipped)
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_verify_flipped, args=(theirs, *self.arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.patience = 60.0  # for its imports

    def ask(self, offset: int, mask: int) -> str | None:
        self.pipe.send((offset, mask))
        try:
            if self.pipe.poll(self.patience):
                self.patience = PATIENCE_SECONDS
                return self.pipe.recv()
        except EOFError:
            pass
        self.stop()
        self.start()
        return None

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def test_a_flipped_byte_is_found_or_changes_nothing(collected, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    size = collected.stat().st_size
    offsets = {*rng.choice(400, HEADERS, replace=False), *np.linspace(400, size - 1, FLIPS - HEADERS).astype(int)}
    reader = Reader(collected, tmp_path / "flipped.h5")
    found: Counter[str] = Counter()
    fatal = []
    for offset in sorted(int(offset) for offset in offsets):
        mask = int(rng.integers(1, 256))
        answer = reader.ask(offset, mask)
        assert answer != "missed", (offset, mask)
        assert answer is None or not answer.startswith("not a sentence"), answer
        found[answer or "fatal to the process"] += 1
        fatal += [(offset, mask)] if answer is None else []
    reader.stop()
    monkeypatch.setattr(verifying, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    for number, (offset, mask) in enumerate(fatal):
        with pytest.raises(UserError, match="is damaged: reading it"):
            verify(flip(collected, tmp_path / f"fatal{number}.h5", offset, mask))
    print(f"of {len(offsets)} flips in {size} bytes: {dict(found)}")
    assert sum(found.values()) == len(offsets) >= 300
    assert found["found"] > 0.8 * len(offsets)


def offset_of_free_heap_size(path: Path) -> int:
    """Where a global heap, which holds the texts of attributes, says how much of it is free. It has no checksum."""
    content = path.read_bytes()
    at = content.index(b"GCOL") + 16
    while index := int.from_bytes(content[at : at + 2], "little"):
        assert index < 100
        at += 16 + -(-int.from_bytes(content[at + 8 : at + 16], "little") // 8) * 8
    return at + 8


def test_a_file_over_which_hdf5_never_comes_back(collected, tmp_path, monkeypatch):
    monkeypatch.setattr(verifying, "PATIENCE_SECONDS", PATIENCE_SECONDS)
    offset = offset_of_free_heap_size(collected)
    path = flip(collected, tmp_path / "data.h5", offset, collected.read_bytes()[offset])
    with pytest.raises(UserError, match=r"reading it (does not come to an end|ended the process)"):
        verify(path)


def test_the_command_says_what_it_verified(collected, tmp_path, here):
    done = here("inspect", str(collected), "verify=true", "out=record", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = "65 rows, 8 columns with checksums, frames with Fletcher-32, attributes"
    assert f"verified: {expected}" in done.stdout
    assert json.loads((tmp_path / "record" / "inspect.json").read_text())["verified"] == expected


@pytest.mark.parametrize("column, row", [("action", 0), ("ep_len", 0), ("pixels", 41)])
def test_the_command_names_column_and_row(collected, tmp_path, here, column, row):
    with h5py.File(collected) as file:
        dataset = file[column]
        info = dataset.id.get_chunk_info(row if column == "pixels" else 0)
    path = flip(collected, tmp_path / "data.h5", info.byte_offset + info.size // 2, 1)
    done = here("inspect", str(path), "verify=true", cwd=tmp_path)
    assert_user_mistake(done, f"column {column!r} of {path} cannot be read at row {row}: the file is damaged")
    assert list(tmp_path.iterdir()) == [path], "nothing is written about a damaged file"


def test_verify_is_true_or_false(collected, tmp_path, here):
    assert_user_mistake(here("inspect", str(collected), "verify=yes", cwd=tmp_path), "verify=yes: expected true or false")


def test_a_changed_attribute_is_named_and_an_added_one_does_no_harm(collected, tmp_path):
    path = tmp_path / "data.h5"
    path.write_bytes(collected.read_bytes())
    with h5py.File(path, "a") as file:
        file.attrs["note"] = "mine"
    assert open_episodes(path, TASK).store.attributes["note"] == "mine"
    with h5py.File(path, "a") as file:
        file.attrs["render"] = "otherwise"
    with pytest.raises(
        UserError, match=r"attribute 'render' .* does not match its checksum; .* delete its attribute 'checksums'"
    ):
        open_episodes(path, TASK)
    with h5py.File(path, "a") as file:
        del file.attrs[SEAL]
    assert open_episodes(path, TASK).render == "otherwise"


def test_files_without_checksums_are_decoded(tmp_path):
    found = verify(write_file(tmp_path / "data.h5"))
    assert found == Verified(rows=36, columns=8, checked=0, frames=None, attributes=False)
    assert str(found).endswith("can be read and decoded; there are no checksums to compare them with")


def test_lance_tables_are_decoded(tmp_path):
    from stable_worldmodel.data.formats.lance import LanceWriter

    path = tmp_path / "tworoom.lance"
    with LanceWriter(path) as writer:
        writer.write_episodes(episodes_of(content("tworooms", size=32)))
    found = verify(path)
    assert (found.rows, found.checked, found.frames, found.attributes) == (ROWS, 0, None, False)
    file = max(path.rglob("*.lance"), key=lambda file: file.stat().st_size)
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(UserError, match=r"tworoom\.lance"):
        verify(path)


def test_checksums_change_neither_content_nor_fingerprint(collected, tmp_path):
    """A file as it was written before there were checksums: columns in one piece, Blosc alone."""
    plain = tmp_path / "plain.h5"
    with h5py.File(collected) as source, h5py.File(plain, "w") as target:
        for name, column in source.items():
            target[name] = column[:]
        target.attrs.update({name: value for name, value in source.attrs.items() if name != SEAL})
    before, now = open_episodes(plain, TASK), open_episodes(collected, TASK)
    assert before.fingerprint() == now.fingerprint()
    assert before.store.attributes == now.store.attributes
    assert contents(plain) == contents(collected)


def test_several_processes_find_what_one_finds(collected, tmp_path, monkeypatch):
    calls: list[tuple[int, int]] = []
    assert verify(collected, lambda *counts: calls.append(counts), workers=2) == verify(collected, workers=1)
    assert calls[-1][0] == calls[-1][1] > 65 * 32 * 32 * 3
    with h5py.File(collected) as file:
        info = file["action"].id.get_chunk_info(0)
    with pytest.raises(UserError, match="column 'action'"):
        verify(flip(collected, tmp_path / "data.h5", info.byte_offset), workers=2)


def test_chunks_of_a_column_are_of_one_size_and_leave_nothing_unused():
    settings = column_settings((1_000_000, 2), np.dtype(np.float32))
    assert settings == {"chunks": (62_500, 2), "fletcher32": True}
    assert column_settings((7,), np.dtype(np.int64))["chunks"] == (7,)
    assert column_settings((0, 2), np.dtype(np.float32)) == {}


@pytest.fixture
def prepared(collected, tmp_path, monkeypatch) -> Path:
    """Of four chunks."""
    monkeypatch.setattr("phylatent.data.prepare.CHUNK_BYTES", 17 * 32 * 32 * 3)
    return prepare(collected, TASK, PrepareConfig(workers=1), path=tmp_path / "data.frames")


def test_prepared_sets_are_compared_with_their_checksums(prepared):
    assert str(verify(prepared)) == "65 rows, 8 columns with checksums, frames with SHA-256, attributes"
    flip(prepared / "frames.bin", prepared / "frames.bin", 20 * 32 * 32 * 3, 1)
    with pytest.raises(UserError, match=r"frames in rows 17 to 33 of .* do not match their SHA-256"):
        verify(prepared)


def test_the_record_of_a_prepared_set_has_a_checksum_too(prepared):
    record = prepared / "prepared.json"
    record.write_text(record.read_text().replace('"tworooms"', '"tworoams"'))
    with pytest.raises(UserError, match=r"prepared.json is damaged: it does not match its own checksum; prepare the set again"):
        verify(prepared)


def test_prepared_sets_of_earlier_versions_have_one_checksum(prepared, monkeypatch):
    record = json.loads((prepared / "prepared.json").read_text())
    for name in ("sha256", "chunk_rows", "sha256_of_record"):
        del record[name]
    (prepared / "prepared.json").write_text(json.dumps(record))
    monkeypatch.setattr("phylatent.data.integrity.EARLIER_CHUNK_BYTES", 17 * 32 * 32 * 3)
    assert read_all(prepared).frames == "SHA-256"
    flip(prepared / "frames.bin", prepared / "frames.bin", 9, 1)
    with pytest.raises(UserError, match=r"frames in rows 0 to 64 of .* do not match their SHA-256"):
        read_all(prepared)


def test_a_header_that_promises_more_than_the_file_can_hold(tmp_path):
    path = write_file(tmp_path / "data.h5")
    with h5py.File(path, "a") as file:
        file.create_dataset("huge", (2**50,), "f8", chunks=(1024,))
    with pytest.raises(UserError, match=r"it says to hold 8,388,608 GiB, in a file of 0.0 MiB"):
        verify(path)


def test_a_collection_begun_without_checksums_goes_on(collected, tmp_path, monkeypatch):
    """Its shards are those of an earlier version."""

    def plain(file, name, shape, dtype):
        from phylatent.data.shards import COMPRESSION

        file.create_dataset(
            name, shape=shape, dtype=dtype, **({"chunks": (1, *shape[1:]), **COMPRESSION} if name == "pixels" else {})
        )

    def stop(plan, parts, path):
        raise KeyboardInterrupt

    path = tmp_path / "data.h5"
    with monkeypatch.context() as earlier:
        earlier.setattr("phylatent.data.shards._create", plain)
        earlier.setattr("phylatent.data.collect.merge_shards", stop)
        with pytest.raises(KeyboardInterrupt):
            collect(TASK, SMALL, seed=0, path=path)
    collect(TASK, SMALL, seed=0, path=path)
    assert contents(path) == contents(collected)
    assert verify(path).frames == "Fletcher-32"
