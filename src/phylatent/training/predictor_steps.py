"""Further steps of the predictor alone, on the latents of the encoder as training left it.

A frame is encoded once and not at every step, so that a clip costs a tenth of what it did. The paper has no such stage. At
laptop scale the encoder is good before the predictor is, which had to follow it all the time (docs/choices.md).
Longer clips cost little too: with `train.predictor_blocks`, the objective `rollout` sees as many blocks as a plan has.
"""

# B batch, T frames, N rows of the file, D latent

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from phylatent import distributed
from phylatent.data.windows import StepSampler, Windows, steps_per_epoch
from phylatent.errors import UserError
from phylatent.objectives import TERMS
from phylatent.objectives.rollout import Rollout
from phylatent.objectives.term import OpenLoop, Sequences
from phylatent.randomness import Draws, derive_seed
from phylatent.schema import ClipConfig, Config
from phylatent.training.graph import TrainingGraph
from phylatent.training.module import rate_factor, stop_unless_finite

BATCHES_AT_ONCE = 4
"""A step without frames is cheap, and a larger batch makes it a better one."""
FRAMES_AT_ONCE = 256


def predictor_windows(windows: Windows, config: Config) -> Windows:
    """The clips of the predictor's own steps: those of training, or longer ones from the same episodes."""
    blocks, clip = config.train.predictor_blocks, config.clip
    if blocks is None:
        return windows
    if Rollout.name not in config.terms:
        raise UserError(
            f"train.predictor_blocks={blocks} is for the objective rollout, which is not among the terms; "
            f"add it: terms=[{','.join([*config.terms, Rollout.name])}]"
        )
    if blocks < clip.context:
        raise UserError(f"train.predictor_blocks is {blocks}; it must be at least clip.context = {clip.context}")
    longer = Windows(windows.episodes, windows.episode_ids.tolist(), ClipConfig(blocks + 1, clip.stride, blocks, 1))
    steps_per_epoch(len(longer), config.train.batch_size)  # an error if there are too few
    return longer


def refine_predictor(
    graph: TrainingGraph, windows: Windows, config: Config, say: Callable[[str], None] = lambda _: None
) -> None:
    """`train.predictor_steps` steps of every objective that teaches the predictor; encoder and projector stay as they are.

    So do the weights of the objectives, balanced ones included: they are those that training ended with.
    """
    windows = predictor_windows(windows, config)
    model, train, steps = graph.world_model, replace(config.train, schedule_steps=None), config.train.predictor_steps
    names = [name for name in config.terms if TERMS[name].of_prediction]
    learning = [model.action_encoder, model.predictor, model.pred_proj, *(graph.terms[name] for name in names)]
    parameters = [p for module in learning for p in module.parameters()]
    device, seed = graph.target_mean.device, derive_seed(config.seed, "predictor")
    sampler = StepSampler(
        len(windows),
        min(BATCHES_AT_ONCE, len(windows) // train.batch_size) * train.batch_size,
        seed=seed,
        total_steps=steps,
        rank=distributed.rank(),
        world_size=distributed.world_size(),
    )
    latents_ND, place = _encoded(graph, windows)
    optimizer = torch.optim.AdamW(parameters, lr=train.lr, weight_decay=train.weight_decay)
    graph.train()
    for step, indices in enumerate(sampler):
        for group in optimizer.param_groups:
            group["lr"] = train.lr * rate_factor(step, train, steps)
        rows_BT, actions, targets = windows.without_frames(indices)
        draws, z_BTD = Draws(seed, step, device), latents_ND[place[rows_BT]].to(device)
        seq = _sequences(graph, z_BTD, actions.to(device), targets.to(device), draws, step / steps)
        losses = graph.losses(seq, draws, names)
        values = losses.over_processes()
        stop_unless_finite(values, f"predictor step {step}")
        optimizer.zero_grad()
        losses.total.backward()
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad = distributed.mean_across(parameter.grad)
        if train.clip_norm:
            torch.nn.utils.clip_grad_norm_(parameters, train.clip_norm)
        optimizer.step()
        if (step + 1) % train.validate_every == 0 or step + 1 == steps:
            say(f"predictor step {step + 1}/{steps}: " + "  ".join(f"{name} {value:.4g}" for name, value in values.items()))


def _sequences(graph: TrainingGraph, z_BTD: Tensor, actions: Tensor, targets: Tensor, draws: Draws, done: float) -> Sequences:
    """What training sees of a clip, and beside it as much of the clip as `rollout` is to see by now."""
    model, clip = graph.world_model, graph.world_model.config.clip
    usual = z_BTD[:, : clip.frames], actions[:, : clip.context], targets[:, : clip.frames]
    seq = graph.from_latents(torch.empty(0), *usual, draws)
    if Rollout.name not in graph.terms:
        return seq
    term = graph.terms[Rollout.name]
    assert isinstance(term, Rollout)
    blocks = term.reach(done, actions.shape[1])
    c_BkD = model.embed_actions(model.normalise_actions(actions[:, :blocks]))
    return replace(seq, open_loop=OpenLoop(z_BTD[:, : blocks + 1], c_BkD))


@torch.no_grad()
def _encoded(graph: TrainingGraph, windows: Windows) -> tuple[Tensor, np.ndarray]:
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
