"""`make_sample`: the part of a diagnosis that does not depend on the model, done once for all models that are compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from phylatent.data.readers import Episodes
from phylatent.data.stats import Split
from phylatent.diagnostics import choose
from phylatent.diagnostics.coordinates import Coordinates, robust, z_scored
from phylatent.diagnostics.diagnostic import Diagnostic
from phylatent.diagnostics.held_out import HeldOutRows, find_held_out_rows
from phylatent.diagnostics.material import Material, Progress
from phylatent.diagnostics.ordering import CONDITIONS, ORDERING
from phylatent.schema import ClipConfig, DiagnoseConfig, TaskSpec

NOT_DRAWN_FROM = ("workers", "every", "bootstrap", "diagnostics")
"""Settings that change no sample. Which diagnostics were chosen shows in the fingerprint by their samples."""


@dataclass(frozen=True, eq=False)
class Sample:
    """What every diagnostic measures with every seed, and what identifies it."""

    settings: dict[str, Any]
    """All that the sample depends on, besides the data."""
    material: Material
    seeds: tuple[Mapping[str, Any], ...]
    """For each seed: diagnostic → its sample."""
    fingerprint: str
    notes: tuple[str, ...]
    """Where there was less than was asked for."""

    @property
    def held_out(self) -> HeldOutRows:
        return self.material.held_out


def diagnostics_of(settings: DiagnoseConfig) -> dict[str, Diagnostic[Any]]:
    """Those that `settings` ask for, in the order of the record's sections."""
    return ORDERING if settings.protocol == "ordering" else choose(settings.diagnostics)


def make_sample(
    *,
    task: TaskSpec,
    episodes: Episodes,
    split: Split,
    clip: ClipConfig,
    settings: DiagnoseConfig,
    progress: Progress | None = None,
) -> Sample:
    """Every diagnostic's own sample by seed; branches of actions are really executed in the simulator."""
    # Fingerprints and notes begin with the branches, as they did before diagnostics could be chosen.
    chosen = dict(sorted(diagnostics_of(settings).items(), key=lambda item: item[0] != "counterfactual"))
    held_out = find_held_out_rows(episodes, split.side(settings.split), clip)
    coordinates = _coordinates(task, episodes, split, settings)
    material = Material(task, clip, settings, held_out, coordinates, progress)
    seeds = tuple({name: one.draw(material, seed) for name, one in chosen.items()} for seed in settings.seeds)
    described = describe(task, split, clip, settings)
    digest = hashlib.sha256(json.dumps(described | {"data": episodes.fingerprint()}, sort_keys=True).encode())
    for found in seeds:
        for values in (values for name, one in chosen.items() for values in one.identity(found[name])):
            digest.update(repr((values.shape, values.dtype.str)).encode() + np.ascontiguousarray(values).tobytes())
    return Sample(
        settings=described,
        material=material,
        seeds=seeds,
        fingerprint=digest.hexdigest(),
        notes=tuple(note for name, one in chosen.items() for note in one.notes(seeds[0][name], material)),
    )


def describe(task: TaskSpec, split: Split, clip: ClipConfig, settings: DiagnoseConfig) -> dict[str, Any]:
    """What a sample is drawn from, as plain values; the task's strengths of the perturbations are among them."""
    asked = {name: value for name, value in asdict(settings).items() if name not in NOT_DRAWN_FROM}
    fixed = {"bases": task.strengths(), "conditions": CONDITIONS}
    side = split.side(settings.split)
    drawn = asked | fixed | {"task": task.name, "stride": clip.stride, "split": side.name, "episodes": side.episodes}
    return json.loads(json.dumps(drawn))


def _coordinates(task: TaskSpec, episodes: Episodes, split: Split, settings: DiagnoseConfig) -> Coordinates:
    if settings.protocol == "ordering":
        return robust(task, episodes, split)
    return z_scored(task, episodes, split, circular=settings.coordinates == "circular")
