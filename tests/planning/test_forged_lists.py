"""Start/goal lists whose hash fits and whose pairs do not: refused by what they hold, with the pair's index."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import Split, split_episodes
from phylatent.errors import UserError
from phylatent.planning.pairs import PairList, draw_pairs, make_list
from phylatent.schema import PlanConfig, SplitConfig
from phylatent.tasks.tworooms import TASK

SETTINGS = PlanConfig(pairs=3, seeds=(0, 1), goal_steps=25)


@pytest.fixture(scope="module")
def episodes(tworooms_data: Path) -> Episodes:
    return open_episodes(tworooms_data, TASK)


@pytest.fixture(scope="module")
def split(episodes: Episodes) -> Split:
    return split_episodes(len(episodes.lengths), SplitConfig(validation=0.25, test=0.25))


def forge(path: Path, record: dict[str, Any]) -> Path:
    """Sign whatever the record says."""
    signed = {name: value for name, value in record.items() if name != "hash"}
    record["hash"] = hashlib.sha256(json.dumps(signed, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(record))
    return path


FORGED = {
    "before the episode": ({"start": -5}, "pair 2.start is -5, expected a whole number from 0 on"),
    "past the end": ({"goal": 31}, "pair 2 of .* with its goal at row 31 .* which has 31 rows"),
    "far past the end": ({"goal": 10**9}, "its goal at row 1000000000"),
    "start past the end": ({"start": 100, "goal": 125}, "pair 2 of .* starts at row 100"),
    "goal first": ({"start": 9, "goal": 4}, "a goal lies after its start"),
    "goal at once": ({"start": 9, "goal": 9}, "a goal lies after its start"),
    "float": ({"start": 1.0}, "pair 2.start is 1.0, expected a whole number"),
    "boolean": ({"start": True}, "pair 2.start is true, expected a whole number"),
    "text": ({"goal": "25"}, "pair 2.goal is '25', expected a whole number"),
    "null": ({"goal": None}, "pair 2.goal is null"),
    "huge": ({"goal": 10**30}, "pair 2.goal is a huge number"),
    "seed": ({"seed": -1}, "pair 2.seed is -1"),
    "no such episode": ({"episode": 99}, "not among this model's test ones: pair 2 is of episode 99"),
    "negative episode": ({"episode": -1}, "pair 2.episode is -1"),
    "extra": ({"reward": 1}, "pair 2 has reward, which is not of a pair"),
}


@pytest.mark.parametrize("change, sentence", FORGED.values(), ids=FORGED.keys())
def test_a_forged_pair(change: dict, sentence: str, episodes: Episodes, split: Split, tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    draw_pairs(TASK, episodes, split, "paper", SETTINGS).save(path)
    record = json.loads(path.read_text())
    record["pairs"][2] |= change
    given = replace(SETTINGS, list=str(forge(path, record)))
    with pytest.raises(UserError, match=sentence):
        make_list(TASK, episodes, split, "paper", given)


def test_a_training_episode_is_never_planned_in(episodes: Episodes, split: Split, tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    draw_pairs(TASK, episodes, split, "paper", SETTINGS).save(path)
    record = json.loads(path.read_text())
    record["pairs"][1]["episode"] = split.train[0]
    given = replace(SETTINGS, list=str(forge(path, record)))
    with pytest.raises(UserError, match=f"pair 1 is of episode {split.train[0]}"):
        make_list(TASK, episodes, split, "paper", given)


LISTS = {
    "empty": ({"pairs": []}, "holds no pairs"),
    "no list": ({"pairs": {}}, "pairs is an object, expected a list"),
    "of nothing": ({"pairs": [None]}, r"pairs\[0\] is null, expected an object"),
    "no start": ({"pairs": [{"seed": 0, "episode": 4, "goal": 25}]}, "pair 0 has no start"),
    "task": ({"task": 3}, "task is 3, expected a text"),
    "data": ({"data": None}, "data is null, expected a text"),
    "extra": ({"also": 1}, "it has also, which is not of a list"),
}


@pytest.mark.parametrize("change, sentence", LISTS.values(), ids=LISTS.keys())
def test_a_forged_list(change: dict, sentence: str, episodes: Episodes, split: Split, tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    draw_pairs(TASK, episodes, split, "paper", SETTINGS).save(path)
    forge(path, json.loads(path.read_text()) | change)
    with pytest.raises(UserError, match=sentence):
        PairList.load(path)


def test_what_is_no_list(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    with pytest.raises(UserError, match="there is no start/goal list"):
        PairList.load(path)
    for content, sentence in ((b"{", "not JSON"), (b'{"a":' * 100_000, "nested too deeply"), (b"\xff", "not text")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=sentence):
            PairList.load(path)


def test_pairs_may_occur_twice(episodes: Episodes, split: Split, tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    drawn = draw_pairs(TASK, episodes, split, "paper", SETTINGS)
    replace(drawn, pairs=(*drawn.pairs, drawn.pairs[0])).save(path)
    assert len(make_list(TASK, episodes, split, "paper", replace(SETTINGS, list=str(path))).pairs) == len(drawn.pairs) + 1
