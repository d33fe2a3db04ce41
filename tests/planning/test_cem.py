"""The search: against a hand-made optimum, its bounds, and its independence of what else is searched."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from phylatent.errors import PhylatentError
from phylatent.planning.actions import Actions
from phylatent.planning.solver import Search
from phylatent.planning.solvers.cem import cem
from phylatent.schema import Normaliser

SETTINGS = {"horizon": 3, "candidates": 100, "elites": 10, "iterations": 10}


def seeded(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def bounds(dim: int, reach: float) -> dict[str, torch.Tensor]:
    return {"low_A": torch.full((dim,), -reach), "high_A": torch.full((dim,), reach)}


def test_finds_the_optimum_of_a_bowl():
    best = torch.tensor([0.5, -0.3])
    found = cem(Search(lambda x: (x - best).square().sum((-1, -2)), **bounds(2, 1.0), **SETTINGS, generators=seeded(0, 1)))
    assert found.shape == (2, 3, 2)
    assert (found - best).abs().max() < 0.05


def test_one_round_is_the_mean_of_the_best_candidates():
    seen = []

    def cost(x):
        seen.append(x)
        return x[..., 0, 0]

    found = cem(Search(cost, **bounds(1, 9.0), horizon=1, candidates=20, elites=5, iterations=2, generators=seeded(3)))
    first, second = (x[0, :, 0, 0] for x in seen)
    elites = first.sort().values[:5]
    assert first[0] == 0, "candidate 0 is the mean"
    assert second[0] == pytest.approx(float(elites.mean()), rel=1e-6)
    noise = torch.randn(20, 1, 1, generator=(g := seeded(3)[0]))
    noise = torch.randn(20, 1, 1, generator=g)[1:, 0, 0]
    expected = elites.mean() + noise * elites.std(unbiased=True)
    assert torch.allclose(second[1:], expected, atol=1e-6)
    assert found[0, 0, 0] == pytest.approx(float(second.sort().values[:5].mean()), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_no_candidate_ever_leaves_the_bounds(seed):
    rng = np.random.default_rng(seed)
    low = rng.uniform(-2, 0, 3)
    high = low + rng.uniform(0.01, 2, 3)
    actions = Actions(
        tuple(low), tuple(high), Normaliser(tuple(rng.uniform(-1, 1, 3)), tuple(rng.uniform(0.05, 3, 3))), stride=2
    )
    low_A, high_A = actions.bounds()
    seen = []

    def cost(x):
        seen.append(actions.raw(x))
        return -x.sum((-1, -2))  # pulls to the upper corner

    budget = {"horizon": 4, "candidates": 50, "elites": 5, "iterations": 6}
    found = cem(Search(cost, low_A=low_A, high_A=high_A, **budget, generators=seeded(seed)))
    ends = np.float32(np.tile(low, 2)), np.float32(np.tile(high, 2))
    for raw in [*seen, actions.raw(found)]:
        assert (raw.numpy() >= ends[0]).all()
        assert (raw.numpy() <= ends[1]).all()
    assert any((raw.numpy() == ends[1]).any() for raw in seen), "the bounds themselves are within reach"


def test_a_dimension_that_never_varied_stays_where_it_was():
    actions = Actions((-1.0, -1.0), (1.0, 1.0), Normaliser((0.2, 0.4), (0.5, 0.0)), stride=1)
    low, high = actions.bounds()
    found = cem(Search(lambda x: -x.sum((-1, -2)), low_A=low, high_A=high, **SETTINGS, generators=seeded(0)))
    assert torch.allclose(actions.raw(found)[..., 1], torch.tensor(0.4))


def test_problems_do_not_disturb_each_other():
    goals = torch.tensor([[0.5], [-0.7], [0.1]])

    def search(which):
        target = goals[which][:, None, None]
        return cem(
            Search(lambda x: (x - target).square().sum((-1, -2)), **bounds(1, 1.0), **SETTINGS, generators=seeded(*which))
        )

    assert torch.equal(search([0, 1, 2])[1], search([1])[0])


def test_candidates_without_a_cost_are_never_elite_and_none_at_all_is_told():
    def half(x):
        cost = (x - 0.5).square().sum((-1, -2))
        return torch.where(x[..., 0, 0] > 0.2, torch.nan, cost)

    found = cem(Search(half, **bounds(1, 1.0), **SETTINGS, generators=seeded(0)))
    assert found[0, 0, 0] <= 0.2
    with pytest.raises(PhylatentError, match="no finite latent"):
        cem(Search(lambda x: torch.full(x.shape[:2], torch.nan), **bounds(1, 1.0), **SETTINGS, generators=seeded(0)))
