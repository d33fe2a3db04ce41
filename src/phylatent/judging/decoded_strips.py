"""Strips of decoded pictures as image files: to look at without the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIDE, GAP, LABELS, HEAD = 96, 4, 110, 18
INK, PAPER = (60, 64, 70), (255, 255, 255)


def write_strips(views: Mapping[str, np.ndarray], stride: int, folder: Path) -> None:
    """`frames.png`, and `rollout-0.png` and so on, one for each clip."""
    numbered = [str(at + 1) for at in range(len(views["frames"]))]
    sheet({"frame": views["frames"], "its latent": views["decoded"]}, numbered).save(folder / "frames.png")
    for clip in range(len(views["real"])):
        rows = {
            "real": views["real"][clip],
            "encoded": views["encoded"][clip],
            "imagined": views["imagined"][clip],
            "nearest real": views["nearest"][clip],
        }
        steps = ["start", *(f"+{block * stride}" for block in range(1, len(rows["real"])))]
        sheet(rows, steps).save(folder / f"rollout-{clip}.png")


def sheet(rows: Mapping[str, np.ndarray], columns: Sequence[str]) -> Image.Image:
    """Rows of pictures with their names; a row that has fewer begins later."""
    width, height = LABELS + len(columns) * (SIDE + GAP), HEAD + len(rows) * (SIDE + GAP)
    image = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(image)
    for along, name in enumerate(columns):
        pen.text((LABELS + along * (SIDE + GAP) + 4, 2), name, fill=INK)
    for down, (name, pictures) in enumerate(rows.items()):
        top, first = HEAD + down * (SIDE + GAP), len(columns) - len(pictures)
        pen.text((4, top + SIDE // 2 - 6), name, fill=INK)
        for along, picture in enumerate(pictures, start=first):
            small = Image.fromarray(picture).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            image.paste(small, (LABELS + along * (SIDE + GAP), top))
    return image
