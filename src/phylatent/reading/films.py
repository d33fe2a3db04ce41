"""Films read back: the frames of an animated WebP, as pixels."""

# S frames, H height, W width

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

from phylatent.errors import UserError
from phylatent.reading import damaged, first_line

if TYPE_CHECKING:
    import numpy as np

LARGEST, LONGEST = 4096, 2000
"""Pixels of a side, and frames: ours have 608 and a few hundred."""


def read_film(path: Path, *, again: str) -> tuple[np.ndarray, list[int]]:
    """uint8 [S, H, W, 3], and when each frame is first shown, in milliseconds: frames that are alike may be stored as one.

    Only WebP is tried, and nothing larger than a film of ours could be is unpacked.
    """
    import numpy as np
    from PIL import Image, ImageSequence

    try:
        with Image.open(path, formats=["WEBP"]) as film:
            count = getattr(film, "n_frames", 1)
            if max(film.size) > LARGEST or count > LONGEST:
                raise damaged(path, f"{count} frames of {film.size[0]} by {film.size[1]} pixels are no film of ours", again)
            frames, begins, now = [], [], 0
            for frame in ImageSequence.Iterator(film):
                frames.append(np.asarray(frame.convert("RGB")))
                begins.append(now)
                now += int(frame.info.get("duration") or 0)
            return np.stack(frames), begins
    except UserError:
        raise
    except (OSError, ValueError, EOFError, SyntaxError, RuntimeError, struct.error, Image.DecompressionBombError) as error:
        raise damaged(path, f"it is not a whole WebP film: {first_line(error)[:120]}", again) from error
