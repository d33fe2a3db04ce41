"""A map of the latent space: a few hundred held-out states on their first principal components, each with its small picture.

It is no diagnostic and counts nothing: the report shows it. Reading one back needs no torch.
"""

# N states of the map, D latent, S physical target, H height, W width

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from phylatent.reading import check_shape, damaged, read_arrays
from phylatent.reading.shapes import REAL, Maybe, Rule, is_real

if TYPE_CHECKING:
    from phylatent.diagnostics.held_out import HeldOutRows
    from phylatent.diagnostics.latents import JudgedModel
    from phylatent.schema import TaskSpec

STATES = 400
AXES = 3
"""Principal components that are kept."""
SIDE = 48
"""Of a picture, in pixels."""
SECTION = "map"
"""Of the record; the arrays' names begin with it."""
PERIOD = Rule("a number above 0", lambda value: is_real(value) and value > 0)
SHAPE = {"coordinates": [str], "angles": {"*": PERIOD}, "explained": [REAL]}
ARRAYS = {"scores": "NK", "states": "NS", "pictures": "NHWC", "episodes": "N", "steps": "N"}


@dataclass(frozen=True, eq=False)
class LatentMap:
    coordinates: tuple[str, ...]
    """Names of the physical coordinates."""
    angles: Mapping[str, float]
    """Those of them that are angles, with their period."""
    explained: tuple[float, ...]
    """Share of the latents' variance along each component."""
    scores: np.ndarray
    """float32 [N, K]: where each state lies."""
    states: np.ndarray
    """float32 [N, S]: its physical coordinates."""
    pictures: np.ndarray
    """uint8 [N, H, W, 3]."""
    episodes: np.ndarray
    steps: np.ndarray
    """int64 [N]: which episode of the data it is from, and how many rows after its start."""


def make_map(model: JudgedModel, task: TaskSpec, held_out: HeldOutRows) -> LatentMap:
    """The same states for every model that is judged on the same episodes: spread evenly over all of them."""
    known = held_out.rows
    rows = known[np.linspace(0, len(known) - 1, min(STATES, len(known))).astype(int)]
    episodes = held_out.episodes
    explained, scores = principal(model.encode(episodes.frames, rows))
    homes = np.array(held_out.ids)[held_out.episode_of(rows)]
    return LatentMap(
        coordinates=tuple(task.target.names),
        angles={task.target.names[at]: float(period) for at, period in task.target.angles.items()},
        explained=tuple(explained.tolist()),
        scores=scores.astype(np.float32),
        states=np.asarray(episodes.targets[rows], dtype=np.float32),
        pictures=np.stack([_small(frame) for frame in episodes.frames(rows)]),
        episodes=homes.astype(np.int64),
        steps=(rows - np.asarray(episodes.offsets)[homes]).astype(np.int64),
    )


def principal(latents_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(share of the variance, scores [N, K]) of the first components; the farthest state has a positive score on each."""
    centred = latents_ND.astype(np.float64) - latents_ND.mean(axis=0, dtype=np.float64)
    left, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    kept = min(AXES, len(lengths))
    scores = left[:, :kept] * lengths[:kept]
    signs = np.sign(scores[np.abs(scores).argmax(axis=0), np.arange(kept)])
    total = float(np.square(lengths).sum()) or 1.0
    return np.square(lengths[:kept]) / total, scores * np.where(signs == 0, 1, signs)


def _small(frame_HWC: np.ndarray) -> np.ndarray:
    height, width = frame_HWC.shape[:2]
    if max(height, width) <= SIDE:
        return frame_HWC
    size = (max(1, round(SIDE * width / max(height, width))), max(1, round(SIDE * height / max(height, width))))
    return np.asarray(Image.fromarray(frame_HWC).resize(size, Image.Resampling.BOX))


def section(found: LatentMap) -> dict[str, Any]:
    """What the record says of it."""
    return {
        "states": len(found.scores),
        "coordinates": list(found.coordinates),
        "angles": dict(found.angles),
        "explained": list(found.explained),
    }


def arrays(found: LatentMap) -> dict[str, np.ndarray]:
    return {f"{SECTION}/{name}": getattr(found, name) for name in ARRAYS}


def read_map(path: Path, record: Mapping[str, Any], *, again: str) -> LatentMap | None:
    """The map in a record and the arrays beside it; None where the record is older than maps, or its model was unfit."""
    check_shape(path.with_suffix(".json"), record, {f"{SECTION}?": Maybe(SHAPE)}, again=again)
    said = record.get(SECTION)
    if said is None or not path.is_file():
        return None
    found, sizes = read_arrays(path, again=again, prefix=f"{SECTION}/"), {"C": 3, "S": len(said["coordinates"])}
    for name, dimensions in ARRAYS.items():
        values = found.get(f"{SECTION}/{name}")
        if values is None:
            raise damaged(path, f"it has no {SECTION}/{name}", again)
        alike = values.ndim == len(dimensions) and all(
            sizes.setdefault(axis, size) == size for axis, size in zip(dimensions, values.shape, strict=True)
        )
        kinds = {"scores": "f", "states": "f", "pictures": "u"}.get(name, "iu")
        picture = name == "pictures" and (values.dtype.itemsize != 1 or max(values.shape[1:3], default=0) > 4 * SIDE)
        if not alike or values.dtype.kind not in kinds or picture or 0 in values.shape:
            raise damaged(
                path, f"{SECTION}/{name} is {values.dtype} {list(values.shape)}, which does not go with the rest", again
            )
    finite = all(np.isfinite(found[f"{SECTION}/{name}"]).all() for name in ("scores", "states"))
    if not finite or len(said["explained"]) != sizes["K"] or sizes["N"] > 20 * STATES:
        raise damaged(path, f"the numbers of its {SECTION} do not go together", again)
    named = {name: found[f"{SECTION}/{name}"] for name in ARRAYS}
    return LatentMap(tuple(said["coordinates"]), dict(said["angles"]), tuple(said["explained"]), **named)
