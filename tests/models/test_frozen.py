"""Rollouts prepared for a planner: the model's own, whatever is folded, packed or compiled."""

from __future__ import annotations

import math
import shutil

import pytest
import torch

from phylatent import WorldModel, build
from phylatent.composition import compose
from phylatent.models.frozen import attend


@pytest.fixture(scope="module")
def model() -> WorldModel:
    made = build(compose(preset="smoke")).world_model.eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for name, tensor in [*made.named_parameters(), *made.named_buffers()]:
        if tensor.is_floating_point() and not name.startswith(("pixel", "action_")):
            tensor.copy_(0.2 * torch.randn(tensor.shape, generator=generator))
        if name.endswith("running_var"):
            tensor.copy_(0.5 + tensor.abs())
    return made


def given(rows: int, steps: int, before: int) -> tuple[tuple[torch.Tensor, torch.Tensor], dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(rows)
    z, blocks = torch.randn(rows, 48, generator=generator), torch.randn(rows, steps, 10, generator=generator)
    past = torch.randn(1, before, 48, generator=generator), torch.randn(1, before, 10, generator=generator)
    names = ("past_NhD", "past_blocks_NhA") if before else ()
    return (z, blocks), {name: one.expand(rows, -1, -1) for name, one in zip(names, past, strict=False)}


def window_by_window(model: WorldModel, z: torch.Tensor, blocks: torch.Tensor, past_NhD=None, past_blocks_NhA=None):
    """By `predict` alone, which knows nothing of folded weights: three frames at a time."""
    z = z[:, None] if past_NhD is None else torch.cat([past_NhD, z[:, None]], dim=1)
    blocks = blocks if past_blocks_NhA is None else torch.cat([past_blocks_NhA, blocks], dim=1)
    c, known = model.embed_actions(model.normalise_actions(blocks)), z.shape[1]
    for end in range(known, blocks.shape[1] + 1):
        seen = slice(max(0, end - 3), end)
        z = torch.cat([z, model.predict(z[:, seen], c[:, seen])[:, -1:]], dim=1)
    return z[:, known:]


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("rows", [1, 7])
@torch.no_grad()
def test_a_frozen_rollout_is_the_model_s(model: WorldModel, rows: int, before: int) -> None:
    for steps in (1, 5):
        what, past = given(rows, steps, before)
        expected = window_by_window(model, *what, **past)
        torch.testing.assert_close(model.frozen()(*what, **past), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(model.rollout(*what, **past), expected, rtol=1e-5, atol=1e-5)


def test_gradients_flow_to_the_actions_as_through_the_model(model: WorldModel) -> None:
    found = []
    for rollout in (model.frozen(), lambda *what, **past: window_by_window(model, *what, **past)):
        (z, blocks), past = given(3, 4, 2)
        blocks.requires_grad_()
        rollout(z, blocks, **past)[:, -1].square().sum().backward()
        found.append(blocks.grad)
    assert found[0].abs().min() > 0
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


def test_attention_by_hand() -> None:
    """One head of one value. The first position sees itself; the second weighs 1 and 3 by softmax of 0 and ln 3."""
    k, v = torch.tensor([0.0, math.log(3)]), torch.tensor([1.0, 3.0])
    mixed = attend(torch.ones(2, 1, 1, 1), k.view(2, 1, 1, 1), v.view(2, 1, 1, 1))
    assert mixed.flatten().tolist() == pytest.approx([1.0, 0.25 * 1 + 0.75 * 3])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@torch.no_grad()
def test_a_compiled_rollout_is_the_model_s(model: WorldModel) -> None:
    compiled = model.frozen(compiled=True)
    for rows in (4, 6):
        what, _ = given(rows, 2, 0)
        torch.testing.assert_close(compiled(*what), model.rollout(*what), rtol=1e-4, atol=1e-5)
