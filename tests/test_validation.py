"""What is measured while it trains, by hand-computed values."""

from __future__ import annotations

import math

import pytest
import torch

from phylatent.training.validation import effective_rank, readout_r2


def test_effective_rank_of_even_clouds() -> None:
    """k directions with the same spread have rank k, wherever the cloud lies."""
    for k in (1, 2, 5):
        axes = torch.zeros(2 * k, 6)
        axes[:k, :k], axes[k:, :k] = torch.eye(k), -torch.eye(k)
        assert effective_rank(axes + 7) == pytest.approx(k, rel=1e-6)


def test_effective_rank_by_hand() -> None:
    """Singular values 3 and 1: entropy of (¾, ¼)."""
    cloud = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert effective_rank(cloud) == pytest.approx(math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25)), rel=1e-6)


def test_effective_rank_of_a_point_is_zero() -> None:
    assert effective_rank(torch.ones(5, 3)) == 0


def test_readout_of_a_linear_map_is_perfect_and_of_noise_is_not(generator) -> None:
    z, held_out = torch.randn(200, 4, generator=generator), torch.randn(100, 4, generator=generator)
    weights = torch.randn(4, 1, generator=generator)

    def targets(z: torch.Tensor) -> torch.Tensor:
        return torch.cat([z @ weights + 3, torch.randn(len(z), 1, generator=generator)], dim=1)

    linear, noise = readout_r2(z, targets(z), held_out, targets(held_out))
    assert linear == pytest.approx(1, abs=1e-6)
    assert noise < 0.2


def test_readout_by_hand() -> None:
    """Fitted: s = z. Held out: targets 0 and 2 read as 0 and 1: R² = 1 − 1/2."""
    fit = torch.tensor([[-1.0], [1.0]])
    assert readout_r2(fit, fit, torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]])) == [pytest.approx(0.5, abs=1e-5)]


def test_unknown_rows_are_left_out_and_a_constant_has_no_r2() -> None:
    z = torch.tensor([[-1.0], [1.0], [50.0]])
    targets = torch.tensor([[-1.0, 2.0], [1.0, 2.0], [math.nan, 2.0]])
    moving, constant = readout_r2(z, targets, z, targets)
    assert moving == pytest.approx(1, abs=1e-5)
    assert math.isnan(constant)
