"""Open-loop prediction as an objective: by hand, as the planner's rollout, where its gradients flow, a batch of one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from small_graphs import DRAWS, awake, batch_of
from torch import Tensor, nn

from phylatent import build, compose
from phylatent.errors import UserError
from phylatent.objectives.objective import Dims, OpenLoop
from phylatent.objectives.rollout import Rollout, RolloutSettings, open_loop, rollout

OBJECTIVES = ["objectives=[pred,sigreg,rollout]", "model.dropout=0"]


class Sums(nn.Module):
    """A linear "model": the sum of a window's latents so far, plus the action."""

    config = SimpleNamespace(clip=SimpleNamespace(context=2))

    def predict(self, z: Tensor, c: Tensor, draws: object) -> Tensor:
        return z.cumsum(1) + c


def column(*values: float) -> Tensor:
    return torch.tensor(values)[None, :, None]


def test_by_hand() -> None:
    """From 1 with actions 1, 2, 3: 1 + 1 = 2, then (1 + 2) + 2 = 5, then, the window being two long, (2 + 5) + 3 = 10."""
    predicted = open_loop(Sums(), column(1.0), column(2.0), column(1.0, 2.0, 3.0), DRAWS)
    assert predicted.flatten().tolist() == [2, 5, 10]
    assert rollout(predicted, column(2.0, 6.0, 8.0)).item() == pytest.approx((0 + 1 + 4) / 3)


def test_one_block_is_the_first_prediction() -> None:
    assert open_loop(Sums(), column(1.0), column(2.0), column(1.0), DRAWS).flatten().tolist() == [2]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_it_is_the_planners_rollout(start: int) -> None:
    graph = awake(build(compose(preset="smoke", overrides=[*OBJECTIVES, f"rollout.start={start}"]))).eval()
    frames, actions, targets = batch_of(4)
    with torch.no_grad():
        seq = graph.sequences(frames, actions, targets, DRAWS)
        found = graph.terms["rollout"](seq, graph.world_model, DRAWS)
        past = {"past_NhD": seq.z_BTD[:, :start], "past_blocks_NhA": actions[:, :start]} if start else {}
        expected = graph.world_model.rollout(seq.z_BTD[:, start], actions[:, start:], **past)
    torch.testing.assert_close(found, (expected - seq.z_BTD[:, start + 1 :]).square().mean())


@pytest.mark.parametrize("stop", [True, False])
def test_the_target_moves_only_without_its_stop_gradient(stop: bool) -> None:
    graph = awake(build(compose(preset="smoke", overrides=[*OBJECTIVES, f"rollout.stop_gradient={stop}"]))).train()
    seq = graph.sequences(*batch_of(4), DRAWS)
    z = seq.z_BTD.detach().requires_grad_()
    clip = OpenLoop(z, seq.c_BHD)
    graph.terms["rollout"](replace(seq, open_loop=clip), graph.world_model, DRAWS).backward()
    moved = z.grad.abs().sum((0, 2)) > 0
    assert moved.tolist() == [True, *([not stop] * 3)]


def test_later_steps_teach_the_earlier_ones() -> None:
    """The error of the last step alone reaches the first prediction."""
    graph = awake(build(compose(preset="smoke", overrides=OBJECTIVES))).train()
    seq = graph.sequences(*batch_of(4), DRAWS)
    first = seq.z_predicted_BHD[:, :1].detach().requires_grad_()
    open_loop(graph.world_model, seq.z_BTD[:, :1], first, seq.c_BHD, DRAWS)[:, -1].square().sum().backward()
    assert first.grad.abs().sum() > 0


def test_a_batch_of_one_and_the_running_statistics() -> None:
    graph = build(compose(preset="smoke", overrides=OBJECTIVES)).train()
    seq = graph.sequences(*batch_of(1), DRAWS)
    before = {name: buffer.clone() for name, buffer in graph.named_buffers()}
    loss = graph.terms["rollout"](seq, graph.world_model, DRAWS)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in graph.parameters())
    assert all(torch.equal(buffer, before[name]) for name, buffer in graph.named_buffers())


def test_the_curriculum() -> None:
    def reach(done: float, **settings: object) -> int:
        return Rollout(RolloutSettings(**settings), Dims(48, 2, 10)).reach(done, 5)

    assert [reach(done) for done in (0, 0.125, 0.25, 0.5, 0.9)] == [1, 2, 3, 5, 5]
    assert reach(0, start=2) == 3
    assert reach(0, curriculum=False) == 5


def test_what_it_refuses() -> None:
    with pytest.raises(UserError, match=r"rollout\.start is -1"):
        compose(overrides=["objectives=[pred,rollout]", "rollout.start=-1"])
    graph = build(compose(preset="smoke", overrides=[*OBJECTIVES, "rollout.start=3"])).train()
    with pytest.raises(UserError, match=r"a rollout\.start below clip\.context = 3; got 1 and 3"):
        graph(*batch_of(2), DRAWS)
