"""Filmstrips: every model on the same episodes, one image for each strip, with the imagined rollout below the real one.

The same frames play as films; where `plan` wrote a video of the episode, with every step.
"""

# S frames of a strip, H height, W width, C channels

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from phylatent.reporting.films import MOST_FILMS, Film, data_uri, films_of, in_page, read_rollout
from phylatent.reporting.inputs import Run
from phylatent.reporting.methods import Method, dig, number, reference_of
from phylatent.reporting.planning import CAUSES, protocols

LARGEST = 96
"""Side of a stored frame, in pixels."""
EDGE, GAP = 1, 6
"""A frame's border, which a white frame on a white page needs, and the room between two frames; in pixels."""
BORDER = (138, 143, 152)
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
    side: int
    """Of a frame in `pixels`."""
    taken: tuple[bool, ...]
    known: tuple[bool, ...]
    """At which columns there is a real and an imagined frame."""
    film: Film | None = None
    """With every step, where there is a video."""


@dataclass(frozen=True)
class Episode:
    """One start/goal pair, and how each model fared on it."""

    title: str
    differs: bool
    strips: tuple[Strip, ...]
    columns: tuple[str, ...]
    steps: tuple[int, ...]
    """Of the columns between start and goal, the start's included."""

    @property
    def stride(self) -> int:
        return self.steps[1] - self.steps[0] if len(self.steps) > 1 else 1


@dataclass(frozen=True)
class Filmstrips:
    protocol: str
    episodes: tuple[Episode, ...]
    note: str

    @property
    def films(self) -> list[Film]:
        return [strip.film for episode in self.episodes for strip in episode.strips if strip.film is not None]

    @property
    def weight(self) -> str:
        """What the films add to the page, and how to get those with every step."""
        if not self.films:
            every = self.episodes[0].stride if self.episodes else 1
            return f"The films have a frame every {every} steps; plan with video=4 films every step of the first four pairs."
        size = sum(film.bytes for film in self.films) / 1e6
        return f"{len(self.films)} films have every step ({size:.1f} MB of this page); the others have the filmstrip's frames."


def filmstrips(methods: Sequence[Method]) -> Filmstrips | None:
    """Of the first protocol that kept frames; episodes whose outcome differs between models come first.

    Of a method with several training seeds the first one with frames is shown.
    """
    for protocol in protocols(methods):
        kept = []
        for method in methods:
            found = ((run, run.rollouts(protocol)) for run in method.runs if protocol in run.plans)
            kept += [(method, run, frames) for run, frames in found if frames][:1]
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
    videos = {id(run): films_of(run, protocol) for _, run, _ in same}
    episodes, left = [], MOST_FILMS
    for pair in chosen:
        paths = {key: path for key, found in videos.items() if left >= len(same) and (path := found.get(pair))}
        left -= len(paths)
        strips = tuple(
            _strip(method, run, frames, pair, records[id(run)][pair], protocol, paths.get(id(run)))
            for method, run, frames in same
        )
        record, steps = records[id(same[0][1])][pair], same[0][2]["real_steps"].tolist()
        columns = ("start", *(str(step) for step in steps[1:]), "goal")
        title = f"Pair {pair}: episode {record.get('episode')}, from step {record.get('start')}"
        episodes.append(Episode(title, differs[pair], strips, columns, tuple(steps)))
    note = f"{len(chosen)} of the {len(common)} pairs whose frames were kept for every model are shown."
    if any(len(method.runs) > 1 for method, *_ in same):
        note += f" Of several training seeds one is shown: {', '.join(method.title(run) for method, run, _ in same)}."
    if left_out:
        note += f" Left out, because planned on other pairs: {', '.join(left_out)}."
    return Filmstrips(protocol, tuple(episodes), note)


def _strip(
    method: Method,
    run: Run,
    frames: Mapping[str, np.ndarray],
    pair: int,
    record: Mapping[str, object],
    protocol: str,
    video: Path | None,
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
    return Strip(
        title=title,
        colour=method.colour,
        success=success,
        badge=badge,
        why=why,
        image=data_uri(Image.fromarray(pixels, "RGBA"), quality=88),
        alt=alt,
        pixels=pixels,
        side=_side(frames),
        taken=(True, *frames["taken"][at].tolist()[1:]),
        known=tuple(frames["imagined_known"][at].tolist()),
        film=None if video is None else read_rollout(video, frames["real"].shape[2]),
    )


def players(strips: Filmstrips | None) -> list[dict[str, Any]]:
    """For the page's script: what plays on each episode's screens. The filmstrips' own images are taken from the page."""
    return [
        {
            "steps": list(episode.steps),
            "strips": [
                {
                    "side": strip.side,
                    "gap": GAP,
                    "edge": EDGE,
                    "taken": strip.taken,
                    "known": strip.known,
                    "film": None if strip.film is None else in_page(strip.film),
                }
                for strip in episode.strips
            ],
        }
        for episode in (strips.episodes if strips else ())
    ]


def _side(frames: Mapping[str, np.ndarray]) -> int:
    return min(LARGEST, frames["real"].shape[2])


def _sprite(frames: Mapping[str, np.ndarray], at: int) -> np.ndarray:
    """Two rows: start · real frames · goal, and the imagined frames below theirs."""
    real_SHWC, imagined_SHWC = frames["real"][at], frames["imagined"][at]
    taken, known = frames["taken"][at], frames["imagined_known"][at]
    side = _side(frames)
    count = len(real_SHWC) + 1
    height, width = (number * (side + GAP) - GAP + 2 * EDGE for number in (2, count))
    sheet = np.zeros((height, width, 4), np.uint8)

    def put(row: int, column: int, frame_HWC: np.ndarray) -> None:
        top, left = EDGE + row * (side + GAP), EDGE + column * (side + GAP)
        small = (
            frame_HWC if frame_HWC.shape[:2] == (side, side) else np.asarray(Image.fromarray(frame_HWC).resize((side, side)))
        )
        sheet[top - EDGE : top + side + EDGE, left - EDGE : left + side + EDGE] = (*BORDER, 255)
        sheet[top : top + side, left : left + side, :3] = small

    put(0, 0, frames["start"][at])
    put(0, count - 1, frames["goal"][at])
    for column in range(1, len(real_SHWC)):
        if taken[column]:
            put(0, column, real_SHWC[column])
    for column in range(len(imagined_SHWC)):
        if known[column]:
            put(1, column, imagined_SHWC[column])
    return sheet
