"""Every solver there is, and one of the user's own: it arrives, stays within bounds, and minds its own problem and budget."""

from __future__ import annotations

import importlib.metadata
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from exact_model import ExactTwoRooms
from short_ways import ACTIONS, FREE, numbers, start

from phylatent import compose, own_files
from phylatent.composition import load_config, save_config
from phylatent.data.readers import open_episodes
from phylatent.data.stats import split_episodes
from phylatent.errors import PhylatentError, UserError
from phylatent.planning.closed_loop import plan_and_execute
from phylatent.planning.evaluate import lay_out, run_policies
from phylatent.planning.noise import coloured
from phylatent.planning.planner import Planner
from phylatent.planning.protocols import score
from phylatent.planning.record import summarise
from phylatent.planning.solver import Search
from phylatent.planning.solvers import SOLVERS, find_solver, gradient, icem, mppi
from phylatent.schema import PlanConfig, SplitConfig
from phylatent.tasks.tworooms import TASK
from phylatent.trust import allow

OWN = str(Path(__file__).parents[2] / "docs" / "examples" / "shooting.py")
SHIPPED = ("cem", "gradient", "icem", "mppi")
SMALL = PlanConfig(pairs=2, seeds=(0,), candidates=24, elites=4, iterations=3, receding=2, workers=1, filmstrips=0)


@pytest.fixture(autouse=True)
def forget_own():
    allow(OWN)
    yield
    SOLVERS.pop("shooting", None)


def seeded(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def a_search(cost, *seeds: int, dims: int = 2, reach: float = 1.0, **changed) -> Search:
    ends = {"low_A": torch.full((dims,), -reach), "high_A": torch.full((dims,), reach)}
    budget = {"horizon": 3, "candidates": 60, "elites": 6, "iterations": 10}
    return Search(cost, **ends, **budget | changed, generators=seeded(*seeds))


def solve(name: str, search: Search) -> torch.Tensor:
    solver = find_solver(name)
    return solver.solve(search, **vars(solver.Settings()))


def test_the_registry_is_the_folder():
    assert tuple(SOLVERS)[: len(SHIPPED)] == SHIPPED
    assert compose().plan.solver == "cem"


@pytest.mark.parametrize("name", SHIPPED)
def test_finds_the_lowest_point_of_a_bowl(name: str):
    best = torch.tensor([0.5, -0.3])
    found = solve(name, a_search(lambda x: (x - best).square().sum((-1, -2)), 0, 1))
    assert found.shape == (2, 3, 2)
    assert (found - best).abs().max() < 0.15


@pytest.mark.parametrize("name", SHIPPED)
def test_an_exact_model_arrives_with_every_solver(name: str, simulators):
    settings = PlanConfig(solver=name, candidates=60, elites=6, iterations=5)
    planner = Planner(ExactTwoRooms(), settings=settings, actions=ACTIONS)
    for trajectory in plan_and_execute(planner, [start(simulators[0], *way) for way in FREE], simulators, TASK):
        assert score(trajectory.rows, TASK.rules["paper"], TASK).success


@pytest.mark.parametrize("name", [*SHIPPED, OWN])
def test_no_candidate_leaves_the_bounds_and_the_bounds_are_within_reach(name: str):
    seen = []

    def cost(x):
        seen.append(x.detach())
        return -x.sum((-1, -2))  # pulls to the upper corner

    found = solve(name, a_search(cost, 3, reach=0.7))
    assert all((x.abs() <= 0.7).all() for x in [*seen, found])
    assert any((x == 0.7).any() for x in seen)


@pytest.mark.parametrize("name", [*SHIPPED, OWN])
def test_problems_do_not_disturb_each_other(name: str):
    goals = torch.tensor([[0.5], [-0.7], [0.1]])

    def plans(which: list[int]) -> torch.Tensor:
        return solve(name, a_search(lambda x: (x - goals[which][:, None, None]).square().sum((-1, -2)), *which))

    assert torch.equal(plans([0, 1, 2])[1], plans([1])[0])


@pytest.mark.parametrize("name", [*SHIPPED, OWN])
def test_the_scale_of_a_latent_space_changes_no_plan(name: str):
    def plans(scale: float) -> torch.Tensor:
        return solve(name, a_search(lambda x: scale * (x - 0.3).square().sum((-1, -2)), 0))

    assert torch.allclose(plans(1.0), plans(1024.0), atol=1e-4)


@pytest.mark.parametrize("name", SHIPPED)
def test_candidates_without_a_cost_do_not_count_and_none_at_all_is_told(name: str):
    found = solve(name, a_search(lambda x: (x[..., 0, 0] - 0.5).abs() + torch.where(x[..., 0, 1] > 0.2, torch.nan, 0.0), 0))
    assert found.isfinite().all()
    assert found[0, 0, 1] <= 0.2
    with pytest.raises(PhylatentError, match="no finite latent"):
        solve(name, a_search(lambda x: x.sum((-1, -2)) * torch.nan, 0))


@pytest.mark.parametrize("name", [*SHIPPED, OWN])
def test_no_search_spends_more_rollouts_than_it_may(name: str):
    spent, backward = [], gradient.ROLLOUTS_OF_A_STEP - 1

    def cost(x):
        spent.append(x.shape[1])
        costs = x.square().sum((-1, -2))
        if costs.requires_grad:
            costs.register_hook(lambda _: spent.append(backward * x.shape[1]))
        return costs

    solve(name, a_search(cost, 0))
    assert 0.9 * 600 < sum(spent) <= 600


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SHIPPED[1:], OWN])
def test_numbers_do_not_depend_on_the_number_of_processes(name: str, tworooms_data: Path):
    episodes = open_episodes(tworooms_data, TASK)
    split = split_episodes(len(episodes.lengths), SplitConfig(test=0.5))
    solver = find_solver(name)
    course = lay_out(TASK, episodes, split, replace(SMALL, solver=name, budget=20), 5, solver.Settings())
    in_two = replace(course, settings=replace(course.settings, workers=2))
    found = [run_policies(["model", "nothing"], one, model=ExactTwoRooms(), actions=ACTIONS) for one in (course, in_two)]
    assert numbers(course, found[0]) == numbers(course, found[1])
    settings = summarise(course, "paper", found[0])["settings"]
    assert settings["solver"] == name
    assert settings[solver.name] == vars(solver.Settings())


def test_coloured_noise_varies_smoothly_over_steps_and_keeps_every_deviation():
    white, red = ((m := coloured(20, 2, beta)) @ m.T for beta in (0.0, 2.0))
    assert torch.allclose(white, torch.eye(40), atol=1e-3)
    assert torch.allclose(red.diag(), torch.ones(40), atol=1e-5)
    steps = red.unflatten(0, (20, 2)).unflatten(2, (20, 2))
    assert steps[4, 0, 5, 0] > 0.9
    assert steps[0, 0, 19, 0] < 0.2, "the end of a plan is not tied to its beginning"
    assert steps[4, 0, 5, 1] == pytest.approx(0, abs=1e-5), "dimensions vary apart from each other"


def test_icem_keeps_elites_and_returns_the_best_of_all_rounds():
    seen = []

    def cost(x):
        seen.append(x)
        return (x - 0.4).square().sum((-1, -2)) + 0.1 * torch.sin(50 * x).sum((-1, -2))

    found = icem.icem(a_search(cost, 0, iterations=4, stride=2), beta=1.0, kept=0.5)
    rounds = list(seen)
    for before, after in itertools.pairwise(rounds):
        best = before[0][cost(before)[0].topk(3, largest=False).indices]
        assert torch.equal(after[0, 1:4], best)
    every = torch.cat(rounds, dim=1)
    assert torch.equal(found[0], every[0][cost(every)[0].argmin()])


def test_icem_starts_from_the_last_plan_even_where_plans_do_not():
    started = []

    class Watching(ExactTwoRooms):
        def rollout(self, z, blocks):
            started.append(blocks[0])
            return super().rollout(z, blocks)

    for name, expected in (("icem", 0.5), ("cem", 0.0)):
        started.clear()
        settings = PlanConfig(solver=name, candidates=2, elites=2, iterations=1)
        planner = Planner(Watching(), settings=settings, actions=ACTIONS)
        left = torch.full((1, 2, 10), 0.5)
        planner.search(torch.zeros(1, 2), torch.ones(1, 2), seeded(0), horizon=3, left_PkA=left)
        assert torch.allclose(started[0][:2], torch.full((2, 10), expected), atol=1e-6)


def test_weights_of_mppi_by_hand():
    """Costs 1, 3 and 5 deviate by √(8/3): at a temperature of 2/√(8/3), every 2 of cost are a factor of e."""
    costs = torch.tensor([[1.0, 3.0, 5.0, torch.inf]])
    e = torch.e
    expected = torch.tensor([[1, 1 / e, 1 / e**2, 0]]) / (1 + 1 / e + 1 / e**2)
    assert torch.allclose(mppi.weights(costs, temperature=2 / (8 / 3) ** 0.5), expected)
    assert torch.allclose(mppi.weights(torch.ones(1, 4), temperature=0.1), torch.full((1, 4), 0.25))


def test_descent_needs_a_model_that_can_be_differentiated():
    class Plain(ExactTwoRooms):
        def rollout(self, z, blocks):
            return super().rollout(z, blocks).detach()

    planner = Planner(Plain(), settings=PlanConfig(solver="gradient"), actions=ACTIONS)
    with pytest.raises(UserError, match=r"whose rollout can be differentiated.*choose another plan\.solver"):
        planner.search(torch.zeros(1, 2), torch.ones(1, 2), seeded(0))


def test_a_solver_is_given_its_own_settings_only():
    with pytest.raises(UserError, match="the settings of the solver 'icem'"):
        Planner(ExactTwoRooms(), settings=PlanConfig(solver="icem"), actions=ACTIONS, solver_settings=mppi.Settings())


@pytest.mark.parametrize("overrides, sentence", [
    (["plan.solver=cim"], "unknown solver 'cim'; did you mean 'cem'?"),
    (["plan.solver=nowhere.py"], "there is no solver file nowhere.py"),
    (["icem.beta=2"], "the solver is 'cem', so settings of 'icem' would do nothing; plan.solver=icem?"),
    (["plan.solver=mppi", "icem.beta=2"], "settings of 'icem' would do nothing"),
    (["plan.solver=mppi", "plan.elites=5"], "plan.elites does nothing with the solver 'mppi'"),
    (["plan.solver=icem", "icem.beta=-1"], "icem.beta is -1.0; it must be at least 0"),
    (["plan.solver=icem", "icem.kept=2"], "icem.kept is 2.0; it is a share of the elites"),
    (["plan.solver=mppi", "mppi.temperature=0"], "mppi.temperature is 0.0; it must be above 0"),
    (["plan.solver=gradient", "gradient.starts=0"], "gradient.starts is 0; it must be at least 1"),
    (["plan.solver=icem", "icem.bta=1"], "unknown key 'icem.bta'; did you mean 'icem.beta'?"),
])  # fmt: skip
def test_mistakes_get_one_sentence(overrides: list[str], sentence: str):
    with pytest.raises(UserError) as caught:
        compose(overrides=overrides)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_few_candidates_are_enough_for_a_solver_without_elites():
    assert compose(overrides=["plan.solver=mppi", "plan.candidates=6"]).plan.candidates == 6
    with pytest.raises(UserError, match=r"plan\.elites is \d+, more than plan\.candidates = 6"):
        compose(overrides=["plan.candidates=6"])


def test_a_variant_may_bring_a_solver_from_beside_it(tmp_path: Path):
    (tmp_path / "mine.py").write_text(Path(OWN).read_text().replace('"shooting"', '"mine"'))
    (tmp_path / "other.yaml").write_text("extends: lewm\nplan: {solver: ./mine.py}\nmine: {reach: 3.0}\n")
    allow(tmp_path / "mine.py")
    config = compose(variant=str(tmp_path / "other.yaml"))
    assert (config.plan.solver, config.solver.reach) == (str(tmp_path / "mine.py"), 3.0)


def test_a_solver_of_ones_own(simulators, tmp_path: Path):
    config = compose(overrides=[f"plan.solver={OWN}", "shooting.reach=1.5", "plan.candidates=60"])
    assert config.solver.reach == 1.5
    save_config(config, tmp_path / "config.yaml")
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["shooting"] == {"reach": 1.5}
    SOLVERS.pop("shooting")
    assert load_config(tmp_path / "config.yaml") == config
    settings = replace(config.plan, noise="white", iterations=20)
    planner = Planner(ExactTwoRooms(), settings=settings, actions=ACTIONS, solver_settings=config.solver)
    done = plan_and_execute(planner, [start(simulators[0], *FREE[0])], simulators, TASK)[0]
    assert score(done.rows, TASK.rules["paper"], TASK).success


@pytest.mark.parametrize("text, sentence", [
    ("x = 1", "declares no SOLVER"),
    ("SOLVER = 3", "must be a phylatent.planning.solver.Solver"),
    ("from phylatent.planning.solver import Solver\nSOLVER = Solver('a', len, 3)", "must be a frozen dataclass"),
    ("from phylatent.planning.solver import Solver\nSOLVER = Solver('cem', len)", "is called 'cem', and so is another one"),
    ("from phylatent.planning.solver import Solver\nSOLVER = Solver('train', len)", "settings called 'train' already"),
])  # fmt: skip
def test_a_file_that_declares_none(text: str, sentence: str, tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        compose(overrides=[f"plan.solver={path}"])
    assert tuple(SOLVERS)[: len(SHIPPED)] == SHIPPED


def test_a_package_may_bring_a_solver(monkeypatch, tmp_path: Path):
    (tmp_path / "packaged_solver.py").write_text(Path(OWN).read_text().replace('"shooting"', '"packaged"'))
    monkeypatch.syspath_prepend(tmp_path)
    point = importlib.metadata.EntryPoint("packaged", "packaged_solver:SOLVER", "phylatent.solvers")
    monkeypatch.setattr(own_files, "entry_points", lambda group: [point] if group == "phylatent.solvers" else [])
    own_files.installed.cache_clear()
    assert compose(overrides=["plan.solver=packaged", "packaged.reach=2"]).solver.reach == 2
    own_files.installed.cache_clear()
