"""When an episode counts, on hand-made states; TwoRooms' rules and its walls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phylatent.planning.protocols import score
from phylatent.schema import Rule
from phylatent.tasks.tworooms import TASK, stopped_by_walls


def rows(*states: tuple[float, float], goal: tuple[float, float] = (50.0, 50.0)) -> list[dict[str, np.ndarray]]:
    return [
        {"state": np.array(s, np.float32), "proprio": np.array(s, np.float32), "goal_state": np.array(goal)} for s in states
    ]


def test_success_is_noted_on_its_step_whatever_happens_afterwards():
    outcome = score(rows((100, 50), (70, 50), (60, 50), (100, 50)), TASK.rules["paper"], TASK)
    assert (outcome.success, outcome.first_success) == (True, 2)
    assert (outcome.start_distance, outcome.final_distance) == (50.0, 10.0)


def test_a_pair_solved_at_the_start_is_a_success_at_step_0_under_paper_and_not_asked_for_under_moderate():
    near, far = rows((60, 50))[0], rows((80, 50))[0]
    assert score([near], TASK.rules["paper"], TASK).first_success == 0
    assert not TASK.rules["moderate"].asks(near)
    assert TASK.rules["moderate"].asks(far)


@pytest.mark.parametrize(
    ("protocol", "distance", "success"),
    [("paper", 15.9, True), ("paper", 16.0, False), ("strict", 7.9, True), ("strict", 8.0, False)],
)
def test_the_radius_is_the_protocol_s(protocol, distance, success):
    assert score(rows((50 + distance, 50)), TASK.rules[protocol], TASK).success is success


def test_holding_counts_steps_in_a_row():
    held = replace(TASK.rules["paper"], hold=3)
    near, far = (55, 50), (90, 50)
    assert score(rows(far, near, near, far, near, near, near, far), held, TASK).first_success == 6
    assert not score(rows(far, near, near, far, near, near), held, TASK).success


def test_an_episode_that_never_succeeds_ends_where_it_ends():
    outcome = score(rows((100, 50), (90, 50)), Rule(solved=TASK.rules["paper"].solved), TASK)
    assert (outcome.success, outcome.first_success, outcome.final_distance) == (False, None, 40.0)


def test_strict_asks_for_the_other_room_with_both_ends_clear_of_the_wall():
    asks = TASK.rules["strict"].asks
    assert asks(rows((80, 120), goal=(150, 120))[0])
    assert not asks(rows((80, 120), goal=(60, 40))[0]), "the same room"
    assert not asks(rows((105, 120), goal=(150, 120))[0]), "the start overlaps the wall"
    assert not asks(rows((80, 120), goal=(114, 36))[0]), "the goal cuts the door's corner"


def step(before: tuple[float, float], after: tuple[float, float]) -> tuple[float, ...]:
    return tuple(stopped_by_walls(*rows(before, after))["state"].tolist())


def test_a_step_in_the_open_or_through_the_middle_of_the_door_is_left_alone():
    assert step((60, 100), (65, 100)) == (65, 100)
    assert step((98, 49), (103, 50)) == (103, 50)
    assert step((110, 49), (115, 47)) == (115, 47)


def test_a_disk_stops_at_the_wall_and_slides_along_it():
    x, y = step((97, 120), (103, 124))
    assert x == pytest.approx(100, abs=0.1), "wall at 107, radius 7"
    assert y == pytest.approx(124, abs=0.1)


def test_a_disk_cannot_cut_the_door_s_corner():
    """The environment lets a centre pass 1.75 px outside the door; the disk around it would be half inside the wall."""
    x, y = step((99, 64), (104, 64))
    assert x <= 100.1
    assert y == pytest.approx(64, abs=1e-3)


def test_a_slide_is_not_undone_by_the_next():
    """Blocked across the door's corner: along x the way is free to the end, and the little that is left of y is not."""
    x, y = step((107.83, 42.07), (103.32, 41.46))
    assert x == pytest.approx(103.32, abs=1e-3)
    assert y <= 42.07


def test_every_step_ends_clear_of_the_wall():
    rng = np.random.default_rng(0)
    here = np.array([95.0, 49.0])
    for _ in range(3000):
        after = here + rng.uniform(-5, 5, 2)
        here = np.array(step(tuple(here), tuple(after)))
        aside, door = max(abs(here[0] - 112) - 5, 0), max(14 - abs(here[1] - 49), 0)
        assert np.hypot(aside, door) >= 7 - 1e-4
