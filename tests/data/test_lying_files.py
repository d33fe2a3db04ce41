"""Files that are not what their names promise: read rightly where that is beyond doubt, refused in one sentence where not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from episode_files import columns, write_file

from phylatent.data.inspect import inspect_data
from phylatent.data.readers import open_episodes
from phylatent.errors import UserError
from phylatent.tasks import get_task

TASK = get_task("tworooms")
LENGTHS = (12, 9, 15)
TRUE = columns(LENGTHS)
PIXELS, ACTION, STATE, IDS = TRUE["pixels"], TRUE["action"], TRUE["state"], TRUE["episode_idx"]
NO_TABLE = {"ep_len": None, "ep_offset": None}


def write(tmp_path: Path, **replace: np.ndarray | None) -> Path:
    return write_file(tmp_path / "data.h5", LENGTHS, replace=replace)


@pytest.mark.parametrize(
    "stored, note",
    [
        (PIXELS.astype(np.float32) / 255, "float32 from 0 to 1"),
        (PIXELS.astype(np.float64), "float64 from 0 to 255"),
        (PIXELS.transpose(0, 3, 1, 2), "channels first"),
        (PIXELS.transpose(0, 3, 1, 2).astype(np.float16) / 255, "channels first"),
    ],
    ids=["0 to 1", "0 to 255", "channels first", "both"],
)
def test_other_layouts_of_frames_read_as_bytes(tmp_path, stored, note):
    path = write(tmp_path, pixels=stored)
    episodes = open_episodes(path, TASK)
    rows = np.array([[30, 2], [2, 35]])
    frames = episodes.frames(rows)
    assert episodes.frame_shape == (8, 8, 3)
    assert frames.dtype == np.uint8
    assert frames.flags.c_contiguous
    assert (frames == rows[..., None, None, None]).all()
    assert any(note in line for line in inspect_data(path, TASK)["notes"])


def test_a_float_frame_unlike_the_sampled_ones_is_named(tmp_path):
    lengths = (100, 100)
    pixels = columns(lengths)["pixels"].astype(np.float32) / 255
    sampled = set(np.linspace(0, 199, 64).astype(int).tolist())
    odd = next(row for row in range(200) if row not in sampled)
    pixels[odd] = 2.0
    episodes = open_episodes(write_file(tmp_path / "data.h5", lengths, replace={"pixels": pixels}), TASK)
    with pytest.raises(UserError, match=rf"frame in row {odd} .* outside 0 to 1"):
        episodes.frames(np.arange(20))


def test_other_number_types_mean_the_same(tmp_path):
    plain = open_episodes(write_file(tmp_path / "plain.h5", LENGTHS), TASK)
    other = write(
        tmp_path,
        action=ACTION.astype(">f8"),
        proprio=TRUE["proprio"].astype(">f8"),
        state=STATE.astype(">f4"),
        ep_len=TRUE["ep_len"].astype(np.float64),
        ep_offset=TRUE["ep_offset"].astype(">u4"),
    )
    episodes = open_episodes(other, TASK)
    assert episodes.fingerprint() == plain.fingerprint()
    assert episodes.row(7)["state"].dtype.isnative
    assert episodes.row(7)["state"].tolist() == [7, -7]


@pytest.mark.parametrize("ids", ["ep_idx", "episode_idx"])
@pytest.mark.parametrize("steps", [True, False])
def test_the_table_of_episodes_is_derived_from_their_numbers(tmp_path, ids, steps):
    replace = NO_TABLE | {"episode_idx": None, ids: IDS.astype(np.int32) + 40}
    episodes = open_episodes(write(tmp_path, **replace, **({} if steps else {"step_idx": None})), TASK)
    assert episodes.lengths.tolist() == list(LENGTHS)
    assert episodes.offsets.tolist() == [0, 12, 21]
    assert (episodes.actions[[11, 20, 35]] == 0).all()


def test_numbers_that_start_again_are_told_apart_by_their_steps(tmp_path):
    ids = np.where(IDS == 2, 0, IDS)
    assert open_episodes(write(tmp_path, **NO_TABLE, episode_idx=ids), TASK).lengths.tolist() == list(LENGTHS)
    ids = np.zeros_like(IDS)
    assert open_episodes(write(tmp_path, **NO_TABLE, episode_idx=ids), TASK).lengths.tolist() == list(LENGTHS)


def test_unsorted_episodes_and_gaps_are_as_the_table_says(tmp_path):
    path = write(tmp_path, ep_len=np.array([10, 9, 12]), ep_offset=np.array([24, 12, 0]))
    episodes = open_episodes(path, TASK)
    assert episodes.offsets.tolist() == [24, 12, 0]
    assert (episodes.actions[[33, 20, 11]] == 0).all()


def test_an_episode_of_one_row_is_no_obstacle(tmp_path):
    lengths = (12, 1, 15)
    episodes = open_episodes(write_file(tmp_path / "data.h5", lengths), TASK)
    assert episodes.lengths.tolist() == [12, 1, 15]


def test_columns_in_groups_and_without_a_use_do_no_harm(tmp_path):
    path = write(tmp_path, state=None)
    with h5py.File(path, "a") as file:
        file["pos/agent"] = STATE
        file["notes"] = np.array([b"one", b"two"])
        file["nothing"] = h5py.Empty("f4")
        file["a/b/c/d"] = 1
    assert open_episodes(path, TASK).row(5)["state"].tolist() == [5, -5]
    assert "state is read from column 'pos/agent'" in inspect_data(path, TASK)["notes"]


INTERLEAVED = np.arange(36) % 3
LIES = {
    "int actions": ({"action": np.zeros((36, 2), np.int64)}, "'action' .* int64 .* floating-point"),
    "string actions": ({"action": np.full((36, 2), b"left")}, "'action' .* holds .S4"),
    "complex actions": ({"action": ACTION.astype(np.complex64)}, "'action' .* complex64"),
    "flat actions": ({"action": ACTION[:, 0]}, r"'action' .* shape \[36\]"),
    "text states": ({"proprio": np.full((36, 2), b"here")}, "'proprio' .* must hold numbers"),
    "complex states": ({"state": STATE.astype(np.complex128)}, "'state' .* complex128"),
    "boolean pixels": ({"pixels": PIXELS > 9}, "'pixels' .* bool"),
    "normalised pixels": ({"pixels": PIXELS.astype(np.float32) / 50 - 2}, "values from -2 to .* undo their normalisation"),
    "large pixels": ({"pixels": PIXELS.astype(np.float32) * 257}, "values from 0 to 8995"),
    "infinite pixels": ({"pixels": np.where(PIXELS == 9, np.inf, PIXELS)}, "values from 0 to inf"),
    "alpha channel": ({"pixels": np.pad(PIXELS, [(0, 0)] * 3 + [(0, 1)])}, r"\[36, 8, 8, 4\].*alpha"),
    "one grey channel": ({"pixels": PIXELS[..., :1]}, r"\[36, 8, 8, 1\].*grey"),
    "few pixels": ({"pixels": PIXELS[:10]}, "'pixels' .* has 10 rows, but .* has 36"),
    "fractional lengths": ({"ep_len": np.array([12, 9.5, 15])}, "'ep_len' .* not whole numbers"),
    "NaN offsets": ({"ep_offset": np.array([0, np.nan, 21])}, "'ep_offset' .* not whole numbers"),
    "negative length": ({"ep_len": np.array([12, -9, 15])}, "episode 1 .* length -9"),
    "duplicated offsets": ({"ep_offset": np.array([0, 0, 21])}, "episodes 0 and 1 .* overlap"),
    "offset far past the end": ({"ep_offset": np.array([0, 12, 2**62])}, "episode 2 .* but the file has 36"),
    "half a table": ({"ep_offset": None}, "no column 'ep_offset'"),
    "ids against the table": ({"episode_idx": np.roll(IDS, 1)}, r"rows 0 and 1 .* of episodes 2 and 0 by 'episode_idx'"),
    "ids shorter than the table": ({"episode_idx": IDS[:30]}, "'episode_idx' .* 30 rows, too few"),
    "nothing about episodes": (NO_TABLE | {"episode_idx": None}, "no column 'ep_len'"),
    "interleaved": (
        NO_TABLE | {"episode_idx": INTERLEAVED, "step_idx": np.arange(36) // 3},
        "cannot be derived: episode 0 .* row 3",
    ),
    "returning ids": (NO_TABLE | {"episode_idx": np.where(IDS == 2, 0, IDS), "step_idx": None}, "episode 0 goes on in row 21"),
    "ids of two values": (NO_TABLE | {"episode_idx": np.stack([IDS, IDS], 1)}, "several values a row"),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_are_told_in_one_sentence(tmp_path, name):
    replace, expected = LIES[name]
    path = write(tmp_path, **replace)
    with pytest.raises(UserError, match=expected) as error:
        open_episodes(path, TASK)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_an_empty_file_says_so(tmp_path):
    path = tmp_path / "data.h5"
    h5py.File(path, "w").close()
    with pytest.raises(UserError, match="it has: no columns at all"):
        open_episodes(path, TASK)


def test_an_unknown_filter_is_named(tmp_path):
    path = write(tmp_path)
    content = path.read_bytes()
    blosc, unknown = (number.to_bytes(2, "little") + b"\x08\x00" for number in (32001, 32767))
    assert content.count(blosc) == 1
    path.write_bytes(content.replace(blosc, unknown))
    with pytest.raises(UserError, match=r"'pixels' .* filter 32767 \(blosc\).*hdf5plugin"):
        open_episodes(path, TASK)


def test_without_hdf5plugin_its_name_is_told(tmp_path):
    script = (
        "import sys; sys.modules['hdf5plugin'] = None\n"
        "from phylatent.data.readers import open_episodes; from phylatent.tasks import get_task\n"
        f"open_episodes({str(write(tmp_path))!r}, get_task('tworooms'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "filter 32001 (blosc), which is not available here; pip install --upgrade hdf5plugin" in done.stderr
