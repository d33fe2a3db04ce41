"""Counterfactual dynamics collapse: two actions lead apart, but their predictions do not."""

# M branches (two windows from one start), b windows of a start, k blocks, A raw action values of a block, K horizons, D latent

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from phylatent.diagnostics.diagnostic import Breakdown, Diagnostic, Points, ScatterAxes, shortfall
from phylatent.diagnostics.findings import Findings
from phylatent.diagnostics.rates import Measured, count
from phylatent.errors import UserError
from phylatent.schema import DiagnoseConfig

if TYPE_CHECKING:
    from phylatent.diagnostics.branches import Branches
    from phylatent.diagnostics.held_out import HeldOutRows
    from phylatent.diagnostics.latents import JudgedModel
    from phylatent.diagnostics.material import Material

EPSILON = 1e-8
KEPT = 0.5
"""A prediction must keep this share of the real separation."""
APART = 0.1
"""Eligible: real ends that differ by this much, in z-scored physical distance."""


def separation(ends_MbKD: np.ndarray) -> np.ndarray:
    """d_true and d_pred of eq:counterfactual_diagnostic: ‖z⁽ⁱ⁾ − z⁽ʲ⁾‖₂ of the two branches, float64 [M, K]."""
    assert ends_MbKD.shape[1] == 2, "two branches"
    return np.linalg.norm(ends_MbKD[:, 0].astype(np.float64) - ends_MbKD[:, 1].astype(np.float64), axis=-1)


def separation_ratio(d_pred: np.ndarray, d_true: np.ndarray, *, epsilon: float = EPSILON) -> np.ndarray:
    """r_cf of eq:counterfactual_diagnostic."""
    return d_pred / (d_true + epsilon)


def counterfactual_failures(d_pred: np.ndarray, d_true: np.ndarray, *, kept: float = KEPT) -> np.ndarray:
    """C_cf of eq:counterfactual_diagnostic: r_cf < 0.5."""
    return separation_ratio(d_pred, d_true) < kept


def draw_starts(held_out: HeldOutRows, rng: np.random.Generator, *, count: int) -> np.ndarray:
    return rng.choice(held_out.rows, min(count, len(held_out.rows)), replace=False)


def draw_windows(held_out: HeldOutRows, starts_M: np.ndarray, rng: np.random.Generator, *, blocks: int) -> np.ndarray:
    """float32 [M, 2, k, A]: for each start two windows of raw actions that were taken in two other held-out episodes."""
    length = blocks * held_out.block_rows
    places = held_out.episodes.lengths[list(held_out.ids)] - length  # an episode's last row has no action
    usable = np.flatnonzero(places > 0)
    homes = held_out.episode_of(starts_M)
    if len(usable) == 0 or (len(usable) == 1 and bool((homes == usable[0]).any())):
        raise UserError(
            f"of {len(held_out.ids)} held-out episodes {len(usable)} are long enough for {blocks} blocks of actions, and "
            "branches take their actions from other episodes than their start's; collect more or longer ones, or raise "
            "split.validation and split.test"
        )
    windows = [_two_windows(held_out, usable[usable != home], places, length, rng) for home in homes]
    return np.stack(windows).reshape(len(starts_M), 2, blocks, -1).astype(np.float32)


def _two_windows(
    held_out: HeldOutRows, others: np.ndarray, places: np.ndarray, length: int, rng: np.random.Generator
) -> np.ndarray:
    """From two episodes, or two different windows of the only one there is."""
    if len(others) > 1:
        chosen = rng.choice(others, 2, replace=False)
        begins = [int(rng.integers(places[episode])) for episode in chosen]
    else:
        chosen = np.repeat(others, 2)
        begins = rng.choice(places[others[0]], 2, replace=bool(places[others[0]] < 2)).tolist()
    offsets = held_out.episodes.offsets[np.array(held_out.ids)[chosen]]
    return np.stack([held_out.episodes.actions[row : row + length] for row in offsets + begins])


def _blocks(horizon: str) -> str:
    return f"{horizon} block{'s' if int(horizon) > 1 else ''}"


class Counterfactual(Diagnostic["Branches"]):
    name = "counterfactual"
    title = "Counterfactual dynamics"
    meaning = "Share of action pairs with different outcomes that are predicted less than half as far apart."
    failure = "different actions, different ends, same prediction"
    counted = "pairs"
    breakdown = Breakdown("by_horizon", "Counterfactual, by horizon", kind="line", label=_blocks)
    axes = ScatterAxes(
        x="d true",
        y="d pred",
        z="r cf",
        colour="#E3A008",
        limits=(0.0, 4.0),
        caption="d_true and d_pred: distance between the outcomes of two action sequences, real and predicted; "
        "r_cf = d_pred / d_true, a failure below 0.5.",
    )

    def draw(self, material: Material, seed: int) -> Branches:
        held_out, settings = material.held_out, material.settings
        starts = draw_starts(held_out, material.rng(seed, "starts"), count=settings.branches)
        windows = draw_windows(held_out, starts, material.rng(seed, "windows"), blocks=settings.horizons[-1])
        return material.execute(starts, windows, seed)

    def identity(self, sample: Branches) -> tuple[np.ndarray, ...]:
        return sample.rows, sample.windows

    def notes(self, sample: Branches, material: Material) -> list[str]:
        notes = shortfall("starts of branches", len(sample.rows), material.settings.branches)
        if len(material.held_out.ids) < 3:
            notes.append("both windows of a branch come from one episode: fewer than three are held out")
        return notes

    def measure(self, model: JudgedModel, sample: Branches, material: Material, seed: int) -> Measured:
        """Predictions start from the encoded recorded frame and take the very actions that were executed from its state."""
        held_out, horizons = material.held_out, material.settings.horizons
        ends = model.encode(sample.frames, np.arange(len(sample.packed))).reshape(*sample.targets.shape[:3], -1)
        predicted = model.predict(held_out.episodes.frames, sample.rows, sample.windows)[:, :, np.array(horizons) - 1]
        d_true, d_pred, d_phys = separation(ends), separation(predicted), separation(material.coordinates(sample.targets))
        failed, eligible = counterfactual_failures(d_pred, d_true), d_phys >= APART
        episode = held_out.episode_of(sample.rows)
        counts = {
            str(horizon): count(failed[:, column], eligible[:, column], episode, episodes=len(held_out.ids))
            for column, horizon in enumerate(horizons)
        }
        arrays = {"d_true": d_true, "d_pred": d_pred, "d_phys": d_phys}
        return Measured(
            headline=counts[str(horizons[-1])],
            beside=counts,
            arrays={name: values.astype(np.float32) for name, values in arrays.items()}
            | {"eligible": eligible, "row": sample.rows},
        )

    def beside_rate(self, found: Findings[Branches], settings: DiagnoseConfig) -> dict[str, Any]:
        return {
            "pairs": sum(len(sample.rows) for sample in found.samples),
            "horizon": settings.horizons[-1],
            "by_horizon": found.rates([str(horizon) for horizon in settings.horizons]),
        }

    def points(self, arrays: Mapping[str, np.ndarray], section: Mapping[str, Any]) -> Points | None:
        if not {"d_true", "d_pred", "eligible"} <= arrays.keys():
            return None
        true, pred, eligible = (arrays[name][:, -1] for name in ("d_true", "d_pred", "eligible"))
        true, pred = true[eligible.astype(bool)], pred[eligible.astype(bool)]
        ratio, failed = separation_ratio(pred, true), counterfactual_failures(pred, true)
        return Points(true, pred, ratio, failed, (("z", KEPT),), len(true))


DIAGNOSTIC = Counterfactual()
