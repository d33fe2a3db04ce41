"""The objectives in the graph: what each moves and what not, a batch of one, half precision, and none disturbs another."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_graphs import DRAWS, awake, batch_of
from torch import Tensor
from training_runs import EVERY_TERM, WEIGHTS

from phylatent import build, compose
from phylatent.objectives import OBJECTIVES
from phylatent.objectives.objective import Beside, Dims, Sequences
from phylatent.randomness import Draws
from phylatent.training.graph import TrainingGraph
from phylatent.training.passes import embed_together, predict_together


@pytest.fixture(scope="module")
def graph():
    """Away from initialisation: AdaLN-zero hides the action, and then no gradient can reach it."""
    return awake(build(compose(preset="smoke", overrides=[*EVERY_TERM, "model.dropout=0"])))


SIBLINGS = ("contrast", "covariance", "inverse", "smoothness", "subspaces", "variance", "variance_time")

# Which parts of the graph an objective trains, by the stop-gradients of its equation.
TRAINS = {
    "pred": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
    "sigreg": {"encoder", "projector"},
    "svic": {"encoder", "projector"},
    "psg": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
    "fra": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
    "casc": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
    "ld": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
    **{name: {"encoder", "projector"} for name in SIBLINGS},
    "rollout": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_which_parts_an_objective_trains(graph, name: str) -> None:
    graph.train().zero_grad()
    losses = graph(*batch_of(6), DRAWS)
    losses.terms[name].backward()
    moved = {
        part
        for part, module in graph.world_model.named_children()
        if any(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())
    }
    assert moved == TRAINS[name]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in graph.terms[name].parameters())
    assert all(p.grad is None or p.grad.isfinite().all() for p in graph.parameters())


def sequences(dtype: torch.dtype, size: int = 3) -> Sequences:
    generator = torch.Generator().manual_seed(6)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype).requires_grad_()

    z = draw(size, 4, 48)
    return Sequences(
        pixels=torch.randn(size, 4, 3, 32, 32, generator=generator),
        actions_BHA=torch.randn(size, 3, 10, generator=generator),
        z_BTD=z,
        c_BHD=draw(size, 3, 48),
        z_context_BHD=z[:, :3],
        z_future_BHD=z[:, 1:],
        z_predicted_BHD=draw(size, 3, 48),
        targets_BTS=torch.randn(size, 4, 2, generator=generator),
        offset=1,
    )


def with_what_it_asks_for(seq: Sequences, graph: TrainingGraph, name: str) -> Sequences:
    """The same sequences, and beside them what the named objective wants to see."""
    term, model, draws = graph.terms[name], graph.world_model, DRAWS.named(name)
    frames, actions, beside = term.more_frames(seq.pixels, draws), term.more_actions(seq.actions_BHA, draws), Beside()
    if frames is not None:
        beside = replace(beside, z_BtD=embed_together(model, [seq.pixels, frames])[1])
    if actions is not None:
        embedded = [seq.c_BHD.float(), model.embed_actions(actions).float()]
        predicted = predict_together(model, seq.z_context_BHD.float(), embedded, DRAWS)[1]
        beside = replace(beside, actions_BHA=actions, predicted_BHD=predicted)
    return replace(seq, beside={name: beside})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_half_precision_inputs(graph, name: str, dtype: torch.dtype) -> None:
    seq = sequences(dtype)
    term, model = graph.terms[name], graph.world_model
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = term(with_what_it_asks_for(seq, graph, name), model, DRAWS.named(name))
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    loss.backward()
    for tensor in (seq.z_BTD, seq.z_predicted_BHD, seq.c_BHD):
        assert tensor.grad is None or tensor.grad.isfinite().all()


@pytest.mark.parametrize("value", [0.0, 1.0, 1e4])
def test_constant_latents_stay_finite(graph, value: float) -> None:
    for name in OBJECTIVES:
        seq = sequences(torch.float32)
        constant = replace(
            seq,
            z_BTD=torch.full_like(seq.z_BTD, value),
            z_future_BHD=torch.full_like(seq.z_future_BHD, value),
            z_predicted_BHD=torch.full_like(seq.z_predicted_BHD, value),
        )
        asked = with_what_it_asks_for(constant, graph, name)
        assert graph.terms[name](asked, graph.world_model, DRAWS.named(name)).isfinite()


def test_a_batch_of_one(graph) -> None:
    graph.train().zero_grad()
    losses = graph(*batch_of(1), DRAWS)
    assert set(losses.terms) == set(OBJECTIVES)
    assert all(loss.isfinite() for loss in losses.terms.values())
    losses.total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in graph.parameters())


# Which of its inputs an objective moves: the clean latents it sees directly, the prediction, the action embedding.
MOVES = {
    "pred": {"z_predicted"},
    "sigreg": {"z"},
    "svic": set(),
    "psg": {"z", "z_predicted"},
    "fra": {"z_predicted", "c"},
    "casc": {"z_context"},
    "ld": {"z_predicted", "c"},
    **{name: {"z"} for name in SIBLINGS},
    "rollout": {"z", "z_predicted", "c"},
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_which_inputs_an_objective_moves(name: str) -> None:
    """Both sides of every stop-gradient: what is detached gets nothing, everything else gets something."""
    margin = ["casc.margin_scale=100", "casc.max_margin=100"]  # so large that CASC is never satisfied
    overrides = [*EVERY_TERM, "model.dropout=0", "pred.stop_gradient=true", *margin]
    graph = awake(build(compose(preset="smoke", overrides=overrides))).train()
    seq = sequences(torch.float32, size=6)
    leaves = {
        "z": seq.z_BTD,
        "z_context": seq.z_context_BHD.detach().requires_grad_(),
        "z_future": seq.z_future_BHD.detach().requires_grad_(),
        "z_predicted": seq.z_predicted_BHD,
        "c": seq.c_BHD,
    }
    apart = replace(seq, z_context_BHD=leaves["z_context"], z_future_BHD=leaves["z_future"])
    loss = graph.terms[name](with_what_it_asks_for(apart, graph, name), graph.world_model, DRAWS.named(name))
    assert loss > 0
    loss.backward()
    assert {leaf for leaf, tensor in leaves.items() if tensor.grad is not None and tensor.grad.abs().sum() > 0} == MOVES[name]


def test_without_its_stop_gradient_the_prediction_moves_the_target() -> None:
    graph = build(compose(preset="smoke", overrides=["pred.stop_gradient=false"]))
    seq = sequences(torch.float32)
    future = seq.z_future_BHD.detach().requires_grad_()
    graph.terms["pred"](replace(seq, z_future_BHD=future), graph.world_model, DRAWS).backward()
    assert future.grad.abs().sum() > 0


def test_total_is_the_weighted_sum(graph) -> None:
    losses = graph.train()(*batch_of(4), DRAWS)
    assert losses.total.item() == pytest.approx(sum(WEIGHTS[name] * loss.item() for name, loss in losses.terms.items()))


def test_counterfactual_pass_shares_dropout_masks() -> None:
    """In a batch of one without action noise both branches see the same actions: only dropout could part them."""
    graph = build(compose(preset="smoke", overrides=["model.dropout=0.5", "casc.action_noise=0"])).train()
    for name, parameter in graph.named_parameters():
        if "adaLN" in name:
            parameter.data.normal_(0, 0.3)
    seq = graph.sequences(*batch_of(1), DRAWS)
    torch.testing.assert_close(seq.beside["casc"].predicted_BHD, seq.z_predicted_BHD)
    other = graph.world_model.predict(seq.z_context_BHD, seq.c_BHD, Draws(0, 2, torch.device("cpu")))
    assert not torch.allclose(other, seq.z_predicted_BHD), "another step has other masks"


def test_extra_passes_do_not_touch_running_statistics() -> None:
    data = batch_of(4)
    states = {}
    for variant in ("lewm", "phylatent"):
        graph = build(compose(preset="smoke", variant=variant)).train()
        graph(*data, DRAWS)
        states[variant] = {k: v for k, v in graph.world_model.state_dict().items() if "running" in k or "tracked" in k}
    for name, tensor in states["lewm"].items():
        assert torch.equal(tensor, states["phylatent"][name]), name


@pytest.fixture(scope="module")
def whole():
    """A graph of every term in training, and what it was initialised with."""
    graph = build(compose(preset="smoke", overrides=EVERY_TERM)).train()
    return graph, {name: tensor.clone() for name, tensor in graph.state_dict().items()}


@pytest.mark.parametrize("removed", [name for name in OBJECTIVES if name != "pred"])
def test_removing_a_term_leaves_the_others_alone(whole, removed: str) -> None:
    """Initial parameters, draws and losses of every other term, early and late: equal to the bit."""
    graph, reference = whole
    others = [text for text in EVERY_TERM if not text.startswith(("objectives=", f"{removed}."))]
    terms = f"objectives=[{','.join(name for name in OBJECTIVES if name != removed)}]"
    without = build(compose(preset="smoke", overrides=[*others, terms])).train()
    assert removed not in without.terms
    assert all(torch.equal(tensor, reference[name]) for name, tensor in without.state_dict().items())
    for step in (1, 50):
        draws = Draws(0, step, torch.device("cpu"))
        expected, found = (one(*batch_of(4), draws).terms for one in (graph, without))
        assert set(found) == set(expected) - {removed}
        assert all(torch.equal(found[name], expected[name]) for name in found)


def test_a_term_sees_other_draws_at_another_step(whole) -> None:
    data = batch_of(4)
    first, second = (whole[0](*data, Draws(0, step, torch.device("cpu"))).terms for step in (1, 2))
    for name in ("sigreg", "svic", "casc", "ld", "subspaces"):
        assert not torch.equal(first[name], second[name]), name


def test_every_term_names_itself_and_its_settings() -> None:
    assert list(OBJECTIVES) == list(WEIGHTS)
    for term in OBJECTIVES.values():
        term(term.Settings(), Dims(latent=48, target=2, action=10))
