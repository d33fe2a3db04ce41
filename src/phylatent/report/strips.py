"""Filmstrips: every model on the same episodes, one image for each strip, with the imagined rollout below the real one."""

# S frames of a strip, H height, W width, C channels

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from phylatent.report.inputs import Run
from phylatent.report.methods import Method, dig, number, reference_of
from phylatent.report.planning import CAUSES, protocols

LARGEST = 96
"""Side of a stored frame, in pixels."""
GAP = 4
MOST_STRIPS, MOST_PAIRS = 48, 8


@dataclass(frozen=True)
class Strip:
    title: str
    colour: str
    success: bool
    badge: str
    why: str
    image: str
    """A data URI; transparent where there is no frame."""
    alt: str
    pixels: np.ndarray


@dataclass(frozen=True)
class Episode:
    """One start/goal pair, and how each model fared on it."""

    title: str
    differs: bool
    strips: tuple[Strip, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Filmstrips:
    protocol: str
    episodes: tuple[Episode, ...]
    note: str


def filmstrips(methods: Sequence[Method]) -> Filmstrips | None:
    """Of the first protocol that kept frames; episodes whose outcome differs between models come first."""
    for protocol in protocols(methods):
        kept = [
            (m, run, frames) for m in methods for run in m.runs if protocol in run.plans and (frames := run.rollouts(protocol))
        ]
        if kept:
            return _filmstrips(methods, protocol, kept)
    return None


def _filmstrips(
    methods: Sequence[Method], protocol: str, kept: list[tuple[Method, Run, Mapping[str, np.ndarray]]]
) -> Filmstrips:
    reference = reference_of(methods, kept[0][0].task)
    first = next((entry for entry in kept if entry[0] is reference), kept[0])
    hash_of = {id(run): dig(run.plans[protocol], "pairs", "hash") for _, run, _ in kept}
    same = [entry for entry in kept if hash_of[id(entry[1])] == hash_of[id(first[1])]]
    left_out = [method.title(run) for method, run, _ in kept if hash_of[id(run)] != hash_of[id(first[1])]]
    common = sorted(set.intersection(*(set(frames["shown"].tolist()) for *_, frames in same)))
    records = {id(run): {e["pair"]: e for e in dig(run.plans[protocol], "episodes", "model") or []} for _, run, _ in same}
    common = [pair for pair in common if all(pair in found for found in records.values())]
    differs = {pair: len({bool(found[pair]["success"]) for found in records.values()}) > 1 for pair in common}
    most = max(2, min(MOST_PAIRS, MOST_STRIPS // len(same)))
    chosen = sorted(common, key=lambda pair: (not differs[pair], pair))[:most]
    episodes = []
    for pair in chosen:
        strips = tuple(_strip(method, run, frames, pair, records[id(run)][pair], protocol) for method, run, frames in same)
        record = records[id(same[0][1])][pair]
        columns = ("start", *(str(step) for step in same[0][2]["real_steps"].tolist()[1:]), "goal")
        title = f"Pair {pair}: episode {record.get('episode')}, from step {record.get('start')}"
        episodes.append(Episode(title, differs[pair], strips, columns))
    note = f"{len(chosen)} of the {len(common)} pairs whose frames were kept for every model are shown."
    if left_out:
        note += f" Left out, because planned on other pairs: {', '.join(left_out)}."
    return Filmstrips(protocol, tuple(episodes), note)


def _strip(
    method: Method, run: Run, frames: Mapping[str, np.ndarray], pair: int, record: Mapping[str, object], protocol: str
) -> Strip:
    at = frames["shown"].tolist().index(pair)
    unit = str(run.plans[protocol].get("unit") or "")
    success, distance = bool(record["success"]), number(record.get("final_distance"))
    away = "" if distance is None else f", ended {distance:.3g} {unit}".rstrip() + " away"
    badge = f"reached at step {record.get('first_success')}" if success else f"not reached{away}"
    why = CAUSES.get(str(record.get("verdict")), "")
    title = method.title(run)
    pixels = _sprite(frames, at)
    alt = (
        f"{title} on pair {pair}, {badge}: frames from the start to the goal; "
        "below them the held-out frames nearest to what the model imagined."
    )
    return Strip(title, method.colour, success, badge, why, _data_uri(pixels), alt, pixels)


def _sprite(frames: Mapping[str, np.ndarray], at: int) -> np.ndarray:
    """Two rows: start · real frames · goal, and the imagined frames below theirs."""
    real_SHWC, imagined_SHWC = frames["real"][at], frames["imagined"][at]
    taken, known = frames["taken"][at], frames["imagined_known"][at]
    side = min(LARGEST, real_SHWC.shape[1])
    count = len(real_SHWC) + 1
    sheet = np.zeros((2 * side + GAP, count * (side + GAP) - GAP, 4), np.uint8)

    def put(row: int, column: int, frame_HWC: np.ndarray) -> None:
        top, left = row * (side + GAP), column * (side + GAP)
        small = (
            frame_HWC if frame_HWC.shape[:2] == (side, side) else np.asarray(Image.fromarray(frame_HWC).resize((side, side)))
        )
        sheet[top : top + side, left : left + side, :3] = small
        sheet[top : top + side, left : left + side, 3] = 255

    put(0, 0, frames["start"][at])
    put(0, count - 1, frames["goal"][at])
    for column in range(1, len(real_SHWC)):
        if taken[column]:
            put(0, column, real_SHWC[column])
    for column in range(len(imagined_SHWC)):
        if known[column]:
            put(1, column, imagined_SHWC[column])
    return sheet


def _data_uri(pixels: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels, "RGBA").save(buffer, "WEBP", quality=88, method=4)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
