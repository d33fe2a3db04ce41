from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from episode_files import columns, write_file

from phylatent.data.readers import open_episodes
from phylatent.data.stats import Split, fit_normaliser, fit_statistics, split_episodes, unroll
from phylatent.errors import UserError
from phylatent.schema import Normaliser, SplitConfig
from phylatent.tasks import get_task

TASK = get_task("tworooms")


def test_population_statistics_without_unknown_rows():
    values = np.array([[1.0, 5.0], [3.0, 5.0], [np.nan, 700.0], [5.0, 5.0]], dtype=np.float32)
    fitted = fit_normaliser(values)
    assert fitted.mean == (3.0, 5.0)
    assert fitted.std == (pytest.approx((8 / 3) ** 0.5), 0.0)


def test_a_constant_with_rounding_noise_is_a_constant():
    values = np.full((1000, 1), 0.1, dtype=np.float32)
    values[::2] = np.nextafter(np.float32(0.1), np.float32(1))
    assert fit_normaliser(values).std == (0.0,)


def test_a_small_signal_is_a_signal():
    assert fit_normaliser(np.array([[1e-4], [2e-4]])).std == (pytest.approx(0.5e-4),)


def test_nothing_but_unknown_rows():
    with pytest.raises(UserError, match="none of 3 rows"):
        fit_normaliser(np.full((3, 2), np.nan))


def test_a_constant_dimension_maps_to_zero():
    assert Normaliser(mean=(1.0, 7.0), std=(2.0, 0.0)).scale == (0.5, 0.0)


def test_statistics_of_training_episodes_only(tmp_path):
    lengths = (4, 3, 5)
    values = columns(lengths)
    values["action"][:3] = [[1, 0], [2, 0], [3, 0]]
    values["action"][3] = 99
    values["action"][4:6] = 1000
    replace = {name: values[name] for name in ("action",)}
    episodes = open_episodes(write_file(tmp_path / "data.h5", lengths, replace=replace), TASK)
    fitted = fit_statistics(episodes, TASK, [0])
    assert fitted.action.mean == (2.0, 0.0)
    assert fitted.action.std == (pytest.approx((2 / 3) ** 0.5), 0.0)
    assert fitted.target.mean == (1.5, -1.5)


def test_an_angle_becomes_sine_and_cosine_in_its_place():
    targets = torch.tensor([[7.0, 0.0, 3.0], [7.0, 0.25, 3.0], [7.0, 1.25, 3.0], [7.0, math.nan, 3.0]])
    circle = unroll(targets, periods={1: 1.0})
    torch.testing.assert_close(circle[:3], torch.tensor([[7.0, 0, 1, 3], [7, 1, 0, 3], [7, 1, 0, 3]]))
    assert circle[3].isnan().tolist() == [False, True, True, False]
    assert unroll(targets, periods={}) is targets


def test_the_z_score_of_an_angle_is_that_of_its_sine_and_cosine(tmp_path):
    episodes = open_episodes(write_file(tmp_path / "data.h5", (4, 3, 5)), TASK)
    fitted = fit_statistics(episodes, TASK, [0], periods={1: 2 * math.pi}).target
    x, y = episodes.targets[:4].T
    parts = (x, np.sin(y), np.cos(y))
    np.testing.assert_allclose(fitted.mean, [part.mean() for part in parts], rtol=1e-5)
    np.testing.assert_allclose(fitted.std, [part.std() for part in parts], rtol=1e-5)


def test_blocks_count_as_single_actions(tmp_path):
    path = write_file(tmp_path / "data.h5", (3, 3), stride=2, attributes={"frame_stride": 2})
    episodes = open_episodes(path, TASK)
    fitted = fit_statistics(episodes, TASK, [0, 1])
    raw = episodes.actions[[0, 1, 3, 4]].astype(np.float64).reshape(-1, 2)
    np.testing.assert_allclose(fitted.action.mean, raw.mean(0))
    np.testing.assert_allclose(fitted.action.std, raw.std(0))


def counts(split: Split) -> tuple[int, int, int]:
    return len(split.train), len(split.validation), len(split.test)


def test_split_by_episode():
    split = split_episodes(50, SplitConfig(seed=3))
    assert counts(split) == (40, 5, 5)
    assert sorted(split.train + split.validation + split.test) == list(range(50))
    assert all(list(side) == sorted(side) for side in (split.train, split.validation, split.test))
    assert split == split_episodes(50, SplitConfig(seed=3))
    assert split.test != split_episodes(50, SplitConfig(seed=4)).test
    assert Split.from_dict(json.loads(json.dumps(split.to_dict()))) == split


def test_sides_by_name():
    split = Split(train=(0, 1), validation=(2,), test=(3, 4), seed=0)
    assert split.side("test").facts == {"name": "test", "episodes": 2, "note": None}
    assert (split.side("validation").name, split.side("validation").episodes) == ("validation", (2,))
    assert split.validating == split.side("validation")


@pytest.mark.parametrize(
    "count, validation, test, expected",
    [
        (800, 0.1, 0.1, (640, 80, 80)),
        (12, 0.25, 0.25, (6, 3, 3)),
        (3, 0.1, 0.1, (1, 1, 1)),
        (3, 0.49, 0.49, (1, 1, 1)),
        (10, 0.01, 0.97, (1, 1, 8)),
        (10, 0.97, 0.01, (1, 8, 1)),
        (10, 0.0, 0.2, (8, 0, 2)),
        (2, 0.0, 0.01, (1, 0, 1)),
    ],
)
def test_every_side_of_a_split_gets_an_episode(count, validation, test, expected):
    assert counts(split_episodes(count, SplitConfig(validation=validation, test=test))) == expected


def test_too_few_episodes_to_split():
    with pytest.raises(UserError, match=r"the data holds 2 episodes; it takes at least 3 to train, choose settings and test"):
        split_episodes(2, SplitConfig())
    with pytest.raises(UserError, match=r"the data holds 1 episode; it takes at least 2"):
        split_episodes(1, SplitConfig(validation=0))


def test_a_split_in_two_of_an_earlier_version():
    """Ten episodes, seed 0: what 0.1.0 drew. It still opens, and says that its held-out side was looked at."""
    old = {"train": [0, 1, 2, 3, 5, 7, 8, 9], "held_out": [4, 6], "seed": 0}
    split = Split.from_dict(old)
    assert (split.train, split.validation, split.test) == ((0, 1, 2, 3, 5, 7, 8, 9), (), (4, 6))
    assert split == split_episodes(10, SplitConfig(validation=0, test=0.2)), "a resumed run draws what it drew before"
    assert split.side("test").facts == {
        "name": "held-out",
        "episodes": 2,
        "note": "two-way split: settings may have been chosen on these episodes",
    }
    assert split.validating == split.side("test")
    with pytest.raises(UserError, match="no validation episodes; take split=test"):
        split.side("validation")
    assert Split.from_dict(json.loads(json.dumps(split.to_dict()))) == split


def test_what_was_looked_at_before_is_no_test_episode():
    before = split_episodes(100, SplitConfig(validation=0, test=0.1))
    assert split_episodes(100, SplitConfig()).validation == before.test
