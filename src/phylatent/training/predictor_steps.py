"""Further steps of the predictor alone, on the latents of the encoder as training left it.

A frame is encoded once and not at every step, so that a clip costs a tenth of what it did. The paper has no such stage. At
laptop scale the encoder is good before the predictor is, which had to follow it all the time (docs/experiments.md).
Longer clips cost little too: with `train.predictor_blocks`, the objective `rollout` sees as many blocks as a plan has.
"""

# B batch, T frames, N rows of the file, D latent

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from phylatent.data.windows import Windows, steps_per_epoch
from phylatent.errors import UserError
from phylatent.objectives import OBJECTIVES
from phylatent.objectives.objective import OpenLoop, Sequences
from phylatent.objectives.rollout import Rollout
from phylatent.randomness import Draws, derive_seed
from phylatent.schema import ClipConfig, Config, TrainConfig
from phylatent.training.graph import TrainingGraph
from phylatent.training.module import StepModule

BATCHES_AT_ONCE = 4
"""A step without frames is cheap, and a larger batch makes it a better one."""
FRAMES_AT_ONCE = 256
Rows = tuple[Tensor, Tensor, Tensor]
"""Rows of the file [B, T], raw action blocks, raw targets."""


def predictor_windows(windows: Windows, config: Config) -> Windows:
    """The clips of the predictor's own steps: those of training, or longer ones from the same episodes."""
    blocks, clip = config.train.predictor_blocks, config.clip
    if blocks is None:
        return windows
    if Rollout.name not in config.objectives:
        raise UserError(
            f"train.predictor_blocks={blocks} is for the objective rollout, which is not among the objectives; "
            f"add it: objectives=[{','.join([*config.objectives, Rollout.name])}]"
        )
    if blocks < clip.context:
        raise UserError(f"train.predictor_blocks is {blocks}; it must be at least clip.context = {clip.context}")
    longer = Windows(windows.episodes, windows.episode_ids.tolist(), ClipConfig(blocks + 1, clip.stride, blocks, 1))
    steps_per_epoch(len(longer), config.train.batch_size)  # an error if there are too few
    return longer


class ClipsWithoutFrames(Dataset[Rows]):
    """The clips of `windows` as rows of the file: their latents are known."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return len(self.windows)

    def __getitems__(self, indices: Sequence[int]) -> Rows:
        rows_BT, actions, targets = self.windows.without_frames(indices)
        return torch.from_numpy(rows_BT), actions, targets


class PredictorModule(StepModule):
    """Every objective that teaches the predictor; encoder and projector stay as they are.

    So do the weights of the objectives, balanced ones included: they are those that the joint training ended with.
    """

    title, label = "predictor", "predictor step"

    def __init__(self, graph: TrainingGraph, windows: Windows, config: Config, offset: int) -> None:
        super().__init__(graph, config, config.train.predictor_steps)
        self.windows, self.offset = windows, offset
        self.seed = derive_seed(config.seed, "predictor")
        self.names = [name for name in config.objectives if OBJECTIVES[name].of_prediction]

    @property
    def batch_size(self) -> int:
        """Of all processes together."""
        size = self.settings.train.batch_size
        return min(BATCHES_AT_ONCE, len(self.windows) // size) * size

    @property
    def schedule(self) -> TrainConfig:
        """Its own, as long as its steps are many."""
        return replace(self.settings.train, schedule_steps=None)

    def table_row(self) -> dict[str, float]:
        """Without the weighted sum: it is one of fewer objectives here, and would look like progress."""
        return {name: value for name, value in self.latest.items() if name != "loss"}

    def learning(self) -> list[nn.Parameter]:
        model = self.graph.world_model
        modules = [model.action_encoder, model.predictor, model.pred_proj, *(self.graph.terms[name] for name in self.names)]
        return [parameter for module in modules for parameter in module.parameters()]

    def on_fit_start(self) -> None:
        """By now the weights are those of the checkpoint, and on their device."""
        self.latents_ND, self.place = encode_frames(self.graph, self.windows)
        self.graph.train()

    def training_step(self, batch: Rows, batch_idx: int) -> Tensor:
        rows_BT, actions, targets = batch
        draws = Draws(self.seed, self.global_step, self.device)
        z_BTD = self.latents_ND[self.place[rows_BT.cpu().numpy()]].to(self.device)
        seq = sequences(self.graph, z_BTD, actions, targets, draws, self.names, self.global_step / self.total_steps)
        return self.keep_losses(self.graph.losses(seq, draws, self.names))


def sequences(
    graph: TrainingGraph, z_BTD: Tensor, actions: Tensor, targets: Tensor, draws: Draws, names: Sequence[str], done: float
) -> Sequences:
    """What training sees of a clip, and beside it as much of the clip as `rollout` is to see by now."""
    model, clip = graph.world_model, graph.world_model.config.clip
    usual = z_BTD[:, : clip.frames], actions[:, : clip.context], targets[:, : clip.frames]
    seq = graph.from_latents(torch.empty(0), *usual, draws, names)
    if Rollout.name not in graph.terms:
        return seq
    term = graph.terms[Rollout.name]
    assert isinstance(term, Rollout)
    blocks = term.reach(done, actions.shape[1])
    c_BkD = model.embed_actions(model.normalise_actions(actions[:, :blocks]))
    return replace(seq, open_loop=OpenLoop(z_BTD[:, : blocks + 1], c_BkD))


@torch.no_grad()
def encode_frames(graph: TrainingGraph, windows: Windows) -> tuple[Tensor, np.ndarray]:
    """Latents [N, D] of every frame that a clip shows, and for each row of the file where its latent is."""
    rows = np.unique(windows.starts[:, None] + np.arange(windows.clip.frames) * windows.spacing)
    graph.eval()
    parts = [
        graph.world_model.encode(windows.episodes.frames(rows[first : first + FRAMES_AT_ONCE])).float().cpu()
        for first in range(0, len(rows), FRAMES_AT_ONCE)
    ]
    place = np.full(rows[-1] + 1, -1)
    place[rows] = np.arange(len(rows))
    return torch.cat(parts), place
