"""However an HDF5 file lays out its frames, they read alike; what is read past HDF5's own machinery, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from episode_files import write_file

from phylatent.data.formats import chunks
from phylatent.data.formats.hdf5 import HDF5Store
from phylatent.data.readers import open_episodes
from phylatent.errors import UserError
from phylatent.tasks import get_task

TASK = get_task("tworooms")
LENGTHS = (12, 9, 15)
ROWS = sum(LENGTHS)
# Every frame differs and can be compressed: Blosc leaves what cannot as it is.
PIXELS = np.random.default_rng(0).integers(0, 250, (ROWS, 8, 1, 1), dtype=np.uint8).repeat(8, 2).repeat(3, 3)
NOISE = np.random.default_rng(0).integers(0, 250, (ROWS, 8, 8, 3), dtype=np.uint8)
ASKED = np.array([[30, 2, 2], [0, 35, 7]])

LZ4HC = hdf5plugin.Blosc(cname="lz4hc", shuffle=hdf5plugin.Blosc.NOSHUFFLE)
PAST_HDF5: dict[str, dict[str, Any]] = {
    "as collect writes it": {"chunks": (1, 8, 8, 3), "fletcher32": True, **LZ4HC},
    "as collect wrote it before there were checksums": {"chunks": (1, 8, 8, 3), **LZ4HC},
    "Blosc and a checksum, 16 frames a chunk": {"chunks": (16, 8, 8, 3), "fletcher32": True, **hdf5plugin.Blosc(cname="lz4")},
    "Blosc, shuffled": {"chunks": (1, 8, 8, 3), **hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.SHUFFLE)},
    "Blosc, 16 frames a chunk": {"chunks": (16, 8, 8, 3), **hdf5plugin.Blosc(cname="lz4")},
    "as stable-worldmodel writes it": {"chunks": (1, 8, 8, 3), "maxshape": (None, 8, 8, 3)},
}
THROUGH_HDF5: dict[str, dict[str, Any]] = {
    "gzip": {"chunks": (10, 8, 8, 3), "compression": "gzip"},
    "frames in pieces": {"chunks": (1, 4, 8, 3), **hdf5plugin.Blosc()},
    "many frames a chunk, as they are": {"chunks": (7, 8, 8, 3)},
    "Blosc 2": {"chunks": (1, 8, 8, 3), **hdf5plugin.Blosc2()},
}


def laid_out(path: Path, pixels: np.ndarray = PIXELS, **options: Any) -> Path:
    write_file(path, LENGTHS, replace={"pixels": None})
    with h5py.File(path, "a") as file:
        file.create_dataset("pixels", data=pixels, **options)
    return path


def count_ordinary_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows that are read through HDF5, as they are."""
    rows: list[int] = []
    read = h5py.Dataset.__getitem__

    def reading(dataset, key, *rest, **named):
        if dataset.name == "/pixels":
            rows.append(key)
        return read(dataset, key, *rest, **named)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", reading)
    return rows


@pytest.mark.parametrize("name", [*PAST_HDF5, *THROUGH_HDF5])
def test_layouts_read_alike(tmp_path, monkeypatch, name):
    path = laid_out(tmp_path / "data.h5", **{**PAST_HDF5, **THROUGH_HDF5}[name])
    ordinary = count_ordinary_reads(monkeypatch)
    episodes = open_episodes(path, TASK)
    assert (episodes.frames(ASKED) == PIXELS[ASKED]).all()
    assert (episodes.frames(np.arange(ROWS)) == PIXELS).all()
    assert bool(ordinary) == (name in THROUGH_HDF5)


def test_frames_in_one_piece_are_mapped(tmp_path, monkeypatch):
    path = laid_out(tmp_path / "data.h5")
    ordinary = count_ordinary_reads(monkeypatch)
    assert (open_episodes(path, TASK).frames(ASKED) == PIXELS[ASKED]).all()
    assert not ordinary


@pytest.mark.parametrize("per_chunk", [1, 4, None])
def test_floating_point_frames(tmp_path, per_chunk):
    options = {} if per_chunk is None else {"chunks": (per_chunk, 8, 8, 3), **hdf5plugin.Blosc()}
    path = laid_out(tmp_path / "data.h5", PIXELS.astype(np.float32), **options)
    assert (open_episodes(path, TASK).frames(ASKED) == PIXELS[ASKED]).all()


def test_chunks_that_skip_the_filter_and_chunks_that_were_never_written(tmp_path):
    path = laid_out(tmp_path / "data.h5", chunks=(1, 8, 8, 3), **hdf5plugin.Blosc())
    with h5py.File(path, "a") as file:
        del file["pixels"]
        pixels = file.create_dataset("pixels", PIXELS.shape, "u1", chunks=(1, 8, 8, 3), fillvalue=9, **hdf5plugin.Blosc())
        pixels[:20] = PIXELS[:20]
        pixels.id.write_direct_chunk((7, 0, 0, 0), PIXELS[7].tobytes(), filter_mask=1)
    frames = open_episodes(path, TASK).frames(np.array([6, 7, 25]))
    assert (frames[:2] == PIXELS[6:8]).all()
    assert (frames[2] == 9).all()


@pytest.mark.parametrize("per_chunk", [1, 16])
def test_frames_that_cannot_be_compressed(tmp_path, per_chunk):
    path = laid_out(tmp_path / "data.h5", NOISE, chunks=(per_chunk, 8, 8, 3), **hdf5plugin.Blosc())
    assert (open_episodes(path, TASK).frames(ASKED) == NOISE[ASKED]).all()


@pytest.mark.parametrize("per_chunk", [1, 16])
def test_a_damaged_chunk_is_named_by_its_row(tmp_path, per_chunk):
    path = laid_out(tmp_path / "data.h5", chunks=(per_chunk, 8, 8, 3), **hdf5plugin.Blosc(cname="lz4"))
    with h5py.File(path) as file:
        info = file["pixels"].id.get_chunk_info(20 // per_chunk)
    content = bytearray(path.read_bytes())
    content[info.byte_offset : info.byte_offset + info.size] = bytes(info.size)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"'pixels'.*row 20.*damaged"):
        open_episodes(path, TASK).frames(np.array([20]))


@pytest.mark.parametrize("per_chunk", [1, 16])
def test_a_frame_that_decodes_to_something_else_is_told_by_its_checksum(tmp_path, monkeypatch, per_chunk):
    """Noise is stored as it is, so that a flipped byte is a frame like any other."""
    path = laid_out(tmp_path / "data.h5", NOISE, chunks=(per_chunk, 8, 8, 3), fletcher32=True, **hdf5plugin.Blosc())
    with h5py.File(path) as file:
        info = file["pixels"].id.get_chunk_info(20 // per_chunk)
    content = bytearray(path.read_bytes())
    content[info.byte_offset + info.size // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"'pixels'.*row 20.*damaged"):
        open_episodes(path, TASK).frames(np.array([20]))


def test_without_blosc_s_functions_hdf5_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "_blosc", lambda: None)
    path = laid_out(tmp_path / "data.h5", chunks=(1, 8, 8, 3), **hdf5plugin.Blosc())
    ordinary = count_ordinary_reads(monkeypatch)
    assert (HDF5Store(path).frames(ASKED.ravel()) == PIXELS[ASKED.ravel()]).all()
    assert ordinary
