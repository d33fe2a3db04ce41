"""Circular targets: an angle is regressed as sine and cosine, and nothing else about a run changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from phylatent import build, compose
from phylatent.objectives.psg import state_error
from phylatent.randomness import Draws
from phylatent.schema import Normaliser
from phylatent.tasks import get_task

DRAWS = Draws(0, 1, torch.device("cpu"))
ANGLES = {"reacher": (0, 1), "pusht": (4,), "cube": (5,), "tworooms": ()}


def batch_for(task: str, size: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    spec = get_task(task)
    frames = torch.randint(0, 256, (size, 4, 32, 32, 3), generator=generator, dtype=torch.uint8)
    actions = torch.randn(size, 3, 5 * spec.action_dim, generator=generator)
    return frames, actions, torch.randn(size, 4, spec.target.dim, generator=generator)


def graph_of(task: str, variant: str, target: Normaliser | None = None):
    return build(compose(task=task, preset="smoke", variant=variant), target=target).train()


@pytest.mark.parametrize("task", ANGLES)
def test_which_dimensions_are_angles(task: str) -> None:
    assert get_task(task).target.angles == dict.fromkeys(ANGLES[task], pytest.approx(2 * math.pi))


@pytest.mark.parametrize("task", ANGLES)
def test_the_head_reads_two_values_for_an_angle(task: str) -> None:
    raw, circular = (graph_of(task, variant).terms["psg"].head[-1] for variant in ("phylatent", "phylatent-circular"))
    assert raw.out_features == get_task(task).target.dim
    assert circular.out_features == raw.out_features + len(ANGLES[task])


def test_without_angles_the_variant_is_phylatent_to_the_bit() -> None:
    task = "tworooms"
    one, other = graph_of(task, "phylatent"), graph_of(task, "phylatent-circular")
    state = other.state_dict()
    assert one.state_dict().keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in one.state_dict().items())
    losses = [graph(*batch_for(task), DRAWS) for graph in (one, other)]
    assert losses[0].terms.keys() == losses[1].terms.keys()
    assert all(torch.equal(loss, losses[1].terms[name]) for name, loss in losses[0].terms.items())


def test_only_psg_notices() -> None:
    graphs = (graph_of("reacher", variant) for variant in ("phylatent-circular", "phylatent"))
    found, expected = (graph(*batch_for("reacher"), DRAWS).terms for graph in graphs)
    assert {name for name, loss in found.items() if not torch.equal(loss, expected[name])} == {"psg"}


def test_a_turn_more_is_the_same_target() -> None:
    frames, actions, targets = batch_for("pusht")
    turned = targets.clone()
    turned[..., 4] += 2 * math.pi
    for variant, same in (("phylatent", False), ("phylatent-circular", True)):
        graph = graph_of("pusht", variant)
        losses = [graph(frames, actions, s, DRAWS).terms["psg"].item() for s in (targets, turned)]
        assert (losses[0] == pytest.approx(losses[1], rel=1e-4)) is same


def test_sine_and_cosine_are_z_scored() -> None:
    statistics = Normaliser(mean=(0, 0, 0, 0, 0.5, -0.5, 0, 0), std=(1, 1, 1, 1, 0.25, 0.5, 1, 1))
    graph = graph_of("pusht", "phylatent-circular", statistics)
    raw = torch.tensor([[1.0, 2.0, 3.0, 4.0, math.pi / 2, 5.0, 6.0]])
    assert graph.normalise_targets(raw).flatten().tolist() == pytest.approx([1, 2, 3, 4, 2, 1, 5, 6], abs=1e-6)


def test_a_row_with_an_unknown_angle_is_left_out() -> None:
    targets = torch.ones(2, 7)
    targets[0, 4] = math.nan
    graph = graph_of("pusht", "phylatent-circular")
    known = graph.normalise_targets(targets)
    read = torch.zeros_like(known)
    assert state_error(read, known).item() == pytest.approx(np.mean([1, 1, 1, 1, math.sin(1) ** 2, math.cos(1) ** 2, 1, 1]))
