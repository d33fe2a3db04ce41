from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
from episode_files import columns, write_file

from phylatent.data.readers import Episodes, open_episodes
from phylatent.errors import UserError
from phylatent.tasks import get_task

TASK = get_task("tworooms")
LENGTHS = (12, 9, 15)
LAST = [11, 20, 35]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_file(tmp_path / "data.h5", LENGTHS)


def sentence(path: Path, task=TASK) -> str:
    with pytest.raises(UserError) as error:
        open_episodes(path, task)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_reads_the_published_layout(file):
    episodes = open_episodes(file, TASK)
    assert episodes.lengths.tolist() == [12, 9, 15]
    assert episodes.offsets.tolist() == [0, 12, 21]
    assert episodes.lengths.dtype == episodes.offsets.dtype == np.int64
    assert episodes.frame_stride == 1
    assert episodes.task_name is None
    assert episodes.frame_shape == (8, 8, 3)
    assert episodes.path == file
    assert episodes.targets.dtype == np.float32
    assert episodes.targets[5].tolist() == [5, -5]
    assert episodes.actions.dtype == np.float32
    np.testing.assert_allclose(episodes.actions[5], [0.005, 0.00501], rtol=1e-6)
    assert set(episodes.row(7)) == {"proprio", "state", "goal_state"}
    assert episodes.row(7)["goal_state"].tolist() == [1007, 993]
    assert episodes.column("step_idx")[12] == 0


@pytest.mark.parametrize("held", [np.nan, 0.7, np.inf])
def test_the_last_action_of_an_episode_is_ignored_whatever_it_holds(tmp_path, held):
    action = columns(LENGTHS)["action"]
    action[LAST] = held
    episodes = open_episodes(write_file(tmp_path / "data.h5", LENGTHS, replace={"action": action}), TASK)
    assert (episodes.actions[LAST] == 0).all()
    assert np.isfinite(episodes.actions).all()


def test_frames_come_in_the_asked_order_and_shape(file):
    rows = np.array([[30, 2, 2], [0, 35, 7]])
    frames = open_episodes(file, TASK).frames(rows)
    assert frames.shape == (2, 3, 8, 8, 3)
    assert frames.dtype == np.uint8
    assert (frames == rows[..., None, None, None]).all()


def test_chunks_of_many_frames_and_no_chunks_read_alike(file, tmp_path):
    pixels = columns(LENGTHS)["pixels"]
    for name, options in (("many", {"chunks": (10, 8, 8, 3), "compression": "gzip"}), ("none", {})):
        other = write_file(tmp_path / f"{name}.h5", LENGTHS, replace={"pixels": None})
        with h5py.File(other, "a") as handle:
            handle.create_dataset("pixels", data=pixels, **options)
        rows = np.array([33, 4, 5, 4])
        assert (open_episodes(other, TASK).frames(rows) == open_episodes(file, TASK).frames(rows)).all()


def test_targets_take_their_columns_in_order_and_angles_modulo(tmp_path):
    task = get_task("pusht")
    state = np.zeros((36, 7), dtype=np.float64)
    state[:, 0] = 40.0
    state[:, 4] = -np.pi / 2
    episodes = open_episodes(write_file(tmp_path / "data.h5", LENGTHS, replace={"state": state}), task)
    assert episodes.targets[0].tolist() == pytest.approx([40, 0, 0, 0, 1.5 * np.pi, 0, 0])


def test_rows_between_episodes_may_hold_anything(tmp_path):
    action = columns(LENGTHS)["action"]
    action[12:21] = np.nan
    replace = {"action": action, "ep_len": np.array([15, 12]), "ep_offset": np.array([21, 0])}
    episodes = open_episodes(write_file(tmp_path / "data.h5", LENGTHS, replace=replace), TASK)
    assert episodes.lengths.tolist() == [15, 12]


def test_unknown_physical_values_stay_unknown(tmp_path):
    proprio = columns(LENGTHS)["proprio"]
    proprio[3, 0] = np.nan
    episodes = open_episodes(write_file(tmp_path / "data.h5", LENGTHS, replace={"proprio": proprio}), TASK)
    assert np.isnan(episodes.targets[3, 0])


def test_rows_at_block_spacing(tmp_path):
    path = write_file(tmp_path / "data.h5", LENGTHS, stride=5, attributes={"frame_stride": 5, "task": "tworooms"})
    episodes = open_episodes(path, TASK)
    assert (episodes.frame_stride, episodes.task_name) == (5, "tworooms")
    assert episodes.actions.shape == (36, 10)


def test_the_fingerprint_is_the_contents(file, tmp_path):
    same = write_file(tmp_path / "copy.h5", LENGTHS)
    action = columns(LENGTHS)["action"]
    action[3, 0] += 1e-3
    other = write_file(tmp_path / "other.h5", LENGTHS, replace={"action": action})
    prints = [open_episodes(path, TASK).fingerprint() for path in (file, same, other)]
    assert prints[0] == prints[1] != prints[2]
    assert len(prints[0]) == 64


def read_in_child(episodes: Episodes, out) -> None:
    out.put(episodes.frames(np.array([9, 4]))[:, 0, 0, 0].tolist())


@pytest.mark.parametrize("method", ["fork", "pickle"])
def test_other_processes_read_through_handles_of_their_own(file, method):
    episodes = open_episodes(file, TASK)
    episodes.frames(np.array([0]))
    if method == "pickle":
        assert (pickle.loads(pickle.dumps(episodes)).frames(np.array([9]))[0] == 9).all()
        return
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=read_in_child, args=(episodes, out))
    child.start()
    assert out.get(timeout=30) == [9, 4]
    child.join()
    assert (episodes.frames(np.array([5]))[0] == 5).all()


def test_a_directory_means_its_only_file(file, tmp_path):
    assert open_episodes(tmp_path, TASK).path == file
    write_file(tmp_path / "second.h5")
    assert "holds 2 data files (data.h5, second.h5)" in sentence(tmp_path)


def test_nothing_there(tmp_path):
    assert "there is no data file" in sentence(tmp_path / "no.h5")
    assert "phylatent collect task=tworooms" in sentence(tmp_path / "no.h5")
    assert "holds no .h5" in sentence(tmp_path)


def test_a_collection_in_progress_says_so(tmp_path):
    (tmp_path / "data.h5.parts").mkdir()
    for path in (tmp_path / "data.h5", tmp_path):
        text = sentence(path)
        assert str(tmp_path / "data.h5") in text
        assert "run the same collect command again" in text


def test_not_a_whole_hdf5_file(file, tmp_path):
    whole = file.read_bytes()
    cases = {
        b"": "is empty",
        b"PK\x03\x04 something else": "not an HDF5 file",
        b"\x28\xb5\x2f\xfd....": "phylatent import",
        whole[: len(whole) // 2]: "cut short",
        whole[:-1]: "cut short",
    }
    for content, expected in cases.items():
        bad = tmp_path / "bad.h5"
        bad.write_bytes(content)
        assert expected in sentence(bad)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
def test_a_collected_file_cut_short_anywhere(tworooms_data, tmp_path, share):
    whole = tworooms_data.read_bytes()
    cut = tmp_path / "cut.h5"
    cut.write_bytes(whole[: int(share * len(whole))])
    assert "cut short" in sentence(cut)


def test_a_damaged_frame_is_named(file):
    with h5py.File(file) as handle:
        chunk = handle["pixels"].id.get_chunk_info_by_coord((7, 0, 0, 0))
    with file.open("r+b") as handle:
        handle.seek(chunk.byte_offset)
        handle.write(b"\xff" * chunk.size)
    episodes = open_episodes(file, TASK)
    episodes.frames(np.array([6, 8]))
    with pytest.raises(UserError, match=r"'pixels'.*row 7.*damaged"):
        episodes.frames(np.array([8, 7]))


def bad_action(row: int, value: float) -> np.ndarray:
    action = columns(LENGTHS)["action"]
    action[row, 1] = value
    return action


PIXELS = columns(LENGTHS)["pixels"]
WITH_NAN = np.where(np.arange(36)[:, None, None, None] == 17, np.nan, PIXELS).astype(np.float32)
BAD = {
    "missing pixels": ({"pixels": None}, "no column 'pixels'"),
    "missing target": ({"proprio": None}, "no column 'proprio'"),
    "missing ep_len": ({"ep_len": None}, "no column 'ep_len'"),
    "short column": ({"proprio": np.zeros((30, 2))}, "'proprio' .* has 30 rows, but .* has 36"),
    "short state": ({"state": np.zeros((30, 2))}, "'state' .* has 30 rows, but .* has 36"),
    "action dimension": ({"action": np.zeros((36, 5))}, r"\[36, 5\].*data of another task"),
    "target dimension": ({"proprio": np.zeros((36, 7))}, "7 dimensions.*data of another task"),
    "NaN pixels": ({"pixels": WITH_NAN}, "float32 values with NaN in row 17"),
    "wide pixels": ({"pixels": PIXELS.astype(np.int32)}, "int32 values"),
    "grey pixels": ({"pixels": PIXELS[..., 0]}, r"shape \[36, 8, 8\]"),
    "offset past the end": ({"ep_offset": np.array([0, 12, 22])}, "episode 2 .* rows 22 to 36, but the file has 36"),
    "negative offset": ({"ep_offset": np.array([-1, 12, 21])}, "episode 0 .* rows -1"),
    "overlap": ({"ep_offset": np.array([0, 11, 21])}, "episodes 0 and 1 .* overlap"),
    "empty episode": ({"ep_len": np.array([12, 0, 15])}, "episode 1 .* length 0"),
    "uneven table": ({"ep_len": np.array([12, 9])}, r"shapes \[2\] and \[3\]"),
    "no episodes": ({"ep_len": np.zeros(0, int), "ep_offset": np.zeros(0, int)}, "no complete episode"),
    "single rows": ({"ep_len": np.ones(3, int)}, "no complete episode"),
    "NaN action": ({"action": bad_action(14, np.nan)}, r"row 14 .*\(episode 1, step 2\)"),
    "infinite action": ({"action": bad_action(0, np.inf)}, r"row 0 .*\(episode 0, step 0\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_content_is_told_in_one_sentence(tmp_path, name):
    replace, expected = BAD[name]
    path = write_file(tmp_path / "bad.h5", LENGTHS, replace=replace)
    text = sentence(path)
    assert str(path) in text
    with pytest.raises(UserError, match=expected):
        open_episodes(path, TASK)


def test_data_of_another_task(tmp_path):
    path = write_file(tmp_path / "data.h5", attributes={"task": "pusht"})
    assert "data of another task: 'pusht', but task=tworooms" in sentence(path)


def test_a_column_that_is_not_there(file):
    with pytest.raises(UserError, match="no column 'reward'"):
        open_episodes(file, TASK).column("reward")


def test_published_files_need_not_hold_every_column(tmp_path):
    path = write_file(tmp_path / "data.h5", replace={"goal_state": None, "state": None})
    assert set(open_episodes(path, TASK).row(0)) == {"proprio"}
