"""What records may hold beside those of `report_records`: maps of the latents, and videos of the episodes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from report_records import SIDE, frame

from phylatent.diagnostics.latent_map import LatentMap, arrays, section
from phylatent.planning.films import write_video

STATES = 60


def latent_map(turn: float = 0.0, names: tuple[str, ...] = ("x", "y", "heading")) -> LatentMap:
    """States on a grid, mapped to where they are, turned by some angle; the third coordinate is an angle."""
    rng = np.random.default_rng(3)
    places = rng.uniform(6, SIDE - 6, (STATES, 2))
    states = np.column_stack([places, rng.uniform(0, 9, STATES)]).astype(np.float32)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return LatentMap(
        coordinates=names,
        angles={names[2]: 2 * np.pi},
        explained=(0.6, 0.3),
        scores=((places - places.mean(axis=0)) @ rotation).astype(np.float32),
        states=states,
        pictures=np.stack([frame(place, np.array([8.0, 8.0])) for place in places]),
        episodes=np.arange(STATES) // 4 + 700,
        steps=np.arange(STATES) % 4 * 10,
    )


def write_map(run: Path, found: LatentMap | None = None, **changed: Any) -> Path:
    """Put a map into a run's record; `changed` replaces arrays (None: leaves one out)."""
    found = found or latent_map()
    path = run / "diagnostics" / "paper.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"map": section(found)}))
    with np.load(path.with_suffix(".npz")) as before:
        held = dict(before) | arrays(found) | {f"map/{name}": values for name, values in changed.items()}
    np.savez(path.with_suffix(".npz"), **{name: values for name, values in held.items() if values is not None})
    return run


def write_films(run: Path, pairs: tuple[int, ...], steps: int = 12) -> dict[int, list[np.ndarray]]:
    """Videos as `plan video=…` writes them; returns the frames of each."""
    made = {}
    for pair in pairs:
        frames = [frame(np.array([6.0 + step, 8.0 + pair]), np.array([20.0, 20.0])) for step in range(steps)]
        frames[3] = frames[2]  # a step in which nothing moves
        trajectory: Any = SimpleNamespace(rows=[None] * steps, frames=dict(enumerate(frames)))
        outcome: Any = SimpleNamespace(first_success=None, success=False)
        start: Any = SimpleNamespace(goal_frame=frames[-1])
        folder = run / "planning" / "paper" / "videos"
        folder.mkdir(exist_ok=True)
        write_video(folder / f"pair{pair:03d}-failed.webp", start, trajectory, outcome)
        made[pair] = frames
    return made
