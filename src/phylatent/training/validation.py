"""What is measured while it trains, on validation episodes: losses, the latents' effective rank, a linear read-out of the
physical state, and each objective's share of the gradient.

A falling rank signals collapse; a read-out that is good on training episodes only signals overfitting.
"""

# N frames, D latent

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from phylatent import distributed
from phylatent.data.readers import Episodes
from phylatent.data.stats import Split, episode_rows
from phylatent.data.windows import Windows, validation_batches
from phylatent.models.blocks import batch_statistics_only
from phylatent.randomness import Draws, derive_seed
from phylatent.schema import Config, PhysicalTarget, TaskSpec
from phylatent.training.graph import TrainingGraph
from phylatent.training.readout import Rows, readout

FRAMES_AT_ONCE = 128


def effective_rank(z_ND: Tensor) -> float:
    """exp of the entropy of the centred latents' normalised singular values: 1 on a line, D for an even cloud."""
    z_ND = z_ND.cpu().double()  # MPS has no float64
    values = torch.linalg.svdvals(z_ND - z_ND.mean(0))
    if values.sum() <= 0:
        return 0.0
    share = values / values.sum()
    return float(torch.exp(-(share * share.clamp(min=1e-30).log()).sum()))


@dataclass(frozen=True)
class Validator:
    """Fixed validation windows and fixed rows of both sides: the same at every validation of a run.

    Batches are the global ones; each process takes its own slice.
    """

    episodes: Episodes
    windows: Windows
    batches: Sequence[np.ndarray]
    fit_rows: np.ndarray
    judged_rows: np.ndarray
    target: PhysicalTarget

    @torch.no_grad()
    def __call__(self, graph: TrainingGraph, seed: int) -> dict[str, float]:
        training = graph.training
        graph.eval()
        try:
            results = self._losses(graph, seed)
            fit = self._latents(graph, self.fit_rows)
            judged = self._latents(graph, self.judged_rows)
            results |= self._shares(graph.train(), seed)
        finally:
            graph.train(training)
        results["effective_rank"] = effective_rank(judged[0])
        return results | readout(fit, judged, self.target)

    def _losses(self, graph: TrainingGraph, seed: int) -> dict[str, float]:
        device = graph.target_mean.device
        sums: dict[str, float] = {}
        for index, chosen in enumerate(self.batches):
            batch = self.windows.__getitems__(list(_own(chosen)))
            losses = graph(*(part.to(device) for part in batch), Draws(seed, f"validation/{index}", device))
            for name, value in losses.over_processes().items():
                sums[name] = sums.get(name, 0.0) + value / len(self.batches)
        return sums

    @torch.enable_grad()
    def _shares(self, graph: TrainingGraph, seed: int) -> dict[str, float]:
        """Of the gradient on the first batch, as a training step sees it: batch statistics, dropout. It changes nothing."""
        device = graph.target_mean.device
        draws = Draws(seed, "validation/shares", device)
        frames, actions, targets = self.windows.__getitems__(list(_own(self.batches[0])))
        with batch_statistics_only(graph):
            seq = graph.sequences(frames, actions.to(device), targets.to(device), draws)
            return graph.shares(graph.losses(seq, draws, list(graph.terms)))

    def _latents(self, graph: TrainingGraph, rows: np.ndarray) -> Rows:
        parts, at_once = [], FRAMES_AT_ONCE * distributed.world_size()
        for first in range(0, len(rows), at_once):
            frames = torch.from_numpy(self.episodes.frames(_own(rows[first : first + at_once])))
            parts.append(distributed.gather_rows(graph.world_model.encode(frames).float()))
        return torch.cat(parts), torch.from_numpy(self.episodes.targets[rows])


def _own(chosen: np.ndarray) -> np.ndarray:
    return chosen[distributed.own_rows(len(chosen) // distributed.world_size())]


def make_validator(config: Config, task: TaskSpec, episodes: Episodes, split: Split) -> Validator:
    chosen = split.validating.episodes
    windows = Windows(episodes, chosen, config.clip)
    return Validator(
        episodes=episodes,
        windows=windows,
        batches=validation_batches(
            len(windows), config.train.batch_size, count=config.train.validation_batches, devices=config.devices
        ),
        fit_rows=_choose(episode_rows(episodes, split.train), config, "train"),
        judged_rows=_choose(episode_rows(episodes, chosen), config, "held out"),
        target=task.target,
    )


def _choose(rows: np.ndarray, config: Config, name: str) -> np.ndarray:
    """Up to `readout_frames` rows, the same whatever the run's seed; a number that the processes can share evenly."""
    order = np.random.default_rng(derive_seed("readout", name)).permutation(rows)
    count = min(len(rows), config.train.readout_frames)
    return order[: count - count % config.devices]
