"""Films of the page: every model on the same pair side by side, played from sheets of frames and moved by a scrubber.

A sheet is a still picture, so that a film needs no codec, stops where the reader stops it, and never plays by itself.
"""

# S frames of a film, H height, W width

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from phylatent.reading import damaged
from phylatent.reading.films import read_film
from phylatent.reporting.inputs import AGAIN, Run
from phylatent.runs import VIDEOS, planning_folder

SIDE = 128
"""Of a film's frame on its sheet, in pixels."""
ACROSS = 10
"""Frames in a row of a sheet."""
MOST_FILMS = 24
"""Films with every step that a page holds; the others play what the filmstrip has, every few steps."""
NAMED = re.compile(r"pair(\d{1,9})-(?:solved|failed)\.webp")
GAP = 8
"""White around each of the three panels of a video that `plan` wrote: start, rollout, goal."""
MILLISECONDS = 80
"""A step of such a video."""
QUALITY = 80


@dataclass(frozen=True)
class Film:
    """A sheet of frames, and at which step each of them was taken."""

    image: str
    """A data URI."""
    side: int
    across: int
    steps: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return len(self.image)


def films_of(run: Run, protocol: str) -> dict[int, Path]:
    """Pair → the video that `plan video=…` wrote of it."""
    folder = planning_folder(run.directory, protocol) / VIDEOS
    found = ((NAMED.fullmatch(path.name), path) for path in sorted(folder.glob("pair*.webp")))
    return {int(name[1]): path for name, path in found if name}


def read_rollout(path: Path, side: int) -> Film:
    """The middle panel of a video, a frame for every step; the last one of the file repeats the one before it.

    `side` is what the data's frames have: `plan` enlarged them.
    """
    frames, begins = read_film(path, again=AGAIN)
    height, width = frames.shape[1:3]
    panel = height - 2 * GAP
    if panel < 1 or width != 3 * panel + 4 * GAP or len(frames) < 2:
        raise damaged(
            path, f"{len(frames)} frames of {width} by {height} pixels are no video of start, rollout and goal", AGAIN
        )
    left = panel + 2 * GAP
    middle = frames[:-1, GAP : GAP + panel, left : left + panel]
    return sheet(middle, side, [begin // MILLISECONDS for begin in begins[:-1]])


def sheet(frames_SHWC: np.ndarray, side: int, steps: Sequence[int]) -> Film:
    """Frames in rows of `ACROSS`, in reading order."""
    side = min(SIDE, side, frames_SHWC.shape[1])
    rows = -(-len(frames_SHWC) // ACROSS)
    whole = Image.new("RGB", (min(ACROSS, len(frames_SHWC)) * side, rows * side))
    for at, frame in enumerate(frames_SHWC):
        small = Image.fromarray(frame).resize((side, side), Image.Resampling.BOX)
        whole.paste(small, (at % ACROSS * side, at // ACROSS * side))
    return Film(data_uri(whole, quality=QUALITY), side, ACROSS, tuple(steps))


def data_uri(image: Image.Image, *, quality: int) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=4)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def in_page(film: Film) -> dict[str, Any]:
    """For the page's script."""
    return {"image": film.image, "side": film.side, "across": film.across, "steps": list(film.steps)}
