"""The sibling methods' equations: values worked out by hand, where gradients go, and what the settings refuse."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from phylatent import build, compose
from phylatent.errors import UserError
from phylatent.objectives.contrast import contrast, triplet_frames
from phylatent.objectives.inverse import inverse, neighbours
from phylatent.objectives.objective import Sequences
from phylatent.objectives.pldm import covariance, smoothness, variance, variance_time
from phylatent.objectives.sigreg import sigreg, unit_directions
from phylatent.objectives.subspaces import orthonormal_rows, subspaces
from phylatent.randomness import Draws


def sequences(z_BTD: Tensor) -> Sequences:
    """What the sibling methods look at are the latents; the rest is there, and empty."""
    size, empty = len(z_BTD), torch.zeros(len(z_BTD), 3, 48)
    return Sequences(
        pixels=torch.zeros(size, 4, 3, 32, 32),
        actions_BHA=torch.zeros(size, 3, 10),
        z_BTD=z_BTD,
        c_BHD=empty,
        z_context_BHD=empty,
        z_future_BHD=empty,
        z_predicted_BHD=empty,
        targets_BTS=torch.zeros(size, 4, 2),
        offset=1,
    )


def leaf(*values: object) -> Tensor:
    return torch.tensor(*values, dtype=torch.float32, requires_grad=True)


def test_subspaces_is_the_mean_of_sigreg_in_each(generator) -> None:
    z = torch.randn(9, 3, 8, generator=generator)
    bases = orthonormal_rows(torch.randn(4, 8, 2, generator=generator))
    directions = unit_directions(torch.randn(4, 2, 16, generator=generator))
    each = [sigreg(z @ basis.T, inside) for basis, inside in zip(bases, directions, strict=True)]
    assert subspaces(z, bases, directions).item() == pytest.approx(torch.stack(each).mean().item(), rel=1e-5)


def test_subspaces_are_orthonormal_frozen_independent_and_of_the_seed() -> None:
    def term(*overrides: str) -> torch.nn.Module:
        return build(compose(preset="smoke", variant="subjepa", overrides=["subspaces.count=8", *overrides])).terms["subspaces"]

    bases = term().bases_KRD
    assert bases.shape == (8, 6, 48)
    torch.testing.assert_close(bases @ bases.transpose(1, 2), torch.eye(6).expand(8, 6, 6), atol=1e-5, rtol=0)
    assert (bases[0] @ bases[1].T).abs().max() > 0.01, "one QR for all would make them orthogonal to each other"
    assert not list(term().parameters())
    assert torch.equal(bases, term().bases_KRD)
    assert not torch.equal(bases, term("seed=1").bases_KRD)


def test_inverse_by_hand() -> None:
    z = torch.arange(6.0).reshape(1, 3, 2)
    assert neighbours(z, 2).tolist() == [[[0, 1, 2, 3], [2, 3, 4, 5]]]
    read = leaf([[[1.0, 2.0]]])
    loss = inverse(read, torch.tensor([[[0.0, 4.0]]]))
    assert loss.item() == pytest.approx((1 + 4) / 2)
    loss.backward()
    assert read.grad.flatten().tolist() == pytest.approx([1, -2])


def test_the_inverse_head_is_the_methods() -> None:
    head = build(compose(preset="paper", variant="smwm")).terms["inverse"].head
    assert [tuple(layer.weight.shape) for layer in head[::2]] == [(256, 384), (256, 256), (10, 256)]
    assert all(isinstance(layer, torch.nn.ReLU) for layer in head[1::2])


def test_a_model_with_one_frame_of_context_takes_history_and_ignores_it(generator) -> None:
    """Planning hands every model the frames so far; SMWM's sees the present one."""
    model = build(compose(preset="smoke", variant="smwm")).world_model.eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    z, blocks = torch.randn(2, 48, generator=generator), torch.randn(2, 3, 10, generator=generator)
    past = {
        "past_NhD": torch.randn(2, 2, 48, generator=generator),
        "past_blocks_NhA": torch.randn(2, 2, 10, generator=generator),
    }
    with torch.no_grad():
        torch.testing.assert_close(model.rollout(z, blocks, **past), model.rollout(z, blocks))
        assert not torch.allclose(model.rollout(z, blocks), model.rollout(z, -blocks))


def test_contrast_by_hand() -> None:
    """First sample: cosines 0 to the positive, 1 to the negative. Second: 1 and 0, further apart than the margin."""
    anchor = leaf([[2.0, 0.0], [0.0, 1.0]])
    positive, negative = leaf([[0.0, 3.0], [0.0, 5.0]]), leaf([[1.0, 0.0], [1.0, 0.0]])
    loss = contrast(anchor, positive, negative, margin=0.2)
    assert loss.item() == pytest.approx((1.2 + 0) / 2)
    loss.backward()
    for branch in (anchor, positive):
        assert branch.grad[0].abs().sum() > 0
        assert branch.grad[1].abs().sum() == 0
    mixed = leaf([[1.0, 1.0]])
    contrast(leaf([[1.0, 0.0]]), leaf([[1.0, 0.0]]), mixed, margin=0.9).backward()
    assert mixed.grad.abs().sum() > 0


def test_contrast_takes_the_middle_frame_the_next_one_and_another_sample() -> None:
    assert [triplet_frames(frames) for frames in (2, 3, 4)] == [(1, 0), (1, 2), (2, 3)]
    graph = build(compose(preset="smoke", variant="sdjepa"))
    z = torch.randn(3, 4, 48, generator=torch.Generator().manual_seed(3)).requires_grad_()
    draws = Draws(0, 1, torch.device("cpu"))
    losses = set()
    for step in range(1, 9):
        loss = graph.terms["contrast"](sequences(z), graph.world_model, Draws(0, step, draws.device))
        losses.add(round(loss.item(), 6))
    a, p = z[:, 2, :2], z[:, 3, :2]
    expected = {round(contrast(a, p, torch.roll(a, shift, dims=0), margin=0.2).item(), 6) for shift in (1, 2)}
    assert losses == expected, "never itself"
    graph.terms["contrast"](sequences(z), graph.world_model, draws).backward()
    assert set(z.grad.nonzero()[:, 1].tolist()) == {2, 3}
    assert set(z.grad.nonzero()[:, 2].tolist()) == {0, 1}


def test_contrast_of_a_single_sample_is_zero() -> None:
    graph = build(compose(preset="smoke", variant="sdjepa"))
    z = torch.randn(1, 4, 48, requires_grad=True)
    loss = graph.terms["contrast"](sequences(z), graph.world_model, Draws(0, 1, torch.device("cpu")))
    loss.backward()
    assert loss.item() == 0
    assert z.grad.abs().sum() == 0


def test_sigreg_leaves_the_contrasted_dimensions_alone() -> None:
    graph = build(compose(preset="smoke", variant="sdjepa"))
    z = torch.randn(5, 4, 48, requires_grad=True)
    graph.terms["sigreg"](sequences(z), graph.world_model, Draws(0, 1, torch.device("cpu"))).backward()
    assert z.grad[..., :2].abs().sum() == 0
    assert (z.grad[..., 2:].abs().sum((0, 1)) > 0).all()


def test_variance_by_hand() -> None:
    """Two samples, one time step: first dimension ±0.3 (variance 0.18), second far above the margin."""
    z = leaf([[[0.3, 5.0]], [[-0.3, -5.0]]])
    loss = variance(z)
    assert loss.item() == pytest.approx((1 - math.sqrt(0.18 + 1e-4)) / 2, rel=1e-6)
    loss.backward()
    assert z.grad[0, 0, 0] < 0 < z.grad[1, 0, 0], "the samples are pushed apart"
    assert z.grad[..., 1].abs().sum() == 0


def test_variance_over_time_by_hand() -> None:
    """What all samples do together does not count: of 0 → 1 and 0 → 3 the mean 0 → 2 is taken off, which leaves 0 → ∓1."""
    z = torch.tensor([[[0.0], [1.0]], [[0.0], [3.0]]])
    assert variance_time(z).item() == pytest.approx(1 - math.sqrt(0.5 + 1e-4), rel=1e-6)


def test_covariance_by_hand() -> None:
    """Covariance of (1, 2) and (−1, −2) over n − 1 = 1: off-diagonal 4, twice squared, over D² − D = 2."""
    z = leaf([[[1.0, 2.0]], [[-1.0, -2.0]]])
    loss = covariance(z)
    assert loss.item() == pytest.approx((16 + 16) / 2)
    loss.backward()
    assert z.grad.abs().sum() > 0
    assert covariance(torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]])).item() == 0
    twice = torch.cat([z, 0 * z], dim=1)
    assert covariance(twice).item() == pytest.approx(16 / 2), "the mean over time steps"


def test_smoothness_by_hand() -> None:
    z = leaf([[[0.0, 0.0], [1.0, 3.0], [1.0, 3.0]]])
    loss = smoothness(z)
    assert loss.item() == pytest.approx((1 + 9) / 4)
    loss.backward()
    assert z.grad[0, 0].tolist() == pytest.approx([-0.5, -1.5])


def test_a_constant_cloud_gets_a_finite_push() -> None:
    z = torch.zeros(3, 4, 5, requires_grad=True)
    losses = variance(z), variance_time(z), covariance(z), smoothness(z)
    assert [loss.item() for loss in losses] == pytest.approx([0.99, 0.99, 0, 0])
    sum(losses).backward()
    assert z.grad.isfinite().all()


@pytest.mark.parametrize(
    "variant, override, sentence",
    [
        ("subjepa", "subspaces.count=49", "subspaces.count is 49, but the latent has 48 dimensions"),
        ("sdjepa", "contrast.dims=49", "contrast.dims is 49, more than the latent's 48"),
        ("sdjepa", "sigreg.skip=48", "sigreg.skip is 48, but the latent has 48 dimensions"),
    ],
)
def test_settings_that_do_not_fit_the_latent(variant: str, override: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        build(compose(preset="smoke", variant=variant, overrides=[override]))
