"""`phylatent decode`: what latents hold and what rollouts imagine, as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from phylatent.commands.request import Runs, judging, parse
from phylatent.commands.screen import bars, console, say, show_path, titled, words
from phylatent.errors import UserError
from phylatent.runs import decoding_file, records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLE = "phylatent decode runs/tworooms-laptop-lewm-seed0 runs/tworooms-laptop-phylatent-seed0"
KEYS = ("decode.steps", "steps")


def command(keys: Runs = None) -> None:
    """Train a small decoder on a model's frozen latents, and show what they hold and what rollouts imagine."""
    request = judging(parse(keys or []))
    given = [text.partition("=")[2] for text in request["overrides"] if text.partition("=")[0] in KEYS]
    request["overrides"] = [text for text in request["overrides"] if text.partition("=")[0] not in KEYS]
    if request.pop("seeds"):
        raise UserError("decode takes no seed=: the same frames, clips and beginning for every model")
    if given and not (given[-1].isdecimal() and len(given[-1]) < 8):
        raise UserError(f"decode.steps={given[-1]}: expected a whole number")

    from phylatent.judging.decode import decode

    with bars(console) as progress:
        records = decode(**request, steps=int(given[-1]) if given else None, progress=progress, say=say)
    show(records)
    out, several = request["out"], len(request["sources"]) > 1
    for source in request["sources"]:
        place = records_of(source) if out is None else out / Path(source).name if several else out
        show_path("pictures", decoding_file(place).parent)


def show(records: Sequence[dict[str, Any]]) -> None:
    """One row a model: how near pictures come, of what is there and of what is imagined."""
    table = titled("pictures from latents, on held-out frames: PSNR in dB ↑", "mean picture: always saying the same")
    for heading in ("model", "what is there", "mean picture", "imagined, nearest", "imagined, farthest", "mean picture"):
        table.add_column(words(heading))
    for record in records:
        held, horizons = record["reconstruction"], record["rollout"]["horizons"]
        shown = [held["psnr"], held["constant_psnr"]]
        shown += [horizons[0]["psnr"], horizons[-1]["psnr"], horizons[-1]["constant_psnr"]]
        cells = ("–" if value is None else f"{value:.1f}" for value in shown)
        table.add_row(words(record["model"]["name"]), *map(words, cells))
    console.print(table)
