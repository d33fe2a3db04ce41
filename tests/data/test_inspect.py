from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from episode_files import columns, write_file
from PIL import Image

from phylatent.commands.inspect import in_words
from phylatent.data.inspect import contact_sheet, inspect_data
from phylatent.data.readers import open_episodes
from phylatent.tasks import get_task

TASK = get_task("tworooms")


def test_the_paper_s_columns_and_the_ranges(tmp_path):
    path = write_file(tmp_path / "data.h5", (12, 8))
    facts = inspect_data(path, TASK, clip_steps=4)
    assert (facts["transitions"], facts["episodes"], facts["steps_per_episode"]) == (20, 2, 10.0)
    assert facts["gib"] == path.stat().st_size / 2**30
    assert (facts["frame_size"], facts["frame_stride"]) == ([8, 8], 1)
    assert facts["columns"]["action"]["nan"] == 4
    assert facts["columns"]["proprio"] == {"dtype": "float32", "shape": [20, 2], "min": -19.0, "max": 19.0, "nan": 0}
    assert facts["columns"]["pixels"] == {"dtype": "uint8", "shape": [20, 8, 8, 3], "min": 0.0, "max": 19.0, "nan": 0}
    json.dumps(facts, allow_nan=False)


def test_what_it_says_has_units(tmp_path):
    said = in_words(inspect_data(write_file(tmp_path / "data.h5", (12, 8)), TASK, clip_steps=4))
    assert said["episodes"] == "2, of 10.0 steps on average"
    assert said["size"].endswith(" MiB")
    assert said["frames"] == "8 × 8 px, one a step"
    assert said["something moves in"].endswith(" % of 4-step windows")
    assert said["something turns in"] == "–"
    assert said["action autocorrelation"].endswith(" after 5 steps")


def test_autocorrelation_within_episodes(tmp_path):
    """Episodes of alternating signs: −1 at lag 1, +1 at lag 2; the seam between episodes would spoil both."""
    values = columns((10, 8))
    sign = np.concatenate([(-1.0) ** np.arange(10), (-1.0) ** np.arange(8)])
    values["action"] = np.stack([sign, np.full(18, 0.5)], axis=1)
    # As many of each sign in the nine and seven actions that count: the mean is then 0 and the value exact.
    values["action"][17] = values["action"][9] = np.nan
    values["action"][10:17, 0] *= -1
    path = write_file(tmp_path / "data.h5", (10, 8), replace={"action": values["action"]})
    facts = inspect_data(path, TASK)["action_autocorrelation"]
    assert facts["1"] == [pytest.approx(-1.0), None]
    assert facts["5"] == [pytest.approx(-1.0), None]


def test_autocorrelation_sees_single_steps_inside_stored_blocks(tmp_path):
    path = write_file(tmp_path / "data.h5", (4, 4), stride=2, attributes={"frame_stride": 2})
    raw = open_episodes(path, TASK).actions[[0, 1, 2, 4, 5, 6]].reshape(2, 6, 2).astype(np.float64)
    centred = raw - raw.mean((0, 1))
    expected = (centred[:, 1:] * centred[:, :-1]).mean((0, 1)) / (centred**2).mean((0, 1))
    np.testing.assert_allclose(inspect_data(path, TASK)["action_autocorrelation"]["1"], expected)


def test_a_goal_counts_as_reached_by_the_state_after_the_row_that_holds_it(tmp_path):
    """Episodes 0 and 2 arrive at the goal of the row before; episode 1 only ever meets the goal that replaces it."""
    state = np.zeros((9, 2), dtype=np.float32)
    goal = np.full((9, 2), 500, dtype=np.float32)
    state[1], goal[0] = 100, 100
    state[4], goal[4] = 100, 100
    state[8], goal[7] = 100, 100
    path = write_file(tmp_path / "data.h5", (3, 3, 3), replace={"state": state, "goal_state": goal})
    assert inspect_data(path, TASK)["reached_goal"] == pytest.approx(2 / 3)


def test_unknown_goals_are_unknown(tmp_path):
    path = write_file(tmp_path / "data.h5", replace={"goal_state": None})
    assert inspect_data(path, TASK)["reached_goal"] is None


def test_share_of_windows_in_which_the_object_moves(tmp_path):
    """It stands, jumps once between rows 5 and 6 of 12, and stands: of the 9 windows of 3 steps, 3 see the jump."""
    proprio = np.zeros((12, 2), dtype=np.float32)
    proprio[6:, 1] = 3.0
    path = write_file(tmp_path / "data.h5", (12,), replace={"proprio": proprio})
    assert inspect_data(path, TASK, clip_steps=3)["moving_windows"] == pytest.approx(3 / 9)
    patient = replace(TASK, moving_tolerance=4.0)
    assert inspect_data(path, patient, clip_steps=3)["moving_windows"] == 0.0
    assert inspect_data(path, replace(TASK, moving_dims=(0,)), clip_steps=3)["moving_windows"] == 0.0
    assert inspect_data(path, TASK, clip_steps=25)["moving_windows"] is None


def test_an_angle_that_passes_its_period_has_hardly_moved(tmp_path):
    target = replace(TASK.target, modulo={0: 10.0})
    proprio = np.array([[9.9, 0.0], [10.1, 0.0]] * 3, dtype=np.float32)
    path = write_file(tmp_path / "data.h5", (6,), replace={"proprio": proprio})
    assert inspect_data(path, replace(TASK, target=target), clip_steps=2)["moving_windows"] == 0.0


def test_turning_is_counted_apart_from_moving(tmp_path):
    """The second dimension is an angle that creeps past its period and then turns for good; the first one never moves."""
    turning = replace(
        TASK, moving_dims=(0,), turning_dims=(1,), turning_tolerance=0.5, target=replace(TASK.target, angles={1: 10.0})
    )
    proprio = np.zeros((6, 2), dtype=np.float32)
    proprio[:, 1] = [9.9, 0.1, 10.1, 0.1, 20.0, 23.0]
    path = write_file(tmp_path / "data.h5", (6,), replace={"proprio": proprio})
    facts = inspect_data(path, turning, clip_steps=2)
    assert (facts["moving_windows"], facts["turning_windows"]) == (0.0, pytest.approx(1 / 4))
    assert inspect_data(path, TASK, clip_steps=2)["turning_windows"] is None


def test_contact_sheet(tmp_path):
    episodes = open_episodes(write_file(tmp_path / "data.h5", (12, 9, 15)), TASK)
    sheet = np.asarray(Image.open(contact_sheet(episodes, tmp_path / "sheet.png", shown=2, frames_each=3, gap=1)))
    assert sheet.shape == (2 * 9 - 1, 3 * 9 - 1, 3)
    assert [sheet[4, 4, 0], sheet[4, 22, 0]] == [0, 11]
    assert [sheet[13, 4, 0], sheet[13, 22, 0]] == [21, 35]
