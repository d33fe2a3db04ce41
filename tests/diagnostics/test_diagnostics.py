"""Diagnoses as their user meets them: an exact model passes, broken ones are told, and everything repeats."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drifts import CLIP, SETTINGS, SPLIT, TASK, diagnose, draw
from exact_model import ExactTwoRooms, read_positions
from torch import nn

from phylatent.data.readers import Episodes
from phylatent.diagnostics.counterfactual import separation_ratio
from phylatent.diagnostics.diagnose import Diagnosis, diagnose_model, save
from phylatent.diagnostics.during_training import shrink
from phylatent.diagnostics.perturbations import perturb
from phylatent.diagnostics.sample import Sample
from phylatent.errors import UserError
from phylatent.schema import PERTURBATIONS, DiagnoseConfig


def ratios(found: Diagnosis) -> np.ndarray:
    """r_cf of every eligible branch, seed and horizon."""
    parts = []
    for seed in SETTINGS.seeds:
        d_true, d_pred, eligible = (found.arrays[f"seed{seed}/counterfactual/{x}"] for x in ("d_true", "d_pred", "eligible"))
        parts.append(separation_ratio(d_pred, d_true)[eligible])
    return np.concatenate(parts)


def test_the_exact_model_reads_positions_under_every_perturbation(free_space: Episodes) -> None:
    rows = np.arange(0, len(free_space.actions), 10)
    for kind in (None, *PERTURBATIONS):
        frames = free_space.frames(rows)
        seen = perturb(frames, kind, severity=1, seed=0, rows=rows) if kind else frames
        error = np.abs(read_positions(torch.from_numpy(seen)).numpy() - free_space.targets[rows]).max()
        assert error < (1.0 if kind else 0.1), kind


def test_an_exact_model_has_no_failures_and_predictions_line_up_with_the_simulator(sample: Sample) -> None:
    found = diagnose(ExactTwoRooms(), sample)
    assert found.record["health"]["status"] == "ok"
    assert found.rates == {"invariance": 0, "identifiability": 0, "counterfactual": 0}
    assert found.record["counterfactual"]["eligible"] >= 10
    assert found.record["counterfactual"]["by_horizon"]["1"]["eligible"] >= 5
    assert ratios(found) == pytest.approx(1, abs=0.05)


def test_a_model_whose_actions_come_a_block_late_is_told(sample: Sample) -> None:
    """The trap of the later release: the same assertion fails."""
    found = diagnose(ExactTwoRooms(shift=1), sample)
    assert np.abs(ratios(found) - 1).max() > 0.15
    assert found.record["counterfactual"]["by_horizon"]["1"]["rate"] == 1


class Changed(ExactTwoRooms):
    """An exact model with something done to its latents."""

    def __init__(self, change: Any, roll: Any = None) -> None:
        super().__init__()
        self.change, self.roll = change, roll

    def encode(self, frames: torch.Tensor) -> torch.Tensor:
        return self.change(super().encode(frames))

    def rollout(self, z: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
        return (self.roll or (lambda z: z))(super().rollout(z, blocks))


def test_a_model_that_ignores_actions_fails_every_branch(sample: Sample) -> None:
    assert diagnose(Changed(lambda z: z, torch.zeros_like), sample).rates["counterfactual"] == 1


def test_an_encoder_that_ignores_one_coordinate_folds_far_states(sample: Sample) -> None:
    found = diagnose(Changed(lambda z: z * torch.tensor([1.0, 0.0])), sample)
    assert found.record["identifiability"]["rate"] > 0
    arrays = {name: found.arrays[f"seed0/identifiability/{name}"] for name in ("d_phys", "d_lat", "i", "j")}
    x = sample.held_out.episodes.targets[:, 0]
    assert arrays["d_lat"] == pytest.approx(np.abs(x[arrays["i"]] - x[arrays["j"]]) / 50, abs=0.01)
    far = arrays["d_phys"] > np.percentile(arrays["d_phys"], 75)
    failed = far & (arrays["d_lat"] < np.percentile(arrays["d_lat"], 10))
    first = found.record["identifiability"]["per_seed"][0]
    assert (first["failures"], first["eligible"]) == (failed.sum(), far.sum())


@pytest.mark.parametrize(
    "model, status",
    [
        (Changed(lambda z: z * math.nan), "not finite"),
        (Changed(lambda z: z, lambda z: z / 0), "not finite"),
        (Changed(lambda z: z * 0 + 3), "constant"),
        (Changed(lambda z: z + torch.randn_like(z)), "not repeatable"),
        (Changed(lambda z: (z - z.mean(0)) * torch.arange(len(z))[:, None]), "not repeatable"),
        (Changed(lambda z: z, lambda z: z + 100 * torch.randn_like(z)), "not repeatable"),
    ],
    ids=["nan", "nan ahead", "constant", "noise", "depends on its batch", "noise ahead"],
)
def test_a_model_that_cannot_be_judged_has_no_rates(model: Any, status: str, sample: Sample, tmp_path: Path) -> None:
    found = diagnose(model, sample)
    assert found.record["health"]["status"] == status
    assert found.record["health"]["sentence"].endswith(("counted", "batch?", "rollout?"))
    saved = json.loads(save(found, tmp_path, {}).read_text())
    for section in ("invariance", "identifiability", "counterfactual"):
        assert saved[section]["rate"] is None
        assert saved[section]["interval"] is None
    beside = [*saved["invariance"]["by_kind"].values(), *saved["identifiability"]["thresholds"]]
    assert all(entry["rate"] is None for entry in beside)


class Hashed:
    """A latent that is noise, but the same noise for the same frame: it knows nothing of the state, and repeats."""

    def encode(self, frames: torch.Tensor) -> np.ndarray:
        return np.stack([np.random.default_rng(list(frame.numpy().tobytes()[::7])).normal(size=16) for frame in frames])

    def rollout(self, z: np.ndarray, blocks: torch.Tensor) -> np.ndarray:
        assert isinstance(z, np.ndarray)
        return np.repeat(z[:, None], blocks.shape[1], axis=1)


def test_noise_that_repeats_comes_out_at_chance(free_space: Episodes) -> None:
    settings = replace(SETTINGS, states=120, frames=150, pairs=5000, branches=2, seeds=(0,))
    found = diagnose(Hashed(), draw(free_space, settings), settings).record
    assert found["health"]["status"] == "ok"
    assert found["invariance"]["rate"] == pytest.approx(0.5, abs=0.15)
    assert found["identifiability"]["rate"] == pytest.approx(found["identifiability"]["chance"], abs=0.04)


def test_the_record_says_what_was_counted(sample: Sample, tmp_path: Path) -> None:
    found = diagnose(ExactTwoRooms(), sample)
    path = save(found, tmp_path / "diagnose", {"model": "exact"})
    record = json.loads(path.read_text())
    assert path.name == "paper.json"
    assert (record["protocol"], record["model"], record["seeds"]) == ("paper", "exact", [0, 1])
    assert record["split"] == {"name": "test", "episodes": 5, "note": None}
    assert record["sample"] == sample.fingerprint
    for section in ("invariance", "identifiability", "counterfactual"):
        assert {"rate", "spread", "interval", "failures", "eligible", "per_seed"} <= record[section].keys()
        assert [one["seed"] for one in record[section]["per_seed"]] == [0, 1]
    assert set(record["invariance"]["by_kind"]) == set(PERTURBATIONS)
    assert record["invariance"]["eligible"] == 80
    folding = record["identifiability"]
    assert [(entry["q_phys"], entry["q_lat"]) for entry in folding["thresholds"]] == [
        (q_phys, q_lat) for q_phys in (70, 75, 80) for q_lat in (5, 10, 15)
    ]
    assert [entry["eligible"] for entry in folding["thresholds"]][::3] == [300, 250, 200]
    assert folding["per_seed"][0]["tau_phys"] > 0
    assert set(record["counterfactual"]["by_horizon"]) == {"1", "3", "5"}
    assert (record["counterfactual"]["horizon"], record["counterfactual"]["pairs"]) == (5, 16)
    with np.load(path.with_suffix(".npz")) as arrays:
        assert arrays["seed1/invariance/d_nuis"].shape == (40,)
        assert np.bincount(arrays["seed0/invariance/kind"]).tolist() == [10] * 4
        assert arrays["seed0/identifiability/shown"].max() < len(arrays["seed0/identifiability/d_lat"])
        assert arrays["seed0/counterfactual/d_pred"].shape == (8, 3)


def test_perturbations_seen_in_training_are_rated_apart(sample: Sample) -> None:
    episodes = sample.held_out.episodes
    rest = {"task": TASK, "episodes": episodes, "split": SPLIT, "clip": CLIP, "settings": SETTINGS, "sample": sample}

    class Dazzled(ExactTwoRooms):
        """Brightness moves its latents."""

        def encode(self, frames: torch.Tensor) -> torch.Tensor:
            return super().encode(frames) + 0.2 * frames.float().mean(dim=(1, 2, 3))[:, None]

    model = Dazzled()
    record = diagnose_model(model, **rest, seen=("brightness", "colour")).record
    assert record["health"]["status"] == "ok", record["health"]
    found = record["invariance"]
    for form, kinds in {"seen": ["brightness", "colour"], "unseen": ["texture", "noise"]}.items():
        assert found[form]["kinds"] == kinds
        for count in ("failures", "eligible"):
            assert found[form][count] == sum(found["by_kind"][kind][count] for kind in kinds)
        assert found[form]["rate"] == pytest.approx(found[form]["failures"] / found[form]["eligible"])
    assert found["seen"]["failures"] > 0
    nothing = diagnose_model(model, **rest, seen=()).record["invariance"]
    assert (nothing["seen"]["rate"], nothing["seen"]["kinds"]) == (None, [])
    assert nothing["unseen"]["eligible"] == 4 * nothing["eligible"]
    assert "seen" not in diagnose_model(model, **rest).record["invariance"], "not known"


def test_a_module_is_judged_in_eval_mode_and_keeps_its_own(sample: Sample) -> None:
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropped, self.frozen = nn.Dropout(0.5), nn.BatchNorm1d(2)
            self.modes: set[bool] = set()

        def encode(self, frames: torch.Tensor) -> torch.Tensor:
            self.modes.add(self.dropped.training or torch.is_grad_enabled())
            return self.dropped(read_positions(frames))

        def rollout(self, z: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
            return z[:, None].expand(-1, blocks.shape[1], -1)

    module = Module().train()
    module.frozen.eval()
    assert diagnose(module, sample).record["health"]["status"] == "ok"
    assert module.modes == {False}
    assert module.training
    assert module.dropped.training
    assert not module.frozen.training


def test_ordering_finds_nothing_wrong_with_the_exact_model_but_with_a_random_one(free_space: Episodes, tmp_path: Path) -> None:
    settings = replace(SETTINGS, protocol="ordering", anchors=20, pool=80, references=4, branches=4, seeds=(0,))
    drawn = draw(free_space, settings)
    # Latents are L2-normalised: a position is seen as an angle only, so it is put on the sphere first.
    lift = Changed(lambda z: torch.cat([(z - torch.tensor([-1.04, 0.0])) * 3, torch.ones(len(z), 1)], 1))
    lift.rollout = (
        lambda z, blocks: torch.cat(  # type: ignore[method-assign]
            [ExactTwoRooms(std=50 / 3).rollout(z[:, :2], blocks), torch.ones(len(z), blocks.shape[1], 1)], 2
        )
    )
    exact = diagnose(lift, drawn, settings).record
    assert exact["distinguishability"]["rate"] < 0.02
    assert exact["counterfactual"]["rate"] == 0
    assert exact["counterfactual"]["eligible"] > 0
    assert len(exact["invariance"]["by_condition"]) == 9
    assert exact["invariance"]["eligible"] == sum(entry["eligible"] for entry in exact["invariance"]["by_condition"].values())
    hashed = diagnose(Hashed(), drawn, settings)
    assert hashed.record["distinguishability"]["rate"] == pytest.approx(0.5, abs=0.2)
    assert hashed.record["counterfactual"]["rate"] == 1  # nothing moves: every comparison is a tie
    assert save(hashed, tmp_path, {}).name == "ordering.json"


def test_a_latent_of_another_shape_is_told(sample: Sample) -> None:
    with pytest.raises(UserError, match=r"encode returned \[64\]; expected \[64, latent dimensions\]"):
        diagnose(Changed(lambda z: z[:, 0]), sample)
    with pytest.raises(UserError, match=r"rollout returned \[8, 2\]; expected \[8, 5, latent dimensions\]"):
        diagnose(Changed(lambda z: z, lambda z: z[:, 0]), sample)


def test_a_small_diagnosis_is_small() -> None:
    small = shrink(DiagnoseConfig(every=10, protocol="ordering", states=90))
    assert (small.states, small.frames, small.pairs, small.branches) == (90, 300, 5000, 50)
    assert (small.seeds, small.protocol, small.workers) == ((0,), "paper", 1)


def test_the_guides_model_is_diagnosed(
    tworooms_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "diagnose-any-model.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    monkeypatch.setenv("PHYLATENT_HOME", str(tmp_path))
    small = code.replace("out=out)", 'out=out, preset="smoke")')
    exec(small, known := {"data": tworooms_data, "out": tmp_path / "audited", "__name__": "guide"})
    assert "identifiability" in capsys.readouterr().out
    assert known["page"].name == "report.html"
    record = json.loads((tmp_path / "audited" / "diagnostics" / "paper.json").read_text())
    assert record["health"]["status"] == "ok"
    assert record["counterfactual"]["rate"] == 1
