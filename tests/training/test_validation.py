"""What is measured while it trains, by hand-computed values."""

from __future__ import annotations

import math

import pytest
import torch

from phylatent.schema import PhysicalTarget
from phylatent.training.readout import readout
from phylatent.training.validation import effective_rank


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


PLANE = PhysicalTarget(columns=("s",), names=("x", "y"))
LINE = PhysicalTarget(columns=("s",), names=("x",))
HAND = PhysicalTarget(columns=("s",), names=("x", "hand"), angles={1: 12.0})


def test_readout_of_a_linear_map_is_perfect_and_of_noise_is_not(generator) -> None:
    z, held_out = torch.randn(200, 4, generator=generator), torch.randn(100, 4, generator=generator)
    weights = torch.randn(4, 1, generator=generator)

    def targets(z: torch.Tensor) -> torch.Tensor:
        return torch.cat([z @ weights + 3, torch.randn(len(z), 1, generator=generator)], dim=1)

    found = readout((z, targets(z)), (held_out, targets(held_out)), PLANE)
    assert found["r2/x"] == pytest.approx(1, abs=1e-6)
    assert found["error/x"] == pytest.approx(0, abs=1e-4)
    assert found["r2/y"] < 0.2
    assert found["error/y"] > 0.3


def test_readout_by_hand() -> None:
    """Fitted: s = z. Held out: targets 0, 0 and 3 read as 0, −1 and 1: R² = 1 − 5/6, errors 0, 1 and 2."""
    fit = torch.tensor([[-1.0], [1.0]])
    found = readout((fit, fit), (torch.tensor([[0.0], [-1.0], [1.0]]), torch.tensor([[0.0], [0.0], [3.0]])), LINE)
    assert found == {"r2/x": pytest.approx(1 / 6, abs=1e-5), "error/x": pytest.approx(1, abs=1e-5)}


def test_unknown_rows_are_left_out_and_a_constant_has_no_r2() -> None:
    z = torch.tensor([[-1.0], [1.0], [50.0]])
    targets = torch.tensor([[-1.0, 2.0], [1.0, 2.0], [math.nan, 2.0]])
    found = readout((z, targets), (z, targets), PLANE)
    assert found["r2/x"] == pytest.approx(1, abs=1e-5)
    assert math.isnan(found["r2/y"])
    assert all(math.isnan(value) for value in readout((z, targets), (z, targets * math.nan), PLANE).values())


def test_an_angle_that_winds_up_is_readable_as_a_direction(generator) -> None:
    """The latent is the direction of a clock's hand; the data counts hours without end, so their number is not in it."""
    hours = 1200 * torch.rand(300, generator=generator)
    angle = 2 * math.pi * hours / 12
    z = torch.stack([angle.cos(), angle.sin()], dim=1)
    targets = torch.stack([torch.zeros(300), hours], dim=1)
    found = readout((z[:200], targets[:200]), (z[200:], targets[200:]), HAND)
    assert set(found) == {"r2/x", "r2/hand", "r2/sin hand", "r2/cos hand", "error/x", "error/hand"}
    assert found["r2/hand"] < 0.1
    assert found["r2/sin hand"] == pytest.approx(1, abs=1e-4)
    assert found["r2/cos hand"] == pytest.approx(1, abs=1e-4)
    assert found["error/hand"] == pytest.approx(0, abs=1e-2)
    turned = torch.stack([targets[200:, 0], targets[200:, 1] + 11.5], dim=1)
    assert readout((z[:200], targets[:200]), (z[200:], turned), HAND)["error/hand"] == pytest.approx(0.5, abs=1e-2)
