"""The decoder view: what each model's latents hold and what its rollouts imagine, on the same frames and clips."""

# F frames, P clips, S pictures of a row, H height, W width, C channels

from __future__ import annotations

import base64
import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from phylatent.reading import damaged, read_arrays
from phylatent.records import read_decoding
from phylatent.reporting.inputs import AGAIN, Run
from phylatent.reporting.marks import Cell, Table
from phylatent.reporting.methods import Method, dig
from phylatent.reporting.words import plain
from phylatent.runs import decoding_file

VIEWS = {"frames": 4, "decoded": 4, "real": 5, "encoded": 5, "imagined": 5, "nearest": 5}
"""Array of `views.npz` → how many dimensions it has."""
SIDE, GAP, BORDER, MOST_SIDE, MOST_PICTURES = 96, 5, 1, 256, 64
EDGE = (139, 144, 152, 255)
"""Of the border around a picture: grey enough for a light page and a dark one."""


@dataclass(frozen=True)
class Row:
    """One line of pictures, with whose it is."""

    label: str
    colour: str
    image: str
    size: tuple[int, int]
    alt: str


@dataclass(frozen=True)
class Group:
    """Lines that show the same frames, or the same clip."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class DecoderView:
    groups: tuple[Group, ...]
    table: Table | None
    command: str
    """What makes the pictures that are missing; empty where none are."""
    left_out: str = ""


@dataclass(frozen=True)
class Decoded:
    method: Method
    run: Run
    record: Mapping[str, Any]
    views: Mapping[str, np.ndarray]


def decoder_view(methods: Sequence[Method]) -> DecoderView:
    """Of every model that was decoded; those that saw other frames than the first are named and left out."""
    runs = [(method, run) for method in methods for run in method.runs]
    found = [one for method, run in runs if (one := _decoded(method, run)) is not None]
    missing = [run for _, run in runs if not decoding_file(run.directory).is_file()]
    command = " ".join(["phylatent decode", *(shlex.quote(str(run.directory)) for run in missing)]) if missing else ""
    if not found:
        return DecoderView((), None, command)
    same = [one for one in found if _seen(one) == _seen(found[0])]
    other = [one.method.title(one.run) for one in found if _seen(one) != _seen(found[0])]
    groups = (_frames(same), *(_clip(same, at) for at in range(len(same[0].views["real"]))))
    return DecoderView(groups, _table(found), command, ", ".join(other))


def _decoded(method: Method, run: Run) -> Decoded | None:
    path = decoding_file(run.directory)
    if not path.is_file():
        return None
    return Decoded(method, run, read_decoding(path, again=AGAIN), _views(run))


def _views(run: Run) -> Mapping[str, np.ndarray]:
    """Pictures that go together: of uint8, square, as many in a row as there are in the others."""
    path = decoding_file(run.directory).with_name("views.npz")
    arrays, wrong = read_arrays(path, again=AGAIN), partial(damaged, path, again=AGAIN)
    for name, dimensions in VIEWS.items():
        if name not in arrays:
            raise wrong(f"it has no {name}")
        found = arrays[name]
        drawable = found.dtype == np.uint8 and found.ndim == dimensions and found.shape[-1] == 3 and 0 not in found.shape
        if not drawable or max(found.shape[-3:-1]) > MOST_SIDE or max(found.shape[:-3]) > MOST_PICTURES:
            raise wrong(f"{name} is {found.dtype} {list(found.shape)}, which cannot be shown")
    real = arrays["real"].shape
    fits = arrays["frames"].shape == arrays["decoded"].shape and arrays["encoded"].shape == real
    later = (real[0], real[1] - 1, *real[2:])
    if not fits or arrays["imagined"].shape != later or arrays["nearest"].shape != later:
        raise wrong("its arrays do not go together")
    return arrays


def _seen(one: Decoded) -> tuple[Any, ...]:
    """What was looked at: only models that saw the same stand below each other."""
    return dig(one.record, "key", "data"), one.views["frames"].tobytes(), one.views["real"].tobytes()


def _frames(found: Sequence[Decoded]) -> Group:
    first = found[0]
    rows = [_row("frames", "", first.views["frames"], "held-out frames")]
    rows += [_of(one, "", one.views["decoded"], "what its latents of these frames hold") for one in found]
    return Group("What a latent holds", tuple(rows))


def _clip(found: Sequence[Decoded], at: int) -> Group:
    stride = found[0].record["rollout"]["horizons"][0]["steps"] if found[0].record["rollout"]["horizons"] else 0
    rows = [_row("real", "", found[0].views["real"][at], "what happened")]
    for one in found:
        rows.append(_of(one, "encoded", one.views["encoded"][at], "its latents of the real frames, decoded"))
        rows.append(_of(one, "imagined", one.views["imagined"][at], "what it imagines from the first frame, decoded"))
        rows.append(_of(one, "nearest", one.views["nearest"][at], "the held-out frames nearest to what it imagines"))
    return Group(f"Clip {at + 1}, a picture every {stride} steps", tuple(rows))


def _of(one: Decoded, what: str, pictures: np.ndarray, alt: str) -> Row:
    title = one.method.title(one.run)
    return _row(f"{title}, {what}" if what else title, one.method.colour, pictures, f"{title}: {alt}")


def _row(label: str, colour: str, pictures_SHWC: np.ndarray, alt: str) -> Row:
    """As many places as the row above has: what is imagined begins one later."""
    later = 1 if label.endswith((", imagined", ", nearest")) else 0
    count = len(pictures_SHWC) + later
    sheet = Image.new("RGBA", (count * (SIDE + GAP) - GAP, SIDE))
    inside = SIDE - 2 * BORDER
    for along, picture in enumerate(pictures_SHWC, start=later):
        place = along * (SIDE + GAP)
        sheet.paste(EDGE, (place, 0, place + SIDE, SIDE))
        sheet.paste(Image.fromarray(picture).resize((inside, inside), Image.Resampling.BILINEAR), (place + BORDER, BORDER))
    buffer = io.BytesIO()
    sheet.save(buffer, "WEBP", quality=88, method=4)
    image = f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
    return Row(label, colour, image, sheet.size, alt)


def _table(found: Sequence[Decoded]) -> Table:
    rows = []
    for one in found:
        held, horizons = one.record["reconstruction"], one.record["rollout"]["horizons"]
        cells = [_cell(held)]
        cells += [_cell(horizon) for horizon in (horizons[:1] + horizons[-1:] if len(horizons) > 1 else horizons)]
        rows.append((Cell(one.method.title(one.run)), *cells))
    horizons = found[0].record["rollout"]["horizons"]
    ends = horizons[:1] + horizons[-1:] if len(horizons) > 1 else horizons
    head = ("Run", "Held-out frames ↑", *(f"Imagined, {horizon['steps']} steps ahead ↑" for horizon in ends))
    swatches = tuple(one.method.colour for one in found)
    return Table("Decoded pictures against the real ones, PSNR in dB", head, tuple(rows), swatches)


def _cell(compared: Mapping[str, Any]) -> Cell:
    note = f"the mean picture: {plain(compared['constant_psnr'], 1, 'dB')}"
    return Cell(plain(compared["psnr"], 1, "dB"), note)
