"""Shares of the gradient, and weights that follow them: by hand, in the graph, on two processes, resumed."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from small_graphs import DRAWS, awake, batch_of
from training_runs import EVERY_TERM, copy_unfinished, smoke, table

from phylatent import build, compose
from phylatent.errors import UserError
from phylatent.objectives import OBJECTIVES
from phylatent.objectives.objective import Dims
from phylatent.randomness import Draws
from phylatent.runs import checkpoints
from phylatent.training.balance import DECAY, LIMIT, Balance
from phylatent.training.run import train
from phylatent.training.shares import Entries, gradient_norms, inert, shares

BALANCED = [*EVERY_TERM, "train.balance=shares"]


def test_two_terms_by_hand() -> None:
    """One pulls at z with (3, 3); the other at ẑ = 2 z with (1, 1), and so, through the "predictor", at z with (2, 2)."""
    z = torch.tensor([1.0, -1.0], requires_grad=True)
    zhat = 2 * z
    losses = {"first": 3 * z.sum(), "second": zhat.sum()}
    norms = gradient_norms(losses, dict.fromkeys(losses, Entries([z], [zhat])))
    torch.testing.assert_close(norms, math.sqrt(2) * torch.tensor([[3.0, 0.0], [2.0, 1.0]]))
    torch.testing.assert_close(shares(norms), torch.tensor([[0.6, 0.0], [0.4, 1.0]]))
    assert shares(torch.zeros(2, 2)).tolist() == [[0, 0], [0, 0]]


def test_inert_is_what_pulls_nowhere() -> None:
    found = {"share/z/a": 1e-4, "share/z/b": 1e-4, "share/zhat/a": 0.5, "share/zhat/b": 0.0, "pred": 1.0}
    assert inert(found) == ["b"]


def test_passes_of_its_own_count() -> None:
    """SVIC moves the latents of shifted frames, CASC a counterfactual prediction: neither touches Z or Ẑ themselves."""
    margin = ["casc.margin_scale=100", "casc.max_margin=100"]
    graph = awake(build(compose(preset="smoke", overrides=[*EVERY_TERM, *margin]))).train()
    running = {name: buffer.clone() for name, buffer in graph.named_buffers()}
    losses = graph(*batch_of(4), DRAWS)
    assert any(not torch.equal(buffer, running[name]) for name, buffer in graph.named_buffers())
    assert [len(losses.entries[name].z) for name in ("pred", "svic", "casc")] == [1, 2, 1]
    assert [len(losses.entries[name].zhat) for name in ("pred", "svic", "casc", "rollout")] == [1, 1, 2, 3]
    found = graph.shares(losses)
    assert sum(found[f"share/z/{name}"] for name in OBJECTIVES) == pytest.approx(1)
    assert sum(found[f"share/zhat/{name}"] for name in OBJECTIVES) == pytest.approx(1)
    assert found["share/z/svic"] > 0
    assert found["share/zhat/casc"] > 0
    for name in OBJECTIVES:
        assert (found[f"share/zhat/{name}"] > 0) == OBJECTIVES[name].of_prediction, name
    assert all(p.grad is None for p in graph.parameters())
    losses.total.backward()


def terms(**settings: dict[str, float]) -> dict[str, torch.nn.Module]:
    dims = Dims(latent=48, target=2, action=10)
    return {name: OBJECTIVES[name](OBJECTIVES[name].Settings(**given), dims) for name, given in settings.items()}


def test_balanced_weights_by_hand() -> None:
    balance = Balance(terms(pred={"stop_gradient": True}, sigreg={"share": 0.5}, psg={"weight": 1.0, "share": 0.5}))
    # prediction is measured at Ẑ (2), SIGReg at Z (4), PSG at both: √(3² + 4²) = 5
    balance.observe(torch.tensor([[9.0, 2.0], [4.0, 0.0], [3.0, 4.0]]))
    assert balance.weight_N.tolist() == pytest.approx([1, 0.5 * 2 / 4, 0.5 * 2 / 5])
    balance.observe(torch.tensor([[9.0, 2.0], [8.0, 0.0], [3.0, 4.0]]))
    mean = (DECAY * (1 - DECAY) * 4 + (1 - DECAY) * 8) / (1 - DECAY**2)
    assert balance.weight_N.tolist() == pytest.approx([1, 0.5 * 2 / mean, 0.5 * 2 / 5], rel=1e-5)


def test_a_term_that_does_not_pull_does_not_blow_up() -> None:
    balance = Balance(terms(pred={"stop_gradient": True}, casc={"weight": 0.02, "share": 0.1}))
    still, pulling = torch.tensor([[0.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 2.0], [0.0, 4.0]])
    balance.observe(still)
    assert balance.weight_N.tolist() == pytest.approx([1, 0.02])
    balance.observe(pulling)
    assert balance.weight_N.tolist() == pytest.approx([1, 0.1 * 2 / 4])
    for _ in range(500):
        balance.observe(still)
    balance.observe(torch.tensor([[0.0, 2.0], [0.0, math.nan]]))
    assert balance.weight_N.tolist() == pytest.approx([1, 0.1 * 2 / 4])
    hardly = Balance(terms(pred={"stop_gradient": True}, casc={"weight": 0.02, "share": 0.1}))
    hardly.observe(torch.tensor([[0.0, 2.0], [0.0, 1e-12]]))
    assert hardly.weight_N.tolist() == pytest.approx([1, 0.02 * LIMIT])


@pytest.mark.parametrize(
    "overrides, message",
    [
        (["svic.share=0"], r"svic\.share is 0.*must be above 0.*take it out of the list"),
        (["psg.share=-1"], r"psg\.share is -1"),
        (["objectives=[sigreg,psg]"], "against pred, which is not among the objectives"),
    ],
)
def test_what_shares_refuse(overrides: list[str], message: str) -> None:
    config = compose(preset="smoke", overrides=["train.balance=shares", *overrides])
    with pytest.raises(UserError, match=message):
        build(config)
    build(compose(preset="smoke", overrides=overrides))


def test_unknown_balance() -> None:
    with pytest.raises(UserError, match=r"train\.balance is 'even'; it must be one of weights, shares"):
        compose(overrides=["train.balance=even"])


def test_every_term_gets_its_share() -> None:
    graph = awake(build(compose(preset="smoke", overrides=[*BALANCED, "sigreg.share=0.7", "svic.weight=1"]))).train()
    before = graph(*batch_of(6), DRAWS)
    assert {name: float(weight) for name, weight in graph.weights.items()} == pytest.approx(graph.configured)
    losses = graph(*batch_of(6), DRAWS, True)
    assert all(torch.equal(loss, losses.terms[name]) for name, loss in before.terms.items())
    norms = gradient_norms(losses.terms, losses.entries)
    pulls = {
        name: float(graph.weights[name] * torch.where(places, norm, 0).norm())
        for name, norm, places in zip(graph.terms, norms, graph.balance.places_N2, strict=True)
    }
    for name, term in graph.terms.items():
        assert pulls[name] == pytest.approx(term.settings.share * pulls["pred"], rel=1e-4), name
    weighted = sum(float(graph.weights[name]) * loss.item() for name, loss in losses.terms.items())
    assert losses.total.item() == pytest.approx(weighted, rel=1e-5)
    losses.total.backward()


def measured(rank: int, world: int) -> dict[str, float]:
    """Shares and balanced weights after two measurements, of the global batch."""
    graph = awake(build(compose(preset="smoke", overrides=BALANCED))).train()
    for step in (3, 4):
        data = batch_of(16, seed=step)
        data[2][3, 1] = torch.nan  # one process leaves a row out, the other none
        own = [part[rank * 16 // world : (rank + 1) * 16 // world] for part in data]
        losses = graph(*own, Draws(0, step, torch.device("cpu")), True)
    return graph.shares(losses) | {f"weight/{name}": float(weight) for name, weight in graph.weights.items()}


def worker(rank: int, place: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place / 'rendezvous'}", rank=rank, world_size=2)
    torch.save(measured(rank, 2), place / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_measure_the_same(tmp_path: Path) -> None:
    mp.spawn(worker, args=(tmp_path,), nprocs=2)
    expected = measured(0, 1)
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    assert found[0] == found[1]
    # SVIC compares latents that are all but equal: its gradient is what a cancellation in float32 leaves
    assert found[0] == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.fixture(scope="module")
def balanced(tworooms_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 steps, checkpoints at 15 and 20: 15 lies between two measurements."""
    out = tmp_path_factory.mktemp("runs") / "balanced"
    train(smoke(tworooms_data, "train.balance=shares", "train.balance_every=4"), out=out)
    return out


def test_what_a_balanced_run_logs(balanced: Path) -> None:
    rows = table(balanced / "train.csv")
    weights = {name for name in rows[0] if name.startswith("weight/")}
    assert weights == {f"weight/{name}" for name in compose().objectives}
    assert {float(row["weight/pred"]) for row in rows} == {1.0}
    changes = [row["step"] for before, row in itertools.pairwise(rows) if before["weight/psg"] != row["weight/psg"]]
    assert changes == ["5", "9", "13", "17"]
    assert float(rows[0]["weight/sigreg"]) != pytest.approx(0.09), "the first step is balanced already"
    last = table(balanced / "validation.csv")[-1]
    weighted = sum(float(rows[-1][f"weight/{name}"]) * float(last[name]) for name in compose().objectives)
    assert float(last["loss"]) == pytest.approx(weighted, rel=1e-4)


def test_a_balanced_run_resumes_to_the_bit(balanced: Path, tworooms_data: Path, tmp_path: Path) -> None:
    again = copy_unfinished(balanced, tmp_path / "again")
    checkpoints(again)[-1].unlink()
    settings = ["train.balance=shares", "train.balance_every=4"]
    train(smoke(tworooms_data, *settings), out=again, resume=True)
    for mine, theirs in zip(checkpoints(again), checkpoints(balanced), strict=True):
        one, other = (torch.load(path, weights_only=True)["state_dict"] for path in (mine, theirs))
        assert {"graph.balance.mean_N", "graph.balance.count_N", "graph.balance.weight_N"} <= one.keys()
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert table(again / "validation.csv") == table(balanced / "validation.csv")
    for name in ("loss", "weight/psg"):
        assert [row[name] for row in table(again / "train.csv")] == [row[name] for row in table(balanced / "train.csv")]


def test_measuring_changes_nothing(tworooms_data: Path, tmp_path: Path) -> None:
    """Validated twice as often, a run ends with the same bits: in the table there are shares, in the weights no trace."""
    for name, every in (("often", 2), ("seldom", 6)):
        train(smoke(tworooms_data, "train.steps=6", f"train.validate_every={every}"), out=tmp_path / name)
    often, seldom = (torch.load(checkpoints(tmp_path / name)[-1], weights_only=True) for name in ("often", "seldom"))
    assert all(torch.equal(tensor, seldom["state_dict"][name]) for name, tensor in often["state_dict"].items())
    assert not any("balance" in name for name in often["state_dict"])
    assert not any(name.startswith("weight/") for name in table(tmp_path / "often" / "train.csv")[0])
    for row in table(tmp_path / "often" / "validation.csv"):
        for place in ("z", "zhat"):
            assert sum(float(row[f"share/{place}/{name}"]) for name in compose().objectives) == pytest.approx(1)
