"""Several processes are one batch: 2 × 16 gives the losses and gradients of 1 × 32."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from training_runs import EVERY_TERM

from phylatent import build, compose, distributed
from phylatent.objectives import OBJECTIVES
from phylatent.randomness import Draws

BATCH = 32


def make_graph(dropout: float, encoder: str = "vit") -> torch.nn.Module:
    """Away from initialisation, where AdaLN-zero would let the counterfactual branches coincide."""
    graph = build(
        compose(preset="smoke", overrides=[*EVERY_TERM, f"model.dropout={dropout}", f"model.encoder={encoder}"])
    ).train()
    generator = torch.Generator().manual_seed(1)
    for name, parameter in graph.named_parameters():
        if "adaLN" in name:
            parameter.data.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return graph


def make_batch() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(2)
    frames = torch.randint(0, 256, (BATCH, 4, 32, 32, 3), generator=generator, dtype=torch.uint8)
    targets = torch.randn(BATCH, 4, 2, generator=generator)
    targets[3, 1] = torch.nan  # one process leaves a row out, the other none
    return frames, torch.randn(BATCH, 3, 10, generator=generator), targets


def outcome(graph: torch.nn.Module, losses) -> dict[str, torch.Tensor]:
    losses.total.backward()
    terms = {f"loss/{name}": distributed.mean_across(value) for name, value in losses.terms.items()}
    gradients = {f"grad/{name}": p.grad for name, p in graph.named_parameters()}
    running = {f"buffer/{name}": b.clone() for name, b in graph.named_buffers() if "running" in name}
    return terms | gradients | running


def worker(rank: int, world: int, rendezvous: str, out: str, dropout: float, encoder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    graph = make_graph(dropout, encoder)
    share = BATCH // world
    own = [part[rank * share : (rank + 1) * share] for part in make_batch()]
    wrapped = DistributedDataParallel(graph)
    result = outcome(graph, wrapped(*own, Draws(0, 7, torch.device("cpu"))))
    if rank == 0:
        torch.save(result, out)
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("dropout, encoder", [(0.0, "vit"), (0.1, "vit"), (0.1, "conv"), (0.1, "hybrid")])
def test_two_processes_are_one_batch(tmp_path: Path, dropout: float, encoder: str) -> None:
    mp.spawn(worker, args=(2, str(tmp_path / "rendezvous"), str(tmp_path / "out.pt"), dropout, encoder), nprocs=2)
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    graph = make_graph(dropout, encoder)
    expected = outcome(graph, graph(*make_batch(), Draws(0, 7, torch.device("cpu"))))

    assert {name for name in found if name.startswith("loss/")} == {f"loss/{name}" for name in OBJECTIVES}
    assert found.keys() == expected.keys()
    scale = max(value.abs().max() for name, value in expected.items() if name.startswith("grad/"))
    for name, value in expected.items():
        # A bias before a BatchNorm has gradient 0: what is left of it is rounding, measured against the largest gradient.
        floor = 1e-6 * scale if name.startswith("grad/") else 0
        error = (found[name] - value).abs().max()
        # Untrained latents are all but equal, and what tells them apart is rounded: a wrong reduction is off by far more.
        assert error <= 5e-4 * value.abs().max() + floor, f"{name}: off by {error:.2e} of {value.abs().max():.2e}"
    assert expected["loss/casc"] > 0


def test_a_local_sigreg_would_be_wrong() -> None:
    """The mean of two local statistics is not the statistic of both: what the peers compute is another loss."""
    from phylatent.objectives.sigreg import sigreg, unit_directions

    generator = torch.Generator().manual_seed(0)
    z, directions = torch.randn(32, 4, 8, generator=generator), unit_directions(torch.randn(8, 64, generator=generator))
    whole = sigreg(z, directions)
    local = (sigreg(z[:16], directions) + sigreg(z[16:], directions)) / 2
    assert abs(local - whole) > 0.01 * whole


def losses_of(directory: Path, file: str) -> list[dict[str, float]]:
    with (directory / file).open() as handle:
        return [{k: float(v) for k, v in row.items() if k != "clips_per_second"} for row in csv.DictReader(handle)]


@pytest.mark.slow
def test_train_on_two_processes_logs_the_same_losses(tworooms_data: Path, tmp_path: Path) -> None:
    for devices in (1, 2):
        command = [
            *(sys.executable, "-m", "phylatent", "train", "preset=smoke", f"data={tworooms_data}", "train.steps=10"),
            # a number of frames that two processes can share, so that both runs validate on the same ones
            *(f"devices={devices}", f"out={tmp_path / str(devices)}", "device=cpu", "train.readout_frames=16"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
    one, two = losses_of(tmp_path / "1", "train.csv"), losses_of(tmp_path / "2", "train.csv")
    assert len(one) == len(two) == 10
    validated = losses_of(tmp_path / "1", "validation.csv"), losses_of(tmp_path / "2", "validation.csv")
    assert len(validated[0]) == len(validated[1]) == 1
    assert "effective_rank" in validated[0][0]
    # Validation sees the weights after one more step, and Adam divides rounding by rounding where a gradient is 0; the read-out
    # of an untrained latent inverts a nearly singular matrix on top of that.
    tolerances = [*([1e-4] * len(one)), 5e-3]
    for tolerance, a, b in zip(tolerances, [*one, *validated[0]], [*two, *validated[1]], strict=True):
        assert a.keys() == b.keys() >= {"loss", "pred", "sigreg", "svic", "psg", "fra", "casc", "ld"}
        for name, value in a.items():
            relative = 2e-2 if name.startswith(("r2/", "error/")) else tolerance
            # SVIC compares latents that are all but equal: what is left after the cancellation is rounded in float32.
            assert b[name] == pytest.approx(value, rel=relative, abs=3e-7), f"{name} at step {a['step']:.0f}"
