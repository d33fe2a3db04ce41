"""The README's picture: where a linear read-out of the latent puts the agent, on held-out frames.

    python benchmarks/readout_picture.py data/tworooms-laptop.h5 docs/readout.png RUN [RUN …]

Each point is one held-out frame at the position read off its latent, coloured by the true position: a latent that tells states
apart shows the two rooms with their colours in order.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import numpy as np
import torch

from phylatent import WorldModel
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import Split, episode_rows
from phylatent.tasks import get_task

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FRAMES = 2000


def latents(model: WorldModel, episodes: Episodes, ids: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(0).permutation(episode_rows(episodes, ids))[:FRAMES]
    with torch.no_grad():
        z = torch.cat([model.encode(episodes.frames(part)) for part in np.array_split(rows, 16)])
    return z.double().numpy(), episodes.targets[rows].astype(float)


def main(data: Path, out: Path, runs: list[Path]) -> None:
    figure, panels = plt.subplots(1, len(runs), figsize=(4.6 * len(runs), 5.2), layout="constrained")
    for panel, run in zip(np.atleast_1d(panels), runs, strict=True):
        model = WorldModel.from_pretrained(run / "model")
        assert model.config.task is not None
        assert model.config.split is not None
        episodes = open_episodes(data, get_task(model.config.task))
        split = Split.from_dict(model.config.split)
        z, s = latents(model, episodes, split.train)
        weights, *_ = np.linalg.lstsq(np.c_[z, np.ones(len(z))], s, rcond=None)
        z, s = latents(model, episodes, split.held_out)
        read = np.c_[z, np.ones(len(z))] @ weights
        r2 = 1 - ((s - read) ** 2).sum(0) / ((s - s.mean(0)) ** 2).sum(0)
        x, y = (s / 224).T
        panel.scatter(*read.T, s=7, c=np.c_[x, 0.25 + 0.5 * y, 1 - x])
        panel.set(xlim=(0, 224), ylim=(224, 0), aspect="equal", xticks=[], yticks=[])
        panel.set_title(f"{model.config.variant}\nheld-out R²: x {r2[0]:.3f}, y {r2[1]:.3f}")
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(argument) for argument in sys.argv[3:]])
