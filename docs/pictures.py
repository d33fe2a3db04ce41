"""The pictures of docs/collapses.md, from real runs: `python docs/pictures.py HOME`, which holds `runs/` and `data/`.

The runs are those of docs/results.md: PushT after the laptop preset, Reacher after 300 steps of the ablations.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from phylatent.data.readers import open_episodes
from phylatent.diagnostics.counterfactual import KEPT
from phylatent.diagnostics.identifiability import Q_LAT, Q_PHYS, collisions
from phylatent.diagnostics.perturbations import perturb
from phylatent.reading import read_arrays
from phylatent.schema import PERTURBATIONS
from phylatent.tasks import get_task

FOLDER = Path(__file__).parent / "pictures"
BASELINE, OURS, FAILED = "#0072B2", "#009E73", "#B5301B"
NAMES = {"lewm": BASELINE, "phylatent-plus": OURS}


@dataclass(frozen=True)
class Measured:
    """What a diagnosis kept of every sample of its first seed."""

    arrays: dict[str, np.ndarray]

    def __call__(self, diagnostic: str, name: str) -> np.ndarray:
        return self.arrays[f"seed0/{diagnostic}/{name}"]


def measured(home: Path, run: str) -> Measured:
    return Measured(read_arrays(home / "runs" / run / "diagnostics" / "paper.npz", again="diagnose it again"))


def both(home: Path, pattern: str) -> dict[str, Measured]:
    return {name: measured(home, pattern.format(name)) for name in NAMES}


def still(axes: Any, frame: np.ndarray, above: str, below: str = "") -> None:
    axes.imshow(frame, interpolation="nearest")
    axes.set_title(above, fontsize=10)
    axes.set_xlabel(below, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])


def plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Any, name: str) -> Path:
    path = FOLDER / f"{name}.png"
    figure.savefig(path, dpi=110, facecolor="white", metadata={"Software": None}, pil_kwargs={"optimize": True})
    plt.close(figure)
    return path


def invariance(home: Path) -> Path:
    """One state under every change of appearance, and all states: how far the latent moves, a real block of actions being 1."""
    task = get_task("pusht")
    runs = both(home, "pusht-{}-seed0")
    ratio = {name: run("invariance", "d_nuis_by_kind") / run("invariance", "d_state")[:, None] for name, run in runs.items()}
    typical = np.abs(np.log(ratio["lewm"] / np.median(ratio["lewm"], axis=0))).sum(axis=1).argmin()
    row = runs["lewm"]("invariance", "row")[typical]
    assert row == runs["phylatent-plus"]("invariance", "row")[typical], "both runs were diagnosed on one sample"
    frames = open_episodes(home / "data" / "pusht-laptop.h5", task).frames
    at = np.array([row])

    figure = plt.figure(figsize=(11, 5.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.1))
    shots = top.subplots(1, 6)
    still(shots[0], frames(at)[0], "a frame")
    still(shots[1], frames(at + 5)[0], "one block later", "1, by definition")
    for axes, kind, column in zip(shots[2:], PERTURBATIONS, range(len(PERTURBATIONS)), strict=True):
        moved = "\n".join(f"{name} {values[typical, column]:.2f}" for name, values in ratio.items())
        still(axes, perturb(frames(at), kind, severity=1, seed=0, rows=at, strengths=task.strengths())[0], kind, moved)
    panels = bottom.subplots(1, 4, sharey=True)
    bins = np.geomspace(0.01, 30, 40)
    for axes, kind, column in zip(panels, PERTURBATIONS, range(len(PERTURBATIONS)), strict=True):
        for name, colour in NAMES.items():
            values = np.clip(ratio[name][:, column], bins[0], bins[-1])
            share = (ratio[name][:, column] > 1).mean()
            axes.hist(values, bins, color=colour, alpha=0.65, label=f"{name}: {share:.1%} fail")
        axes.axvline(1, ymax=0.8, color=FAILED, linewidth=1.5)
        axes.set(xscale="log", title=kind, xlabel="latent moved, a real block = 1")
        axes.legend(fontsize=8, loc="upper left", frameon=False)
        axes.set_ylim(0, 240)
        plain(axes)
    panels[0].set_ylabel("states")
    return save(figure, "invariance")


def identifiability(home: Path) -> Path:
    """Two states that one model takes for the same, and all pairs: physical against latent distance."""
    runs = both(home, "pusht-{}-seed0")
    distances = {name: (run("identifiability", "d_phys"), run("identifiability", "d_lat")) for name, run in runs.items()}
    found = {name: collisions(*pair, q_phys=Q_PHYS, q_lat=Q_LAT) for name, pair in distances.items()}
    i, j = (runs["lewm"]("identifiability", name) for name in "ij")
    rank = {name: np.argsort(np.argsort(lat)) / len(lat) for name, (_, lat) in distances.items()}
    worst = np.where(found["lewm"].failed, rank["phylatent-plus"] - rank["lewm"], -1).argmax()
    frames = open_episodes(home / "data" / "pusht-laptop.h5", get_task("pusht")).frames

    figure = plt.figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.9))
    shots = left.subplots(1, 2)
    for axes, row, letter in zip(shots, (i[worst], j[worst]), "AB", strict=True):
        still(axes, frames(np.array([row]))[0], f"state {letter}")
    said = "\n".join(f"{name}: nearer than {1 - values[worst]:.1%} of all pairs" for name, values in rank.items())
    left.supxlabel(said, fontsize=10)
    panels = right.subplots(1, 2, sharey=True)
    shown = runs["lewm"]("identifiability", "shown")[:6000]
    for axes, (name, (phys, lat)) in zip(panels, distances.items(), strict=True):
        failed, scale = found[name].failed, np.median(lat)
        rest = shown[~failed[shown]]
        axes.scatter(phys[rest], lat[rest] / scale, s=2, color=NAMES[name], alpha=0.25, linewidths=0, rasterized=True)
        bad = shown[failed[shown]]
        axes.scatter(phys[bad], lat[bad] / scale, s=9, color=FAILED, linewidths=0, rasterized=True)
        axes.axvline(found[name].tau_phys, color="black", linewidth=1)
        axes.axhline(found[name].tau_lat / scale, color="black", linewidth=1)
        rate = failed.sum() / found[name].far.sum()
        axes.set(title=f"{name}: {rate:.1%} of far pairs fail", xlabel="physical distance", ylim=(0, 2.4))
        plain(axes)
    panels[0].set_ylabel("latent distance, median = 1")
    return save(figure, "identifiability")


def counterfactual(home: Path) -> Path:
    """Pairs of action sequences from one state: how far apart they lead, and how far apart they are predicted to lead."""
    runs = both(home, "reacher-{}-ablation-seed0")
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
    for axes, (name, run) in zip(panels, runs.items(), strict=True):
        eligible = run("counterfactual", "eligible")[:, -1].astype(bool)
        true, pred = (run("counterfactual", key)[eligible, -1] for key in ("d_true", "d_pred"))
        scale, failed = np.median(true), pred < KEPT * true
        axes.fill_between([0, 3], [0, 3 * KEPT], color=FAILED, alpha=0.12, linewidth=0)
        axes.plot([0, 3], [0, 3], color="black", linewidth=1, linestyle="--")
        for chosen, colour in ((~failed, NAMES[name]), (failed, FAILED)):
            axes.scatter(
                true[chosen] / scale, pred[chosen] / scale, s=7, color=colour, alpha=0.6, linewidths=0, rasterized=True
            )
        axes.set(xlim=(0, 1.8), ylim=(0, 1.6), title=f"{name}: {failed.mean():.1%} fail")
        axes.set_xlabel("how far apart two action sequences lead, median = 1")
        plain(axes)
    panels[0].set_ylabel("how far apart they are predicted to lead")
    panels[0].text(1.76, 0.06, "less than half is predicted", ha="right", color=FAILED, fontsize=9)
    panels[1].text(1.22, 1.45, "exact prediction", fontsize=9, ha="right")
    return save(figure, "counterfactual")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/pictures.py HOME")
    FOLDER.mkdir(exist_ok=True)
    for draw in (invariance, identifiability, counterfactual):
        path = draw(Path(sys.argv[1]))
        print(f"{path} {path.stat().st_size / 1000:.0f} kB")
