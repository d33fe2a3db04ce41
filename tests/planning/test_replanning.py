"""Short steps, shrinking plans, warm starts, noise like the data's, and a cost on the state that is read off."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from exact_model import ExactTwoRooms
from short_ways import ACTIONS, FAR, FREE, Recorder, start

from phylatent import build
from phylatent.composition import compose
from phylatent.data.readers import open_episodes
from phylatent.data.stats import action_correlations, fit_statistics, split_episodes
from phylatent.errors import UserError
from phylatent.planning.actions import Actions
from phylatent.planning.closed_loop import plan_and_execute
from phylatent.planning.cost import GoalCost
from phylatent.planning.imagination import failure_cause
from phylatent.planning.planner import Planner
from phylatent.planning.protocols import score
from phylatent.planning.readout import fit_readout
from phylatent.planning.solver import Search
from phylatent.planning.solvers.cem import cem
from phylatent.planning.solvers.gradient import descend
from phylatent.processes import one_thread
from phylatent.schema import Normaliser, PlanConfig, SplitConfig
from phylatent.tasks.tworooms import TASK

STATM = Path("/proc/self/statm")
WIDE = Actions((-9.0, -9.0), (9.0, 9.0), Normaliser((0.0, 0.0), (1.0, 1.0)))
SHORT = PlanConfig(candidates=60, elites=6, iterations=5, receding=1, shrink=True, warm=True)


class Horizons(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[int] = []

    def rollout(self, z_ND, blocks_NkA, **past):
        if len(z_ND) > 1:
            self.blocks.append(blocks_NkA.shape[1])
        return super().rollout(z_ND, blocks_NkA, **past)


def test_a_plan_is_shorter_by_what_was_executed_and_the_next_attempt_is_whole_again(simulators):
    model = Horizons()
    done = plan_and_execute(Planner(model, settings=SHORT, actions=ACTIONS), [start(simulators[0], *FAR)], simulators, TASK)
    assert [plan.step for plan in done[0].plans] == list(range(0, 50, 5))
    assert model.blocks[:: SHORT.iterations] == [5, 4, 3, 2, 1, 5, 4, 3, 2, 1]
    assert [len(plan.imagined_kD) for plan in done[0].plans] == [5, 4, 3, 2, 1, 5, 4, 3, 2, 1]
    assert failure_cause(done[0]) == "model", "it knows no wall: some plan of the first attempt was expected to come closer"


def test_an_exact_model_arrives_with_short_steps_too(simulators):
    planner = Planner(ExactTwoRooms(), settings=SHORT, actions=ACTIONS)
    for trajectory in plan_and_execute(planner, [start(simulators[0], *way) for way in FREE], simulators, TASK):
        assert score(trajectory.rows, TASK.rules["paper"], TASK).success


def test_act_shrinks_its_plans_like_the_evaluation(simulators):
    model = Horizons()
    planner = Planner(model, settings=SHORT, actions=ACTIONS)
    simulators[0].restore(TASK.with_goal(start(simulators[0], *FAR).row, start(simulators[0], *FAR).goal))
    goal = start(simulators[0], *FAR).goal_frame
    simulators[0].restore(start(simulators[0], *FAR).row)
    for _ in range(30):
        simulators[0].step(planner.act(simulators[0].frame(), goal))
    assert model.blocks[:: SHORT.iterations] == [5, 4, 3, 2, 1, 5]


def test_a_warm_search_may_be_shorter_than_the_first(simulators):
    model, settings = Horizons(), replace(SHORT, warm_iterations=2)
    plan_and_execute(Planner(model, settings=settings, actions=ACTIONS), [start(simulators[0], *FAR)], simulators, TASK)
    attempt = [5] * 5 + [4] * 2 + [3] * 2 + [2] * 2 + [1] * 2  # nothing is left at an arrival: the next search is cold
    assert model.blocks == attempt + attempt


@pytest.mark.parametrize("deviation", [1.0, 0.25])
def test_how_far_the_first_candidates_are_from_where_a_search_starts(deviation: float):
    model, settings = Watching(), PlanConfig(candidates=200, elites=2, iterations=1, warm=True, warm_deviation=deviation)
    planner = Planner(model, settings=settings, actions=WIDE)
    for left in (torch.zeros(1, 3, 10), None):
        planner.search(torch.zeros(1, 2), torch.ones(1, 2), [planner.generator(0)], horizon=3, left_PkA=left)
    warm, _, cold, _ = model.seen  # after each search the model rolls out what was found
    assert warm.std() == pytest.approx(deviation, rel=0.05)
    assert cold.std() == pytest.approx(1.0, rel=0.05)


def test_the_cost_of_a_plan_by_hand():
    """Latents 3, 1 and 2 away from the goal: 4 at the end, (9 + 1) / 2 on the way."""
    goal, imagined = torch.zeros(2), torch.tensor([[3.0, 0.0], [0.0, 1.0], [0.0, -2.0]])
    costs = [GoalCost(running=running).of_plans(imagined, goal) for running in (0, 0.2)]
    assert [float(cost) for cost in costs] == pytest.approx([4.0, 5.0])
    planner = Planner(ExactTwoRooms(), settings=PlanConfig(running=0.2), actions=ACTIONS)
    alone = planner.cost.of_plans(imagined[:1], goal)
    assert float(alone) == pytest.approx(9.0), "a plan of one block has no way"


def test_descent_finds_the_lowest_point_within_the_bounds_and_never_loses_its_start():
    target = torch.tensor([[[0.5, 3.0]], [[-0.5, 0.0]]])

    def cost(plan_PkA: torch.Tensor) -> torch.Tensor:
        return (plan_PkA - target).square().sum((1, 2))

    bounds = {"low_A": torch.tensor([-1.0, -1.0]), "high_A": torch.tensor([1.0, 1.0])}
    found = descend(cost, torch.zeros(2, 1, 2), **bounds, steps=200, rate=0.05)[0]
    assert torch.allclose(found, torch.tensor([[[0.5, 1.0]], [[-0.5, 0.0]]]), atol=0.02)
    best = torch.tensor([[[0.5, 1.0]], [[-0.5, 0.0]]])
    assert torch.equal(descend(cost, best, **bounds, steps=3, rate=0.5)[0], best)
    with pytest.raises(UserError, match="whose rollout can be differentiated"):
        descend(lambda plan: cost(plan).detach(), torch.zeros(2, 1, 2), **bounds, steps=1, rate=0.1)


def test_steps_down_the_gradient_lower_the_cost_of_what_the_search_found():
    z, goal, found = torch.zeros(1, 2), torch.tensor([[0.6, -0.3]]), []
    for steps in (0, 20):
        settings = PlanConfig(candidates=8, elites=2, iterations=1, gradient_steps=steps)
        planner = Planner(ExactTwoRooms(), settings=settings, actions=ACTIONS)
        ends = planner.search(z, goal, [planner.generator(0)]).imagined_PkD[:, -1]
        found.append(float(planner.cost.of_latents(ends, goal)))
    assert found[1] < 0.5 * found[0]


class Watching(ExactTwoRooms):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def rollout(self, z, blocks):
        self.seen.append(blocks)
        return super().rollout(z, blocks)


@pytest.mark.parametrize("warm, expected", [(True, 0.5), (False, 0.0)])
def test_a_warm_search_begins_at_what_was_left_and_a_cold_one_at_zero(warm: bool, expected: float):
    model = Watching()
    planner = Planner(model, settings=PlanConfig(candidates=2, elites=2, iterations=1, warm=warm), actions=ACTIONS)
    left = torch.full((1, 2, 10), 0.5)
    planner.search(torch.zeros(1, 2), torch.ones(1, 2), [planner.generator(0)], horizon=3, left_PkA=left)
    assert torch.allclose(model.seen[0][0, :2], torch.full((2, 10), expected), atol=1e-6)
    assert torch.allclose(model.seen[0][0, 2], torch.zeros(10), atol=1e-6), "what no plan was made for starts at 0"


def test_noise_like_the_datas_has_its_correlations_and_keeps_every_deviation():
    decay = 0.8 ** np.arange(25)
    correlations = tuple(tuple(map(tuple, np.diag([d, d**2]).tolist())) for d in decay)
    actions = Actions((-9.0, -9.0), (9.0, 9.0), Normaliser((0.0, 0.0), (1.0, 1.0)), 5, correlations)
    mixing = actions.mixing(2)
    assert torch.allclose(mixing.norm(dim=1), torch.ones(20), atol=1e-5)
    covariance = (mixing @ mixing.T).unflatten(0, (10, 2)).unflatten(2, (10, 2))
    assert covariance[0, 0, 3, 0] == pytest.approx(0.8**3, abs=1e-3)
    assert covariance[2, 1, 4, 1] == pytest.approx(0.8**4, abs=1e-3)
    assert covariance[0, 0, 0, 1] == pytest.approx(0.0, abs=1e-4)
    seen: list[torch.Tensor] = []
    bounds = {"low_A": torch.full((10,), -9.0), "high_A": torch.full((10,), 9.0)}
    budget = {"horizon": 2, "candidates": 20_000, "elites": 2, "iterations": 1}
    generators = [torch.Generator().manual_seed(0)]
    cem(Search(lambda x: seen.append(x) or x[..., 0, 0], **bounds, **budget, generators=generators, mixing=mixing))
    steps = seen[0][0, 1:].reshape(-1, 10, 2)
    assert torch.corrcoef(torch.stack([steps[:, 0, 0], steps[:, 1, 0]]))[0, 1] == pytest.approx(0.8, abs=0.02)
    assert steps[:, 7, 1].std() == pytest.approx(1.0, abs=0.02)


def test_a_model_that_does_not_know_its_datas_actions_is_refused_noise_like_theirs():
    planner = Planner(ExactTwoRooms(), settings=PlanConfig(noise="data"), actions=ACTIONS)
    with pytest.raises(UserError, match="train it anew"):
        planner.search(torch.zeros(1, 2), torch.ones(1, 2), [planner.generator(0)])


def test_correlations_of_actions_by_hand(tworooms_data: Path):
    episodes = open_episodes(tworooms_data, TASK)
    split = split_episodes(len(episodes.lengths), SplitConfig())
    statistics = fit_statistics(episodes, TASK, split.train)
    found = action_correlations(episodes, statistics.action, split.train)
    assert found.shape == (25, 2, 2)
    assert np.allclose(np.diag(found[0]), 1.0, atol=1e-5), "z-scores have variance 1"
    expected, steps = 0.0, 0
    for e in split.train:
        taken = episodes.actions[episodes.offsets[e] : episodes.offsets[e] + episodes.lengths[e] - 1].astype(float)
        z = (taken - np.array(statistics.action.mean)) / np.array(statistics.action.std)
        expected, steps = expected + (z[:-3, 0] * z[3:, 1]).sum(), steps + len(z)
    assert found[3, 0, 1] == pytest.approx(expected / steps, abs=1e-6)
    assert np.allclose(np.array(statistics.correlations), found, atol=1e-6)


def test_the_cost_on_the_state_is_measured_in_its_own_spread(tworooms_data: Path):
    """The exact model's latent is the position over 50 px: the map must undo that, and divide by the data's spread."""
    episodes = open_episodes(tworooms_data, TASK)
    split = split_episodes(len(episodes.lengths), SplitConfig())
    readout = fit_readout(lambda frames: ExactTwoRooms().encode(torch.from_numpy(frames)), TASK, episodes, split)
    spread = fit_statistics(episodes, TASK, split.train).target.std
    assert readout.shape == (2, 2)
    assert torch.allclose(readout, torch.diag(torch.tensor([50 / s for s in spread])), rtol=0.05, atol=0.05)
    planner = Planner(ExactTwoRooms(), settings=PlanConfig(cost="readout"), actions=ACTIONS, readout_DS=readout)
    away = float(planner.cost.of_latents(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)))
    assert away == pytest.approx((50 / spread[0]) ** 2, rel=0.1)
    with pytest.raises(UserError, match="needs a map"):
        Planner(ExactTwoRooms(), settings=PlanConfig(cost="readout"), actions=ACTIONS)


@pytest.mark.slow
@pytest.mark.skipif(not STATM.exists(), reason="memory is read from /proc")
def test_a_hundred_plans_leave_memory_as_it_was():
    """One plan after the other in a control loop of one's own, with goals that change."""
    settings = PlanConfig(candidates=64, iterations=2, elites=8, receding=1, horizon=3)
    planner = Planner(build(compose(preset="smoke")).world_model, settings=settings, actions=ACTIONS)
    frames = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    resident = []
    with one_thread():
        for plan in range(130):
            for step in range(planner.actions.stride):
                planner.act(frames[(plan + step) % 20], frames[20 + plan // 20])
            resident.append(int(STATM.read_text().split()[1]) * resource.getpagesize() / 1e6)
    assert planner._plans == 130
    assert max(resident[30:]) - resident[29] < 10, "megabytes that a hundred plans have added"
