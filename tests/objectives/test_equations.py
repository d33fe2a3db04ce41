"""Each equation: a value worked out by hand, and where its gradient goes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from phylatent.models.heads import ActionQuery
from phylatent.objectives.casc import casc, counterfactual_actions, distance
from phylatent.objectives.distance import normalized_mse
from phylatent.objectives.fra import alignment
from phylatent.objectives.ld import add_noise, ld
from phylatent.objectives.prediction import prediction
from phylatent.objectives.psg import psg, state_error
from phylatent.objectives.sigreg import sigreg, unit_directions
from phylatent.objectives.svic import shift_appearance, svic


def leaf(*values: object) -> Tensor:
    return torch.tensor(*values, dtype=torch.float32, requires_grad=True)


def test_prediction() -> None:
    predicted, future = leaf([[1.0, 2.0]]), leaf([[0.0, 4.0]])
    loss = prediction(predicted, future)
    assert loss.item() == pytest.approx((1 + 4) / 2)
    loss.backward()
    assert predicted.grad is not None
    assert future.grad is None
    prediction(predicted, future, stop_gradient=False).backward()
    assert future.grad.tolist() == [[-1.0, 2.0]]


def test_normalized_mse_is_two_minus_two_cosines_over_d() -> None:
    x, y = torch.tensor([[3.0, 0.0, 0.0, 0.0]]), torch.tensor([[1.0, math.sqrt(3), 0.0, 0.0]])
    assert normalized_mse(x, y).item() == pytest.approx((2 - 2 * 0.5) / 4)
    assert normalized_mse(x, 7 * x).item() == pytest.approx(0, abs=1e-12)
    assert normalized_mse(torch.zeros(1, 4), y).isfinite()


def test_the_sum_is_two_minus_two_cosines() -> None:
    x = torch.tensor([[3.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]])
    y = torch.tensor([[1.0, math.sqrt(3), 0.0, 0.0], [0.0, -1.0, 0.0, 0.0]])
    cosines = (0.5, -1.0)
    expected = sum(2 - 2 * cosine for cosine in cosines) / 2
    assert normalized_mse(x, y, reduction="sum").item() == pytest.approx(expected)
    assert normalized_mse(x, y, reduction="mean").item() == pytest.approx(expected / 4)
    assert svic(x, y, reduction="sum").item() == pytest.approx(expected)
    assert alignment(lambda z: z, x, y, reduction="sum").item() == pytest.approx(expected)


def test_sigreg_of_one_sample_at_the_origin() -> None:
    """cf = 1 everywhere, so the statistic is Σ w_k e^(−t²/2) (1 − e^(−t²/2))² for one sample, and n times that for n."""
    expected = 0.0
    for k in range(17):
        t = 3 * k / 16
        weight = (1 if k in (0, 16) else 2) * 3 / 16
        expected += weight * math.exp(-t * t / 2) * (1 - math.exp(-t * t / 2)) ** 2
    directions = unit_directions(torch.randn(5, 8))
    assert sigreg(torch.zeros(1, 2, 5), directions).item() == pytest.approx(expected, rel=1e-5)
    assert sigreg(torch.zeros(6, 2, 5), directions).item() == pytest.approx(6 * expected, rel=1e-5)


@pytest.mark.parametrize("knots", [2, 3, 17])
def test_sigreg_without_a_sine_for_every_knot_is_the_statistic_with_one(generator, knots: int) -> None:
    """Value and gradient, against the formula as it stands; latents far out turn by many circles."""
    z = (4 * torch.randn(6, 3, 5, generator=generator, dtype=torch.float64)).requires_grad_()
    directions = unit_directions(torch.randn(5, 7, generator=generator, dtype=torch.float64))
    t = torch.linspace(0, 3.0, knots, dtype=torch.float64)
    angles = (z.transpose(0, 1) @ directions)[..., None] * t
    gaussian = torch.exp(-t.square() / 2)
    error = (angles.cos().mean(1) - gaussian).square() + angles.sin().mean(1).square()
    # The mean over time steps and directions of a trapezoid's area from −3 to 3.
    plain = 6 * 2 * torch.trapezoid(error * gaussian, t).mean()
    (expected,) = torch.autograd.grad(plain, z)
    loss = sigreg(z, directions, knots=knots)
    (found,) = torch.autograd.grad(loss, z)
    assert loss.item() == pytest.approx(plain.item(), rel=1e-5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


def test_sigreg_prefers_a_gaussian_and_moves_the_latents(generator) -> None:
    directions = unit_directions(torch.randn(8, 64, generator=generator))
    gaussian = torch.randn(256, 1, 8, generator=generator).requires_grad_()
    loss = sigreg(gaussian, directions)
    loss.backward()
    assert gaussian.grad.abs().sum() > 0
    assert loss < sigreg(torch.ones(256, 1, 8), directions) / 20


def test_sigreg_is_one_statistic_per_time_step(generator) -> None:
    directions = unit_directions(torch.randn(3, 16, generator=generator))
    z = torch.randn(7, 2, 3, generator=generator)
    each = [sigreg(z[:, t : t + 1], directions) for t in range(2)]
    assert sigreg(z, directions).item() == pytest.approx((each[0] + each[1]).item() / 2, rel=1e-5)


def test_svic_augmentation_by_hand() -> None:
    uniform = torch.tensor([1.0, 0.5, 0.0, 0.75]).reshape(1, 1, 4)
    shifted = shift_appearance(torch.zeros(1, 1, 3, 2, 2), uniform, brightness=0.1, channel=0.02)
    assert shifted[0, 0, :, 0, 0].tolist() == pytest.approx([0.1, 0.1 - 0.02, 0.1 + 0.01])
    assert torch.equal(shifted[..., 0, 0], shifted[..., 1, 1])


def test_svic_moves_the_augmented_branch_only() -> None:
    augmented, z = leaf([[1.0, 0.0]]), leaf([[0.0, 2.0]])
    loss = svic(augmented, z)
    assert loss.item() == pytest.approx(2 / 2)
    loss.backward()
    assert augmented.grad.abs().sum() > 0
    assert z.grad is None


def test_psg_by_hand() -> None:
    read = leaf([[[1.0], [2.0]]])
    predicted = leaf([[[5.0]]])
    targets = torch.tensor([[[0.0], [4.0]]])
    loss = psg(read, predicted, targets, offset=1)
    assert loss.item() == pytest.approx((1 + 4) / 2 + 1)
    loss.backward()
    assert read.grad.flatten().tolist() == pytest.approx([1.0, -2.0])
    assert predicted.grad.item() == pytest.approx(2.0)


def test_psg_leaves_unknown_rows_out() -> None:
    read = leaf([[1.0, 1.0], [3.0, 3.0]])
    loss = state_error(read, torch.tensor([[math.nan, 0.0], [1.0, 2.0]]))
    assert loss.item() == pytest.approx((4 + 1) / 2)
    loss.backward()
    assert read.grad[0].tolist() == [0, 0]
    assert state_error(read, torch.full((2, 2), math.nan)).item() == 0


def test_fra_stops_the_gradient_after_the_view() -> None:
    predicted, future, weight = leaf([[1.0, 0.0]]), leaf([[0.0, 1.0]]), leaf(2.0)
    seen = []

    def view(x: Tensor) -> Tensor:
        seen.append(torch.is_grad_enabled())
        return weight * x + torch.tensor([[0.0, 2.0]])

    loss = alignment(view, predicted, future)
    # views are (2, 2) and (0, 4): cosine 1/√2
    assert loss.item() == pytest.approx((2 - math.sqrt(2)) / 2, rel=1e-6)
    loss.backward()
    assert future.grad is None
    assert predicted.grad.abs().sum() > 0
    assert weight.grad is not None
    assert sorted(seen) == [False, True]


def test_action_query_asks_with_the_mean_action(generator) -> None:
    query = ActionQuery(8)
    x, c = torch.randn(2, 3, 8, generator=generator), torch.randn(2, 3, 8, generator=generator)
    assert query(x, c).shape == (2, 8)
    torch.testing.assert_close(query(x, c), query(x, c.flip(1)), msg="the order of actions does not matter to their mean")
    torch.testing.assert_close(query(x, c), query(x.flip(1), c), msg="keys and values are a set")
    assert not torch.allclose(query(x, c), query(x, -c))


def test_casc_actions_and_distances_by_hand() -> None:
    actions = torch.tensor([[[1.0, 2.0]], [[4.0, 6.0]]])
    swapped = counterfactual_actions(actions, torch.tensor([1, 0]), torch.ones_like(actions), noise=0.5)
    assert swapped.tolist() == [[[4.5, 6.5]], [[1.5, 2.5]]]
    assert distance(actions[0], actions[1]).item() == pytest.approx(5 / math.sqrt(2))


def test_casc_by_hand() -> None:
    """Four positions with action distances 1, 2, 3, 4: the two above the median count."""
    factual = torch.zeros(2, 2, 1)
    counterfactual = leaf([[[0.0], [0.0]], [[0.05], [0.9]]])
    distances = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    loss = casc(counterfactual, factual, distances, distances.median(), margin_scale=0.1, max_margin=0.35)
    # margins: 0.3 and min(0.4, 0.35); separations 0.05 and 0.9
    assert loss.item() == pytest.approx((0.25 + 0.0) / 2)
    loss.backward()
    assert counterfactual.grad.flatten().tolist() == pytest.approx([0, 0, -0.5, 0])


def test_casc_does_not_move_the_factual_branch_and_survives_coincidence() -> None:
    factual, counterfactual = leaf([[[1.0, 1.0]]]), leaf([[[1.0, 1.0]]])
    loss = casc(counterfactual, factual, torch.tensor([[2.0]]), torch.tensor(1.0), margin_scale=0.1, max_margin=1.0)
    assert loss.item() == pytest.approx(0.2)
    loss.backward()
    assert factual.grad is None
    assert counterfactual.grad.isfinite().all()


def test_casc_is_zero_when_nothing_is_above_the_median() -> None:
    same = torch.full((3, 2), 1.5)
    counterfactual = torch.zeros(3, 2, 4, requires_grad=True)
    loss = casc(counterfactual, torch.zeros(3, 2, 4), same, same.median(), margin_scale=1.0, max_margin=1.0)
    loss.backward()
    assert loss.item() == 0
    assert counterfactual.grad.abs().sum() == 0


def test_ld_by_hand() -> None:
    future = leaf([[[1.0, 2.0]]])
    noisy = add_noise(future, torch.tensor([[[1.0, -1.0]]]), torch.tensor([[[0.5]]]))
    assert noisy.tolist() == [[[1.5, 1.5]]]
    assert not noisy.requires_grad
    assert ld(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])).item() == pytest.approx((1 + 4) / 2)
