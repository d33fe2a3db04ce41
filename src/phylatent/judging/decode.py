"""`decode`: what latents hold and what rollouts imagine, as pictures, by a decoder that is trained after the fact.

It learns from training episodes and is judged on test episodes: the same frames and clips for every model. Nothing of it goes
back into the model; it lies beside it, in `decoder/`.
"""

# N frames or clips, k blocks ahead, T = k + 1 frames of a clip, D latent, S side of a picture

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phylatent.data.readers import Episodes
from phylatent.data.stats import Side, episode_rows
from phylatent.data.windows import Windows
from phylatent.errors import UserError
from phylatent.files import whole_directory
from phylatent.judging.decoded_strips import write_strips
from phylatent.judging.measured import ANEW, Say, is_measured
from phylatent.judging.subject import BESIDE, Sources, Subject, load_subjects
from phylatent.models.decoder import Decoder, picture_side, psnr, shrink, train_decoder
from phylatent.randomness import derive_seed
from phylatent.records import provenance, read_decoding, write_json
from phylatent.runs import decoding_file
from phylatent.schema import TEST, ClipConfig

Progress = Callable[[str, str, int, int], None]
STEPS, STEPS_OF = 1000, {"smoke": 20, "quick": 300}
"""Of the decoder: as many as take about a minute on one core; fewer for presets that only show how it goes."""
LEARNT, JUDGED, CLIPS, BLOCKS = 6000, 1000, 64, 8
"""Training frames, test frames, test clips, and blocks of a clip; fewer where the data holds fewer."""
SHOWN_FRAMES, SHOWN_CLIPS = 10, 3
BATCH = 128


def decode(
    sources: Sources,
    *,
    steps: int | None = None,
    overrides: Sequence[str] = (),
    preset: str | None = None,
    task: str | None = None,
    out: str | Path | None = None,
    progress: Progress = lambda *_: None,
    say: Say = lambda _: None,
) -> list[dict[str, Any]]:
    """How well pictures can be read out of each model's latents, real and imagined ones: one record for each model.

    Beside the record lie the decoder, and strips to look at. What is there is not made twice. `steps` are the decoder's.

    >>> record, = phylatent.decode([run], steps=2, out="decoded")
    >>> record["model"]["name"]
    'run'
    """
    _check(steps, overrides)
    subjects = load_subjects(sources, overrides, preset=preset, task=task, out=out)
    material, records = None, []
    for subject in subjects:
        path = decoding_file(subject.directory)
        asked = steps or STEPS_OF.get(subject.config.preset, STEPS)
        key = _key(subject, asked)
        if not is_measured(path, key, {}, say):
            with whole_directory(path.parent) as folder:
                material = material or _material(subject)
                _decode(subject, material, asked, key, folder, progress)
        records.append(read_decoding(path, again=ANEW))
    return records


def _check(steps: int | None, overrides: Sequence[str]) -> None:
    if steps is not None and not 1 <= steps <= 1_000_000:
        raise UserError(f"decode.steps is {steps}; it must be at least 1, and a million at most")
    for override in overrides:
        if (key := override.partition("=")[0]) not in BESIDE:
            raise UserError(f"{key} does nothing here: decode takes {', '.join(BESIDE)}, decode.steps, preset and out")


def _side(subject: Subject) -> Side:
    return subject.split.side(TEST)


def _key(subject: Subject, steps: int) -> dict[str, Any]:
    """What decides the record's numbers."""
    side = _side(subject)
    facts = {"weights": subject.facts["weights"], "data": subject.episodes.fingerprint(), "split": side.name}
    return facts | {"episodes": len(side.episodes), "steps": steps}


@dataclass(frozen=True)
class Material:
    """Rows and clips of a data file, the same for every model."""

    learnt: np.ndarray
    judged: np.ndarray
    shown: np.ndarray
    """Rows of training frames, of test frames, and of the test frames that are shown."""
    clips_NT: np.ndarray
    blocks_NkA: Tensor
    side: int


def _material(subject: Subject) -> Material:
    episodes, test = subject.episodes, _side(subject)
    windows = _windows(episodes, test.episodes, subject.model.config.clip)
    chosen = _order("clips", len(windows))[:CLIPS]
    rows_NT, blocks_NkA, _ = windows.without_frames(chosen.tolist())
    judged = _choose("judged", episode_rows(episodes, test.episodes), JUDGED)
    return Material(
        learnt=np.sort(_choose("learnt", episode_rows(episodes, subject.split.train), LEARNT)),
        judged=np.sort(judged),
        shown=judged[:SHOWN_FRAMES],
        clips_NT=rows_NT,
        blocks_NkA=blocks_NkA,
        side=picture_side(*episodes.frame_shape[:2]),
    )


def _windows(episodes: Episodes, ids: Sequence[int], clip: ClipConfig) -> Windows:
    """Clips of test episodes, as long as they allow, up to so many blocks."""
    longest = int(episodes.lengths[list(ids)].max(initial=1) - 1) // max(1, clip.stride // episodes.frame_stride)
    blocks = max(1, min(BLOCKS, longest))
    return Windows(episodes, ids, replace(clip, frames=blocks + 1, context=blocks, offset=1))


def _order(name: str, count: int) -> np.ndarray:
    return np.random.default_rng(derive_seed("decode", name)).permutation(count)


def _choose(name: str, rows: np.ndarray, most: int) -> np.ndarray:
    return rows[_order(name, len(rows))][:most]


@dataclass(frozen=True)
class Seen:
    """Frames of a data file as a model and as the decoder see them."""

    latents_ND: Tensor
    pictures_N3SS: Tensor
    """uint8."""


@torch.no_grad()
def _see(subject: Subject, rows: np.ndarray, side: int, tick: Callable[[int, int], None] = lambda *_: None) -> Seen:
    latents, pictures = [], []
    for first in range(0, len(rows), BATCH):
        frames = subject.episodes.frames(rows[first : first + BATCH])
        latents.append(subject.model.encode(frames).float().cpu())
        pictures.append(_bytes(shrink(frames, side)))
        tick(min(first + BATCH, len(rows)), len(rows))
    return Seen(torch.cat(latents), torch.cat(pictures))


def _bytes(pictures: Tensor) -> Tensor:
    return (255 * pictures).round().to(torch.uint8)


def _decode(subject: Subject, material: Material, steps: int, key: dict[str, Any], folder: Path, progress: Progress) -> None:
    from safetensors.torch import save_file

    def tell(what: str) -> Callable[[int, int], None]:
        return lambda done, total: progress(f"decode {subject.name}", what, done, total)

    began = time.perf_counter()
    learnt = _see(subject, material.learnt, material.side, tell("encoding"))
    decoder = train_decoder(learnt.latents_ND, learnt.pictures_N3SS, steps=steps, tick=tell("training the decoder"))
    judged, views = _judge(subject, material, decoder)
    side = _side(subject)
    save_file({name: tensor.contiguous() for name, tensor in decoder.state_dict().items()}, folder / "decoder.safetensors")
    np.savez_compressed(folder / "views.npz", allow_pickle=False, **views)
    write_strips(views, subject.model.config.clip.stride, folder)
    record = {
        "model": subject.facts,
        "key": key,
        "split": side.facts,
        "settings": {"steps": steps, "frames": len(material.learnt), "side": material.side, "clips": len(material.clips_NT)},
        **judged,
        "seconds": round(time.perf_counter() - began, 1),
        "quick": subject.config.preset in STEPS_OF,
        "provenance": provenance(),
    }
    write_json(folder / decoding_file(folder).name, record)


@torch.no_grad()
def _judge(subject: Subject, material: Material, decoder: Decoder) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The numbers, and the pictures that are shown."""
    frames = _see(subject, material.judged, material.side)
    reconstruction = _compared(decoder.pictures(frames.latents_ND), frames.pictures_N3SS, decoder)
    count, length = material.clips_NT.shape
    clips = _see(subject, material.clips_NT.ravel(), material.side)
    real_NT3SS = clips.pictures_N3SS.unflatten(0, (count, length))
    held_NT3SS = decoder.pictures(clips.latents_ND).unflatten(0, (count, length))
    start_ND = clips.latents_ND.unflatten(0, (count, length))[:, 0]
    device = next(subject.model.parameters()).device
    imagined_NkD = subject.model.rollout(start_ND.to(device), material.blocks_NkA).float().cpu()
    imagined_Nk3SS = decoder.pictures(imagined_NkD.flatten(0, 1)).unflatten(0, (count, length - 1))
    stride = subject.model.config.clip.stride
    horizons = [
        {
            "blocks": block,
            "steps": block * stride,
            **_compared(imagined_Nk3SS[:, block - 1], real_NT3SS[:, block], decoder),
            "encoded_psnr": _compared(held_NT3SS[:, block], real_NT3SS[:, block], decoder)["psnr"],
        }
        for block in range(1, length)
    ]
    shown = _see(subject, material.shown, material.side)
    some = slice(0, SHOWN_CLIPS)
    near_Nk = torch.cdist(imagined_NkD[some].flatten(0, 1), frames.latents_ND).argmin(1).unflatten(0, (-1, length - 1))
    views = {
        "frames": shown.pictures_N3SS,
        "decoded": decoder.pictures(shown.latents_ND),
        "real": real_NT3SS[some],
        "encoded": held_NT3SS[some],
        "imagined": imagined_Nk3SS[some],
        "nearest": frames.pictures_N3SS[near_Nk],
    }
    numbers = {
        "reconstruction": {**reconstruction, "frames": len(material.judged)},
        "rollout": {"clips": count, "horizons": horizons},
    }
    return numbers, {name: _as_frames(value) for name, value in views.items()}


def _compared(made: Tensor, real: Tensor, decoder: Decoder) -> dict[str, Any]:
    """How near pictures are to the real ones, beside always saying the mean picture of the training frames."""
    pixels = real.float() / 255
    error, constant = (float((other - pixels).square().mean()) for other in (made, decoder.mean_picture))
    explained = 1 - error / constant if constant > 0 else float("nan")
    return {"psnr": psnr(error), "constant_psnr": psnr(constant), "explained": explained}


def _as_frames(pictures: Tensor) -> np.ndarray:
    """uint8 [..., S, S, 3]."""
    return (pictures if pictures.dtype == torch.uint8 else _bytes(pictures)).movedim(-3, -1).contiguous().numpy()
