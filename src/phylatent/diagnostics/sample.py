"""`make_sample`: the part of a diagnosis that does not depend on the model, done once for all models that are compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from phylatent.data.readers import Episodes
from phylatent.data.stats import Split
from phylatent.diagnostics import coordinates as physical
from phylatent.diagnostics import held_out
from phylatent.diagnostics.branches import Branches, Execution, execute
from phylatent.diagnostics.ordering import CONDITIONS
from phylatent.diagnostics.ordering_sample import STARTS, OrderingSample, constant_windows, draw_neighbours
from phylatent.machine import cores
from phylatent.schema import ClipConfig, DiagnoseConfig, TaskSpec

Progress = Callable[[str, int, int], None]
"""(what is being done, how much of it is done, how much there is in all)"""
NOT_DRAWN_FROM = ("workers", "every", "bootstrap")


@dataclass(frozen=True, eq=False)
class PaperSample:
    seed: int
    states: held_out.States
    pairs: held_out.Pairs
    branches: Branches


@dataclass(frozen=True, eq=False)
class Sample:
    """States, pairs and executed branches of every seed, and what identifies them."""

    settings: dict[str, Any]
    """All that the sample depends on, besides the data."""
    seeds: tuple[PaperSample | OrderingSample, ...]
    held: held_out.HeldOutRows
    coordinates: physical.Coordinates
    horizons: tuple[int, ...]
    """In ascending order."""
    fingerprint: str
    notes: tuple[str, ...]
    """Where there was less than was asked for."""


def make_sample(
    *,
    task: TaskSpec,
    episodes: Episodes,
    split: Split,
    clip: ClipConfig,
    settings: DiagnoseConfig,
    progress: Progress | None = None,
) -> Sample:
    """Rows, pairs and perturbations by seed, and the branches really executed in the simulator."""
    held = held_out.find_held_out_rows(episodes, split.side(settings.split), clip)
    ordering = settings.protocol == "ordering"
    if ordering:
        coordinates = physical.robust(task, episodes, split)
    else:
        coordinates = physical.z_scored(task, episodes, split, circular=settings.coordinates == "circular")
    draw = _Draw(task, clip, settings, held, coordinates, progress)
    seeds = tuple(draw.ordering(seed) if ordering else draw.paper(seed) for seed in settings.seeds)
    described = describe(task, split, clip, settings)
    return Sample(
        settings=described,
        seeds=seeds,
        held=held,
        coordinates=coordinates,
        horizons=draw.horizons,
        fingerprint=_fingerprint(described | {"data": episodes.fingerprint()}, seeds),
        notes=draw.notes(seeds[0]),
    )


def describe(task: TaskSpec, split: Split, clip: ClipConfig, settings: DiagnoseConfig) -> dict[str, Any]:
    """What a sample is drawn from, as plain values; the task's strengths of the perturbations are among them."""
    asked = {name: value for name, value in asdict(settings).items() if name not in NOT_DRAWN_FROM}
    fixed = {"bases": task.strengths(), "conditions": CONDITIONS}
    side = split.side(settings.split)
    drawn = asked | fixed | {"task": task.name, "stride": clip.stride, "split": side.name, "episodes": side.episodes}
    return json.loads(json.dumps(drawn))


@dataclass(frozen=True, eq=False)
class _Draw:
    task: TaskSpec
    clip: ClipConfig
    settings: DiagnoseConfig
    held: held_out.HeldOutRows
    coordinates: physical.Coordinates
    progress: Progress | None

    @property
    def horizons(self) -> tuple[int, ...]:
        return tuple(sorted(self.settings.horizons))

    @property
    def starts(self) -> int:
        return min(self.settings.branches, STARTS) if self.settings.protocol == "ordering" else self.settings.branches

    def paper(self, seed: int) -> PaperSample:
        settings, held = self.settings, self.held
        starts = held_out.draw_starts(held, count=self.starts, seed=seed)
        return PaperSample(
            seed=seed,
            states=held_out.draw_states(held, count=settings.states, seed=seed),
            pairs=held_out.draw_pairs(held, frames=settings.frames, count=settings.pairs, seed=seed),
            branches=self._execute(starts, held_out.draw_windows(held, starts, blocks=self.horizons[-1], seed=seed), seed),
        )

    def ordering(self, seed: int) -> OrderingSample:
        settings, held = self.settings, self.held
        starts = held_out.draw_starts(held, count=self.starts, seed=seed)
        window = constant_windows(held, self.task, stride=self.clip.stride, blocks=self.horizons[-1])
        neighbours = draw_neighbours(
            held,
            self.coordinates,
            pool=settings.pool,
            anchors=settings.anchors,
            references=settings.references,
            seed=seed,
        )
        return OrderingSample(seed, neighbours, self._execute(starts, np.repeat(window[None], len(starts), axis=0), seed))

    def _execute(self, starts: np.ndarray, windows: np.ndarray, seed: int) -> Branches:
        episodes = self.held.episodes
        done, total = self.settings.seeds.index(seed) * len(starts), len(self.settings.seeds) * len(starts)

        def tick() -> None:
            nonlocal done
            done += 1
            if self.progress is not None:
                self.progress("simulating branches", done, total)

        return execute(
            starts,
            windows,
            execution=Execution(self.task, episodes.frame_shape[0], episodes.render, self.clip.stride, self.horizons),
            episodes=self.held.episodes,
            workers=self.settings.workers or cores(),
            tick=tick,
        )

    def notes(self, first: PaperSample | OrderingSample) -> tuple[str, ...]:
        settings = self.settings
        notes = held_out.shortfall("starts of branches", len(first.branches.rows), self.starts)
        if isinstance(first, OrderingSample):
            notes += held_out.shortfall("frames in the pool", len(first.neighbours.rows), settings.pool)
            return tuple(notes)
        notes += held_out.shortfall("states", len(first.states.rows), settings.states)
        notes += held_out.shortfall("frames", len(first.pairs.rows), settings.frames)
        notes += held_out.shortfall("pairs", len(first.pairs.first), settings.pairs)
        if len(self.held.ids) < 3:
            notes.append("both windows of a branch come from one episode: fewer than three are held out")
        return tuple(notes)


def _fingerprint(described: dict[str, Any], seeds: tuple[PaperSample | OrderingSample, ...]) -> str:
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for one in seeds:
        arrays = [one.branches.rows, one.branches.windows]
        if isinstance(one, PaperSample):
            arrays += [one.states.rows, one.states.later, one.states.kinds, one.pairs.rows, one.pairs.first, one.pairs.second]
        else:
            arrays += [one.neighbours.rows, one.neighbours.references]
        for values in arrays:
            digest.update(repr((values.shape, values.dtype.str)).encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
