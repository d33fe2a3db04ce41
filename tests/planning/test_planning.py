"""Planning judged: the lists, what their episodes share, and that nothing depends on how they are run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exact_model import ExactTwoRooms
from short_ways import numbers

from phylatent.data.readers import open_episodes
from phylatent.data.stats import split_episodes
from phylatent.errors import PhylatentError, UserError
from phylatent.planning.actions import Actions
from phylatent.planning.evaluate import Course, lay_out, run_policies
from phylatent.planning.imagination import failure_cause, imagination, nearest
from phylatent.planning.pairs import PairList, draw_pairs
from phylatent.planning.record import outcomes, summarise
from phylatent.schema import Normaliser, PlanConfig, SplitConfig
from phylatent.simulator import Simulator
from phylatent.statistics import rank_correlation, success_interval, wilson
from phylatent.tasks.tworooms import TASK

ACTIONS = Actions((-1.0, -1.0), (1.0, 1.0), Normaliser((0.0, 0.0), (0.87, 0.87)))
SMALL = PlanConfig(pairs=3, seeds=(0, 1), candidates=24, elites=4, iterations=3, workers=1, filmstrips=2)


@pytest.fixture(scope="module")
def course(tworooms_data: Path) -> Course:
    episodes = open_episodes(tworooms_data, TASK)
    split = split_episodes(len(episodes.lengths), SplitConfig(test=0.5))
    return lay_out(TASK, episodes, split, replace(SMALL, protocol=("paper", "moderate")), 5)


def test_pairs_come_from_test_episodes_and_their_order_from_the_seed(tworooms_data):
    episodes = open_episodes(tworooms_data, TASK)
    split = split_episodes(len(episodes.lengths), SplitConfig(test=0.25))
    pairs = draw_pairs(TASK, episodes, split, "paper", SMALL)
    assert {pair.episode for pair in pairs.pairs} <= set(split.test)
    assert all(pair.goal - pair.start == 25 and pair.goal < episodes.lengths[pair.episode] for pair in pairs.pairs)
    assert [pair.seed for pair in pairs.pairs] == [0, 0, 0, 1, 1, 1]
    again = draw_pairs(TASK, episodes, split, "paper", SMALL)
    assert again.hash == pairs.hash
    assert draw_pairs(TASK, episodes, split, "paper", replace(SMALL, seeds=(2, 3))).hash != pairs.hash
    assert len(set(draw_pairs(TASK, episodes, split, "paper", replace(SMALL, pairs=999)).pairs)) == 2 * 3 * 6


def test_a_list_that_was_changed_is_not_believed(tmp_path, course):
    path = tmp_path / "pairs.json"
    course.lists["paper"].save(path)
    assert PairList.load(path) == course.lists["paper"]
    record = json.loads(path.read_text())
    record["pairs"][0]["start"] += 1
    path.write_text(json.dumps(record))
    with pytest.raises(UserError, match="changed after it was written"):
        PairList.load(path)
    path.write_text("[]")
    with pytest.raises(UserError, match="not a start/goal list"):
        PairList.load(path)


def test_a_list_names_its_split(tmp_path, tworooms_data):
    episodes = open_episodes(tworooms_data, TASK)
    split = split_episodes(len(episodes.lengths), SplitConfig(validation=0.25, test=0.25))
    chosen = replace(SMALL, split="validation")
    pairs = draw_pairs(TASK, episodes, split, "paper", chosen)
    assert pairs.split == "validation"
    assert {pair.episode for pair in pairs.pairs} <= set(split.validation)
    assert replace(pairs, split="test").hash != pairs.hash
    pairs.save(tmp_path / "pairs.json")
    given = {"list": str(tmp_path / "pairs.json")}
    course = lay_out(TASK, episodes, split, replace(chosen, **given), 5)
    record = summarise(course, "paper", {})
    assert record["split"]["name"] == "validation"
    assert record["split"]["episodes"] == 3
    with pytest.raises(UserError, match="is a list of validation episodes, and this model is judged on test ones"):
        lay_out(TASK, episodes, split, replace(SMALL, **given), 5)
    other = replace(split, train=split.validation, validation=split.train)
    with pytest.raises(UserError, match="holds episodes that are not among this model's validation ones"):
        lay_out(TASK, episodes, other, replace(chosen, **given), 5)


def test_a_list_of_an_earlier_version_is_one_of_held_out_episodes(tmp_path):
    """Its hash, computed here as that version did, still fits."""
    old = {"task": "tworooms", "protocol": "paper", "data": "d", "pairs": [{"seed": 0, "episode": 4, "start": 1, "goal": 26}]}
    digest = hashlib.sha256(json.dumps(old, sort_keys=True).encode()).hexdigest()
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(old | {"hash": digest}))
    found = PairList.load(path)
    assert (found.split, found.hash) == ("held-out", digest)
    found.save(path)
    assert PairList.load(path) == found


def test_protocols_share_the_episodes_they_have_in_common(course):
    places = {(pair.episode, pair.start) for pairs in course.lists.values() for pair in pairs.pairs}
    assert len(course.starts) == len(places) < sum(len(pairs.pairs) for pairs in course.lists.values())


def test_recorded_history_is_what_lies_before_the_start_in_the_data(tworooms_data):
    episodes = open_episodes(tworooms_data, TASK)
    split = split_episodes(len(episodes.lengths), SplitConfig(test=0.5))
    course = lay_out(TASK, episodes, split, replace(SMALL, goal_steps=15, pairs=20, history="recorded"), 5)
    seen = set()
    for one in course.starts:
        row = int(episodes.offsets[one.pair.episode]) + one.pair.start
        seen.add(len(one.past))
        assert len(one.past) == min(2, one.pair.start // 5)
        for back, (frame, block) in zip(range(5 * len(one.past), 0, -5), one.past, strict=True):
            assert np.array_equal(frame, episodes.frames(np.array([row - back]))[0])
            assert np.array_equal(block, episodes.actions[row - back : row - back + 5].reshape(-1))
        assert np.array_equal(one.recorded_kA.reshape(15, 2), episodes.actions[row : row + 15])
    assert seen == {0, 1, 2}


def test_a_task_without_the_protocol_says_so(tworooms_data, course):
    episodes = open_episodes(tworooms_data, TASK)
    split, only_paper = (
        split_episodes(len(episodes.lengths), SplitConfig()),
        replace(TASK, rules={"paper": TASK.rules["paper"]}),
    )
    with pytest.raises(UserError, match="no planning protocol 'strict'; it has: paper"):
        draw_pairs(only_paper, episodes, split, "strict", SMALL)


@pytest.fixture(scope="module")
def run_once(course):
    return run_policies(course.settings.policy, course, model=ExactTwoRooms(), actions=ACTIONS)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_twice_and_with_another_process_count(course, run_once):
    again = run_policies(course.settings.policy, course, model=ExactTwoRooms(), actions=ACTIONS)
    assert numbers(course, again) == numbers(course, run_once)
    shared = replace(course, settings=replace(course.settings, workers=2))
    in_two = run_policies(shared.settings.policy, shared, model=ExactTwoRooms(), actions=ACTIONS)
    assert numbers(course, in_two) == numbers(course, run_once)


def test_a_second_model_is_planned_with_in_the_same_simulators(course, run_once, monkeypatch):
    """A renderer lives to the end of its process: eight more for each model would fill the memory."""
    monkeypatch.setattr(Simulator, "__init__", lambda *_: pytest.fail("another simulator was made"))
    again = run_policies(["model", "random"], course, model=ExactTwoRooms(), actions=ACTIONS)
    assert len(again["model"]) == len(course.starts)


def test_floors_and_ceiling(course, run_once):
    def rate(policy: str, protocol: str) -> float:
        return np.mean([outcome.success for outcome in outcomes(course, protocol, run_once[policy])])

    solved = np.mean([TASK.rules["paper"].solved(one.row) for one in course.starts_of("paper")])
    assert rate("nothing", "paper") == solved
    assert rate("nothing", "moderate") == 0
    assert rate("expert", "paper") == 1
    assert rate("expert", "moderate") == 1


def test_the_record_counts_what_happened(course, run_once):
    record = summarise(course, "paper", run_once)
    model = record["policies"]["model"]
    assert model["count"] == len(record["episodes"]["model"]) == record["pairs"]["count"]
    assert model["successes"] == sum(episode["success"] for episode in record["episodes"]["model"])
    assert model["interval"][0] <= model["rate"] <= model["interval"][1]
    assert model["interval_of"] == "episodes (cluster bootstrap)"
    homes = [pair.episode for pair in course.lists["paper"].pairs]
    assert model["interval"] == list(success_interval([e["success"] for e in record["episodes"]["model"]], homes))
    assert model["wilson"] == list(wilson(model["successes"], model["count"]))
    assert [entry["seed"] for entry in model["per_seed"]] == [0, 1]
    assert record["pairs"]["hash"] == course.lists["paper"].hash
    for episode in record["episodes"]["model"]:
        assert episode["first_success"] is None or episode["success"]
        assert episode["start_distance"] >= 0
        if episode["first_success"] != 0:
            assert {"imagined_cost", "real_cost", "recorded_cost", "start_cost"} <= episode["plans"][0].keys()


def test_what_a_model_raises_in_a_process_is_told_in_a_sentence(course):
    with pytest.raises(PhylatentError, match="planning tworooms failed: ZeroDivisionError"):
        run_policies(["model"], course, model=Broken(), actions=ACTIONS)


class Broken(ExactTwoRooms):
    def rollout(self, z, blocks):
        return 1 / 0


@pytest.mark.parametrize(
    ("start_cost", "imagined", "real", "recorded", "why"),
    [(100, 20, 21, 5, "search"), (100, 2, 60, 5, "model"), (100, 2, 3, 5, "latent"), (100, 2, 60, None, "model")],
)
def test_why_a_plan_failed(run_once, start_cost, imagined, real, recorded, why):
    trajectory = next(t for t in run_once["model"] if t.plans)
    costs = {"start_cost": start_cost, "planned_cost": imagined, "imagined_cost": imagined}
    costs |= {"real_cost": real, "recorded_cost": recorded}
    failed = replace(trajectory, plans=[replace(trajectory.plans[0], **costs)])
    assert failure_cause(failed) == why
    assert imagination([failed], [False])["failures"][why] == 1


def test_rank_correlation_and_nearest_by_hand():
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 900.0])) == pytest.approx(1.0)
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
    assert rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(0.866, abs=1e-3)
    assert rank_correlation(np.array([1.0, 1.0]), np.array([1.0, 2.0])) is None
    bank = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
    assert nearest(np.array([[0.9, 0.8], [4.0, 9.0]]), bank).tolist() == [1, 2]
