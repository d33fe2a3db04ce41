"""Reachability: its criterion by hand, a latent that leads to every goal, and one that is folded on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from episode_files import write_file

from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import Split
from phylatent.diagnostics.diagnose import Diagnosis, diagnose_model
from phylatent.diagnostics.reachability import DIAGNOSTIC, descent, goal_distances, reachability_failures
from phylatent.errors import UserError
from phylatent.schema import ClipConfig, DiagnoseConfig
from phylatent.statistics import by_episode, cluster_interval
from phylatent.tasks.tworooms import TASK

LENGTH, EPISODES = 40, 6
SPLIT = Split(train=(0,), validation=(), test=(1, 2, 3, 4, 5), seed=0)
SETTINGS = DiagnoseConfig(diagnostics=("reachability",), states=60, horizons=(1, 2), seeds=(0, 1), bootstrap=200, workers=1)


def test_the_criterion_by_hand() -> None:
    z_NLD = np.array([[[3.0, 4], [0, 1], [0, 0]], [[1, 0], [2, 0], [2, 2]]])
    assert goal_distances(z_NLD) == pytest.approx(np.array([[5, 1], [5**0.5, 2]]))
    # Time left is 3, 2, 1. Distances 2, 3, 1 differ from it by 1, 1 and 0 ranks: ρ = 1 − 6·2 / (3·8).
    found = descent(np.array([[9.0, 5, 1], [1, 5, 9], [2, 3, 1], [1, 3, 2], [7, 7, 7]]))
    assert found == pytest.approx([1, -1, 0.5, -0.5, 0])
    assert reachability_failures(found.round(6)).tolist() == [False, True, False, True, True]


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Episodes:
    """Row r has frames filled with r and the position (r, −r): a straight way on which nothing turns back."""
    path = tmp_path_factory.mktemp("straight") / "straight.h5"
    return open_episodes(write_file(path, [LENGTH] * EPISODES), TASK)


class RowLatents:
    """The latent of row r is (`place`(r), 1)."""

    def __init__(self, place: Any) -> None:
        self.place = place

    def encode(self, frames: torch.Tensor) -> np.ndarray:
        rows = frames[:, 0, 0, 0].numpy().astype(np.float64)
        return np.stack([self.place(rows), np.ones_like(rows)], axis=1)

    def rollout(self, z: np.ndarray, blocks: torch.Tensor) -> np.ndarray:
        return np.repeat(z[:, None], blocks.shape[1], axis=1)


def folded(rows: np.ndarray) -> np.ndarray:
    """There and back within the 20 rows of a path: its goal lies where it began."""
    return np.abs(rows % 20 - 10)


def diagnose(model: Any, episodes: Episodes, settings: DiagnoseConfig = SETTINGS) -> Diagnosis:
    return diagnose_model(model, task=TASK, episodes=episodes, split=SPLIT, clip=ClipConfig(), settings=settings)


def test_a_monotone_latent_never_fails(episodes: Episodes) -> None:
    found = diagnose(RowLatents(lambda rows: rows**2), episodes)
    section = found.record["reachability"]
    assert found.rates == {"reachability": 0}
    assert (section["eligible"], section["blocks"], section["median_correlation"]) == (120, 4, pytest.approx(1))
    assert [one["median_correlation"] for one in section["per_seed"]] == pytest.approx([1, 1])
    assert section["physical"]["rate"] == 0, "the way is straight"
    assert found.arrays["seed1/reachability/distance"].shape == (60, 4)
    assert (found.arrays["seed0/reachability/goal"] - found.arrays["seed0/reachability/row"] == 20).all()
    assert DIAGNOSTIC.remark(section) == "median correlation 1.00, and 0.0 % of paths fail by physical distance"


def test_a_folded_latent_fails(episodes: Episodes) -> None:
    section = diagnose(RowLatents(folded), episodes).record["reachability"]
    assert section["rate"] > 0.9
    assert section["median_correlation"] < 0.5
    assert section["physical"]["rate"] == 0


def test_the_interval_is_over_episodes(episodes: Episodes) -> None:
    """Two of five episodes are folded: their paths fail together, so the interval is wide."""
    settings = replace(SETTINGS, seeds=(0,))
    found = diagnose(RowLatents(lambda rows: np.where((rows // LENGTH) % 2, rows, folded(rows))), episodes, settings)
    section, arrays = found.record["reachability"], {k.split("/")[-1]: v for k, v in found.arrays.items()}
    failed, episode = arrays["correlation"] < 0.5, arrays["row"] // LENGTH
    assert section["failures"] == failed.sum()
    expected = cluster_interval(*by_episode(failed, episode), draws=settings.bootstrap)
    assert section["interval"] == pytest.approx(expected)
    assert section["interval"][1] - section["interval"][0] > 0.4


def test_one_path_and_none(episodes: Episodes) -> None:
    section = diagnose(RowLatents(folded), episodes, replace(SETTINGS, states=1, seeds=(0,))).record["reachability"]
    assert (section["failures"], section["eligible"], section["interval"]) == (1, 1, [0, 1])
    broken = diagnose(RowLatents(np.zeros_like), episodes).record
    assert broken["health"]["status"] == "constant"
    assert (broken["reachability"]["rate"], broken["reachability"]["median_correlation"]) == (None, None)
    assert DIAGNOSTIC.remark(broken["reachability"]) == ""
    with pytest.raises(UserError, match="as long as 16 blocks of actions, which reachability takes"):
        diagnose(RowLatents(folded), episodes, replace(SETTINGS, horizons=(8,)))


def test_its_points_are_the_records(episodes: Episodes, tmp_path: Path) -> None:
    found = diagnose(RowLatents(folded), episodes)
    arrays = {k.removeprefix("seed0/reachability/"): v for k, v in found.arrays.items() if k.startswith("seed0/")}
    points = DIAGNOSTIC.points(arrays, found.record["reachability"])
    assert points is not None
    assert points.failed.sum() == found.record["reachability"]["per_seed"][0]["failures"]
    assert (points.y >= points.x).all()
    assert DIAGNOSTIC.points({}, {}) is None
