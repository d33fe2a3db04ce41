"""The map of the latent space on the page: a panel for each method, coloured by a physical coordinate, with pictures."""

# N states of a map, S physical coordinates

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from phylatent.diagnostics.latent_map import LatentMap
from phylatent.reporting.films import data_uri
from phylatent.reporting.harmless import in_plotly
from phylatent.reporting.inputs import Run
from phylatent.reporting.methods import Method
from phylatent.reporting.scatter import in_base64

ACROSS = 20
"""Pictures in a row of their sheet."""
MOST = 12
"""Panels on a page."""
QUALITY = 72
FEWEST_AXES = 2


@dataclass(frozen=True)
class Panel:
    title: str
    colour: str
    note: str
    latents: LatentMap


@dataclass(frozen=True)
class Maps:
    panels: tuple[Panel, ...]
    coordinates: tuple[str, ...]
    """What points can be coloured by: the names of all panels together."""
    note: str
    """What is left out, and why."""


def maps(methods: Sequence[Method]) -> Maps | None:
    """Of each method the first training seed that has one; None where nothing was diagnosed."""
    if not any(run.diagnosis for method in methods for run in method.runs):
        return None
    found = [(method, _first(method)) for method in methods]
    known = [(method, run) for method, run in found if run is not None][:MOST]
    panels = tuple(_panel(method, run, run.latents) for method, run in known if run.latents is not None)
    names = tuple(dict.fromkeys(name for panel in panels for name in panel.latents.coordinates))
    return Maps(
        panels, names, _note([method for method, run in found if run is None and _diagnosed(method)], len(found) - len(known))
    )


def _first(method: Method) -> Run | None:
    return next((run for run in method.runs if run.latents is not None and run.latents.scores.shape[1] >= FEWEST_AXES), None)


def _diagnosed(method: Method) -> bool:
    return any(run.diagnosis for run in method.runs)


def _panel(method: Method, run: Run, latents: LatentMap) -> Panel:
    share = sum(latents.explained[:FEWEST_AXES])
    return Panel(
        method.title(run),
        method.colour,
        f"{len(latents.scores):,} states; the two axes hold {share:.0%} of the variance",
        latents,
    )


def _note(without: Sequence[Method], absent: int) -> str:
    if not without or not absent:
        return ""
    names = ", ".join(method.label for method in without)
    return (
        f"Without a map: {names}. Its record was made before there were maps, or its latents could not be judged; "
        "phylatent diagnose RUN out=DIRECTORY measures it again, with one."
    )


def in_page(found: Maps | None) -> dict[str, Any]:
    """For the page's script. Models that were judged on the same states share their pictures and their coordinates."""
    samples: dict[str, dict[str, Any]] = {}
    panels = []
    for panel in found.panels if found else ():
        latents = panel.latents
        key = _identity(latents)
        if key not in samples:
            samples[key] = _sample(latents)
        x, y = (in_base64(latents.scores[:, axis].astype("<f4")) for axis in (0, 1))
        axes = [in_plotly(f"component {at + 1} ({share:.0%} of the variance)") for at, share in enumerate(latents.explained)]
        panels.append({"x": x, "y": y, "axes": axes, "sample": list(samples).index(key)})
    return {"panels": panels, "samples": list(samples.values())}


def _identity(latents: LatentMap) -> str:
    digest = hashlib.sha256(repr((latents.coordinates, latents.angles, latents.states.shape, latents.pictures.shape)).encode())
    for values in (latents.states, latents.pictures, latents.episodes, latents.steps):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _sample(latents: LatentMap) -> dict[str, Any]:
    height, width = latents.pictures.shape[1:3]
    count = len(latents.pictures)
    sheet = Image.new("RGB", (min(ACROSS, count) * width, -(-count // ACROSS) * height))
    for at, picture in enumerate(latents.pictures):
        sheet.paste(Image.fromarray(picture), (at % ACROSS * width, at // ACROSS * height))
    return {
        "image": data_uri(sheet, quality=QUALITY),
        "width": width,
        "height": height,
        "across": ACROSS,
        "names": list(latents.coordinates),
        "periods": [latents.angles.get(name) for name in latents.coordinates],
        "values": [in_base64(column.astype("<f4")) for column in latents.states.T],
        "episodes": latents.episodes.tolist(),
        "steps": latents.steps.tolist(),
    }
