"""Each objective: a value worked out by hand, where gradients flow and where not, a batch of one, half precision."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from phylatent import build, compose
from phylatent.draws import Draws
from phylatent.models.heads import ActionQuery
from phylatent.objectives import TERMS
from phylatent.objectives.casc import casc, counterfactual_actions, distance
from phylatent.objectives.distance import normalized_mse
from phylatent.objectives.fra import alignment
from phylatent.objectives.ld import add_noise, ld
from phylatent.objectives.prediction import prediction
from phylatent.objectives.psg import psg, state_error
from phylatent.objectives.sigreg import sigreg, unit_directions
from phylatent.objectives.svic import shift_appearance, svic
from phylatent.objectives.term import Dims, Sequences


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


@pytest.fixture(scope="module")
def graph():
    """Away from initialisation: AdaLN-zero hides the action, and then no gradient can reach it."""
    return awake(build(compose(preset="smoke", overrides=["model.dropout=0"])))


def awake(graph):
    generator = torch.Generator().manual_seed(5)
    for name, parameter in graph.named_parameters():
        if "adaLN" in name:
            parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return graph


def batch_of(size: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    frames = torch.randint(0, 256, (size, 4, 32, 32, 3), generator=generator, dtype=torch.uint8)
    return frames, torch.randn(size, 3, 10, generator=generator), torch.randn(size, 4, 2, generator=generator)


DRAWS = Draws(0, 1, torch.device("cpu"))

# Which parts of the graph an objective trains, by the stop-gradients of its equation.
TRAINS = {
    "pred": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
    "sigreg": {"encoder", "projector"},
    "svic": {"encoder", "projector"},
    "psg": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
    "fra": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
    "casc": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
    "ld": {"encoder", "projector", "action_encoder", "predictor", "pred_proj"},
}


@pytest.mark.parametrize("name", TERMS)
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", TERMS)
def test_half_precision_inputs(graph, name: str, dtype: torch.dtype) -> None:
    seq = sequences(dtype)
    term, model = graph.terms[name], graph.world_model
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = term(seq, model, DRAWS.named(name))
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    loss.backward()
    for tensor in (seq.z_BTD, seq.z_predicted_BHD, seq.c_BHD):
        assert tensor.grad is None or tensor.grad.isfinite().all()


@pytest.mark.parametrize("value", [0.0, 1.0, 1e4])
def test_constant_latents_stay_finite(graph, value: float) -> None:
    for name in TERMS:
        seq = sequences(torch.float32)
        constant = replace(
            seq,
            z_BTD=torch.full_like(seq.z_BTD, value),
            z_future_BHD=torch.full_like(seq.z_future_BHD, value),
            z_predicted_BHD=torch.full_like(seq.z_predicted_BHD, value),
        )
        assert graph.terms[name](constant, graph.world_model, DRAWS.named(name)).isfinite()


def test_a_batch_of_one(graph) -> None:
    graph.train().zero_grad()
    losses = graph(*batch_of(1), DRAWS)
    assert set(losses.terms) == set(TERMS)
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
}


@pytest.mark.parametrize("name", TERMS)
def test_which_inputs_an_objective_moves(name: str) -> None:
    """Both sides of every stop-gradient: what is detached gets nothing, everything else gets something."""
    margin = ["casc.margin_scale=100", "casc.max_margin=100"]  # so large that CASC is never satisfied
    graph = awake(build(compose(preset="smoke", overrides=["model.dropout=0", *margin]))).train()
    seq = sequences(torch.float32, size=6)
    leaves = {
        "z": seq.z_BTD,
        "z_context": seq.z_context_BHD.detach().requires_grad_(),
        "z_future": seq.z_future_BHD.detach().requires_grad_(),
        "z_predicted": seq.z_predicted_BHD,
        "c": seq.c_BHD,
    }
    apart = replace(seq, z_context_BHD=leaves["z_context"], z_future_BHD=leaves["z_future"])
    loss = graph.terms[name](apart, graph.world_model, DRAWS.named(name))
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
    weights = {"pred": 1, "sigreg": 0.09, "svic": 0.03, "psg": 0.2, "fra": 0.08, "casc": 0.02, "ld": 0.01}
    assert losses.total.item() == pytest.approx(sum(weights[name] * loss.item() for name, loss in losses.terms.items()))


def test_counterfactual_pass_shares_dropout_masks(monkeypatch) -> None:
    """In a batch of one without action noise both branches see the same actions: only dropout could part them."""
    graph = build(compose(preset="smoke", overrides=["model.dropout=0.5", "casc.action_noise=0"])).train()
    for name, parameter in graph.named_parameters():
        if "adaLN" in name:
            parameter.data.normal_(0, 0.3)
    seq = graph.sequences(*batch_of(1), DRAWS)
    passes = []
    predict = graph.world_model.predict
    monkeypatch.setattr(graph.world_model, "predict", lambda *args: passes.append(predict(*args)) or passes[-1])
    graph.terms["casc"](seq, graph.world_model, DRAWS.named("casc"))
    assert len(passes) == 1
    assert torch.equal(passes[0], seq.z_predicted_BHD)
    other = predict(seq.z_context_BHD, seq.c_BHD, Draws(0, 2, torch.device("cpu")))
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


@pytest.mark.parametrize("step", [1, 50])
@pytest.mark.parametrize("removed", [name for name in TERMS if name != "pred"])
def test_removing_a_term_leaves_the_others_alone(removed: str, step: int) -> None:
    """Initial parameters, draws and losses of every other term: equal to the bit."""
    data, draws = batch_of(4), Draws(0, step, torch.device("cpu"))
    whole = build(compose(preset="smoke")).train()
    without = build(compose(preset="smoke", overrides=[f"{removed}.weight=0"])).train()
    assert removed not in without.terms
    reference = whole.state_dict()
    assert all(torch.equal(tensor, reference[name]) for name, tensor in without.state_dict().items())
    expected, found = whole(*data, draws).terms, without(*data, draws).terms
    assert removed not in found
    assert set(found) == set(expected) - {removed}
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_a_term_sees_other_draws_at_another_step() -> None:
    graph = build(compose(preset="smoke")).train()
    data = batch_of(4)
    first, second = (graph(*data, Draws(0, step, torch.device("cpu"))).terms for step in (1, 2))
    for name in ("sigreg", "svic", "casc", "ld"):
        assert not torch.equal(first[name], second[name]), name


def test_every_term_names_itself_and_its_settings() -> None:
    assert list(TERMS) == ["pred", "sigreg", "svic", "psg", "fra", "casc", "ld"]
    for term in TERMS.values():
        term(term.Settings(), Dims(latent=48, target=2))
