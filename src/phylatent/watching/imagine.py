"""What a model that still trains imagines: a few validation clips, rolled out from their first frame by the newest weights.

It runs in a process of its own, on one thread and with the lowest priority; it reads the run and writes nothing.
"""

# N clips, k blocks ahead, D latent, F frames of the bank

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from phylatent.composition import load_config
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import episode_rows, fit_statistics, split_episodes
from phylatent.data.windows import Windows, steps_per_epoch
from phylatent.errors import PhylatentError, UserError
from phylatent.models.load import load_model
from phylatent.models.world_model import WorldModel
from phylatent.planning.imagination import nearest
from phylatent.randomness import derive_seed
from phylatent.reading import read_tensors
from phylatent.runs import CONFIG, MODEL, data_path
from phylatent.schema import ClipConfig, Config
from phylatent.training.graph import build, target_periods

CLIPS, BLOCKS, BANK = 2, 8, 300
SIDE, GAP = 64, 4
BATCH = 50
WEIGHTS = "graph.world_model."
"""Where a checkpoint holds the model."""


@dataclass(frozen=True)
class Film:
    """Clips below each other: what happened, and under it the validation frames nearest to what was imagined."""

    image: bytes
    """WebP."""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    size: tuple[int, int]
    planned: int
    """Steps of the joint training, as the data says."""


@dataclass(frozen=True)
class Material:
    """What is the same for all weights of a run."""

    model: WorldModel
    clips_NTHWC: np.ndarray
    blocks_NkA: Tensor
    bank_FHWC: np.ndarray
    stride: int
    planned: int


def serve(pipe: Connection) -> None:
    """Draws whatever (run, weights, task file) it is sent, until the other end is closed. An answer is a Film or a sentence."""
    torch.set_num_threads(1)
    while True:
        try:
            run, weights, modified, task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: Film | str = draw(run, weights, modified, task)
        except PhylatentError as error:
            answer = str(error)
        except Exception as error:  # a data file or a part of the user's own can raise anything; the page says it
            answer = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        pipe.send(answer)


@torch.no_grad()
def draw(run: Path, weights: Path, modified: float, task: str | None = None) -> Film:
    """The film of a run by these weights; `modified` is when its configuration was written, so that a new run is read anew."""
    material = _material(run, modified, task)
    model = load_model(str(run)) if weights.name == MODEL else _filled(material.model, weights)
    model.eval()
    bank_FD = _encoded(model, material.bank_FHWC)
    imagined_NkD = model.rollout(model.encode(material.clips_NTHWC[:, 0]), material.blocks_NkA).cpu().numpy()
    shown = material.bank_FHWC[nearest(imagined_NkD, bank_FD)]
    rows = []
    for real, dreamt in zip(material.clips_NTHWC, shown, strict=True):
        rows += [list(real), [None, *dreamt]]
    sheet = _sheet(rows)
    buffer = io.BytesIO()
    sheet.save(buffer, "WEBP", quality=85, method=4)
    columns = ("start", *(str(material.stride * block) for block in range(1, len(material.clips_NTHWC[0]))))
    return Film(buffer.getvalue(), ("real", "imagined") * len(shown), columns, sheet.size, material.planned)


@lru_cache(maxsize=4)
def _material(run: Path, modified: float, task: str | None) -> Material:
    config = load_config(run / CONFIG, task=task)
    episodes = open_episodes(data_path(config), config.spec)
    split = split_episodes(len(episodes.lengths), config.split)
    statistics = fit_statistics(episodes, config.spec, split.train, periods=target_periods(config))
    graph = build(config, statistics.action, statistics.target, statistics.correlations)
    side = split.validating
    clips_NTHWC, blocks_NkA = _clips(episodes, side.episodes, config.clip)
    rows = np.random.default_rng(derive_seed("watch", "bank")).permutation(episode_rows(episodes, side.episodes))[:BANK]
    return Material(
        model=graph.world_model,
        clips_NTHWC=clips_NTHWC,
        blocks_NkA=blocks_NkA,
        bank_FHWC=episodes.frames(np.sort(rows)),
        stride=config.clip.stride,
        planned=_planned(config, episodes, split.train),
    )


def _clips(episodes: Episodes, ids: tuple[int, ...], clip: ClipConfig) -> tuple[np.ndarray, Tensor]:
    """The same clips for every run on the same data: as long as the episodes allow, up to so many blocks."""
    rows_a_block = max(1, clip.stride // episodes.frame_stride)
    longest = int((episodes.lengths[list(ids)].max() - 1) // rows_a_block)
    blocks = max(1, min(BLOCKS, longest))
    windows = Windows(episodes, ids, replace(clip, frames=blocks + 1, context=blocks, offset=1))
    chosen = np.random.default_rng(derive_seed("watch", "clips")).permutation(len(windows))[:CLIPS]
    frames, actions, _ = windows.__getitems__(chosen.tolist())
    return frames.numpy(), actions


def _planned(config: Config, episodes: Episodes, ids: tuple[int, ...]) -> int:
    """As `training.run` plans them, without waiting for Lightning to be imported."""
    train, windows = config.train, Windows(episodes, ids, config.clip)
    return train.steps or train.epochs * steps_per_epoch(len(windows), train.batch_size, train.max_steps_per_epoch)


def _filled(model: WorldModel, path: Path) -> WorldModel:
    checkpoint = read_tensors(path, again="training makes the next one", kind="phylatent checkpoint")
    saved = checkpoint.get("state_dict") if isinstance(checkpoint, Mapping) else None
    own = saved if isinstance(saved, Mapping) else {}
    weights = {str(name).removeprefix(WEIGHTS): value for name, value in own.items() if str(name).startswith(WEIGHTS)}
    try:
        model.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UserError(f"{path} does not fit the run's configuration, so nothing is imagined from it") from error
    return model


def _encoded(model: WorldModel, frames: np.ndarray) -> np.ndarray:
    parts = [model.encode(frames[at : at + BATCH]).cpu().numpy() for at in range(0, len(frames), BATCH)]
    return np.concatenate(parts)


def _sheet(rows: list[list[np.ndarray | None]]) -> Image.Image:
    """Frames in rows, transparent where there is none."""
    width, height = len(rows[0]) * (SIDE + GAP) - GAP, len(rows) * (SIDE + GAP) - GAP
    sheet = Image.new("RGBA", (width, height))
    for down, row in enumerate(rows):
        for along, frame in enumerate(row):
            if frame is not None:
                small = Image.fromarray(frame).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
                sheet.paste(small, (along * (SIDE + GAP), down * (SIDE + GAP)))
    return sheet
