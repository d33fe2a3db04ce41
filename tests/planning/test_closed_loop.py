"""Episodes in the real simulator: what a plan sees, when frames are drawn, and what of the plan is executed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import psutil
import pytest
from exact_model import ExactTwoRooms
from short_ways import ACTIONS, FAR, FREE, Recorder, start, state

from phylatent.errors import UserError
from phylatent.planning.closed_loop import follow, plan_and_execute
from phylatent.planning.evaluate import group_size
from phylatent.planning.imagination import imagination
from phylatent.planning.planner import Planner
from phylatent.planning.protocols import score
from phylatent.schema import PlanConfig
from phylatent.simulator import Simulator
from phylatent.tasks.tworooms import TASK

SMALL = PlanConfig(pairs=3, seeds=(0, 1), candidates=24, elites=4, iterations=3, workers=1, filmstrips=2)


def test_a_model_that_is_exact_reaches_every_goal_and_gets_what_it_imagined(simulators):
    planner = Planner(ExactTwoRooms(), actions=ACTIONS)
    starts = [start(simulators[0], *way) for way in FREE]
    done = plan_and_execute(planner, starts, simulators, TASK)
    for trajectory in done:
        assert score(trajectory.rows, TASK.rules["paper"], TASK).success
        for plan in trajectory.plans:
            assert plan.imagined_cost == pytest.approx(plan.real_cost, abs=0.01), "1 px is 0.0004"
    assert imagination(done, [True] * 4)["agreed"] == 1.0


def test_a_model_one_block_late_does_not_get_what_it_imagined(simulators):
    planner = Planner(ExactTwoRooms(shift=1), actions=ACTIONS)
    done = plan_and_execute(planner, [start(simulators[0], *way) for way in FREE], simulators, TASK)
    first = [trajectory.plans[0] for trajectory in done]
    assert max(abs(plan.imagined_cost - plan.real_cost) for plan in first) > 0.01


def test_each_observation_and_goal_is_encoded_once_and_rendered_only_when_needed(simulators, monkeypatch):
    model = Recorder()
    starts = [start(simulators[0], *FAR)]
    rendered = []
    frame = Simulator.frame
    monkeypatch.setattr(Simulator, "frame", lambda self: rendered.append(1) or frame(self))
    done = plan_and_execute(Planner(model, actions=ACTIONS), starts, simulators, TASK)
    assert len(done[0].plans) == 2
    # the goal; the start; then steps 15, 20 and 25 for the second plan, 40 and 45 before it is known to be the last, and 50
    assert model.encoded == 8
    assert len(rendered) == 7


def test_the_second_plan_sees_the_last_frames_at_block_spacing_with_what_was_done_at_them(simulators):
    model = Recorder()
    done = plan_and_execute(Planner(model, actions=ACTIONS), [start(simulators[0], *FAR)], simulators, TASK)[0]
    assert {past for _, past in model.rollouts} == {0, 2}
    latents, blocks = model.pasts[-1]
    places = [done.rows[step]["state"] for step in (15, 20)]
    assert np.allclose(latents[0].numpy() * 50 + 112, places, atol=0.5)
    moved = blocks[0].reshape(2, 5, 2).sum(1).numpy() * 5
    assert moved[0, 1] == pytest.approx(places[1][1] - places[0][1], abs=0.01), "the block taken at a frame leads to the next"


def test_history_can_be_recorded_frames_and_a_short_plan_keeps_what_it_saw(simulators):
    simulators[1].restore(state(40, 150))
    past = tuple((simulators[1].frame(), np.full(10, 0.1 * i, np.float32)) for i in (1, 2))
    model = Recorder()
    plan_and_execute(Planner(model, actions=ACTIONS), [start(simulators[0], *FAR, past=past)], simulators, TASK)
    assert model.rollouts[0][1] == 2
    model = Recorder()
    one_block = PlanConfig(receding=1, budget=20, candidates=8, elites=2, iterations=1)
    plan_and_execute(Planner(model, settings=one_block, actions=ACTIONS), [start(simulators[0], *FAR)], simulators, TASK)
    seen = [past for rows, past in model.rollouts if rows == 8]
    assert seen == [0, 1, 2, 2]


def test_the_budget_cuts_a_plan_short(simulators):
    planner = Planner(ExactTwoRooms(), settings=PlanConfig(budget=33), actions=ACTIONS)
    done = plan_and_execute(planner, [start(simulators[0], *FAR)], simulators, TASK)[0]
    assert len(done.rows) == 34


def test_memory_is_bounded_by_the_chunk_and_flat_over_fifty_plans(simulators):
    model = Recorder()
    planner = Planner(model, settings=PlanConfig(chunk=64), actions=ACTIONS)
    simulators[0].restore(state(60, 60))
    frame = simulators[0].frame()
    latents = planner.encode(np.stack([frame, frame]))

    def search() -> int:
        planner.search(latents, latents + 1, [planner.generator(0), planner.generator(1)])
        for _ in range(26):  # a plan, its execution, and the next plan
            planner.act(frame, frame)
        return psutil.Process().memory_info().rss

    for _ in range(5):
        before = search()
    after = [search() for _ in range(50)][-1]
    assert max(rows for rows, _ in model.rollouts) <= 64
    assert after - before < 8e6


def test_act_serves_a_loop_of_one_s_own(simulators):
    goal = state(80, 170)
    simulator = simulators[0]
    simulator.restore(goal)
    picture = simulator.frame()
    model = Recorder()
    planner = Planner(model, actions=ACTIONS)
    simulator.restore(state(40, 100))
    arrived = False
    for _ in range(50):
        action = planner.act(simulator.frame(), picture)
        assert action.shape == (2,)
        assert (np.abs(action) <= 1).all()
        simulator.step(action)
        arrived = arrived or np.linalg.norm(simulator.columns()["state"] - goal["state"]) < 16
    assert arrived
    planner.act(simulator.frame(), picture)
    assert {past for _, past in model.rollouts} == {0, 2}, "its second plan knows the past"
    planned = len(model.rollouts)
    planner.act(simulator.frame(), picture[::-1].copy())
    assert len(model.rollouts) > planned, "another goal, another plan"
    assert model.rollouts[-1][1] == 0, "in the middle of a block the past is out of step"
    for _ in range(4):
        planner.act(simulator.frame(), picture[::-1].copy())
    planner.act(simulator.frame(), picture)
    assert model.rollouts[-1][1] == 1, "at a block's end it is not"


def test_a_model_that_does_not_say_what_its_actions_are_is_told_so():
    with pytest.raises(UserError, match="actions=Actions"):
        Planner(ExactTwoRooms())


def test_strict_runs_in_a_world_whose_walls_are_solid(simulators):
    strict = TASK.rules["strict"]
    ways = [((80, 60), (150, 60)), ((90, 30), (140, 90)), ((150, 40), (85, 75))]
    starts = [replace(start(simulators[0], *way), rules=(strict,)) for way in ways]
    reached = follow("expert", starts, simulators[0], TASK, PlanConfig(), 5)
    assert [score(t.rows, strict, TASK).success for t in reached] == [True] * 3
    for trajectory in reached:
        for row in trajectory.rows:
            x, y = row["state"]
            assert np.hypot(max(abs(x - 112) - 5, 0), max(14 - abs(y - 49), 0)) >= 7 - 1e-3
    still = follow("nothing", starts, simulators[0], TASK, PlanConfig(), 5)
    assert not any(score(t.rows, strict, TASK).success for t in still)
    planned = plan_and_execute(Planner(ExactTwoRooms(), actions=ACTIONS), starts, simulators, TASK)
    assert all(
        np.hypot(max(abs(r["state"][0] - 112) - 5, 0), max(14 - abs(r["state"][1] - 49), 0)) >= 7 - 1e-3
        for t in planned
        for r in t.rows
    )


@pytest.mark.parametrize("episodes, size", [(1, 1), (8, 1), (9, 2), (20, 3), (56, 7), (57, 8), (300, 8)])
def test_few_episodes_are_shared_out_further(episodes: int, size: int) -> None:
    assert group_size(episodes) == size
