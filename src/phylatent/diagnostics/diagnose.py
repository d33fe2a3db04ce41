"""`diagnose_model`: the failure rates of one model, as a record that says what was counted and arrays that show it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phylatent.data.readers import Episodes
from phylatent.data.stats import Split
from phylatent.diagnostics import latent_map
from phylatent.diagnostics.findings import Findings
from phylatent.diagnostics.latents import Health, JudgedModel, Unfit, judged
from phylatent.diagnostics.material import Progress
from phylatent.diagnostics.rates import Measured
from phylatent.diagnostics.sample import Sample, describe, diagnostics_of, make_sample
from phylatent.files import atomic
from phylatent.models.latent import LatentModel
from phylatent.records import rated_sections, write_json
from phylatent.schema import PERTURBATIONS, ClipConfig, DiagnoseConfig, TaskSpec

HEALTH_FRAMES, HEALTH_STARTS = 64, 8


@dataclass(frozen=True, eq=False)
class Diagnosis:
    record: dict[str, Any]
    """Plain values, for JSON."""
    arrays: dict[str, np.ndarray]
    """`seed0/invariance/d_nuis` and so on: what a plot shows."""

    @property
    def rates(self) -> dict[str, float | None]:
        """The headline of each diagnostic."""
        return {name: self.record[name]["rate"] for name in rated_sections(self.record)}


def diagnose_model(
    model: LatentModel,
    *,
    task: TaskSpec,
    episodes: Episodes,
    split: Split,
    clip: ClipConfig,
    settings: DiagnoseConfig,
    seen: Sequence[str] | None = None,
    sample: Sample | None = None,
    progress: Progress | None = None,
    mapped: bool = True,
) -> Diagnosis:
    """Judge a model on the episodes that `settings.split` names.

    `sample` (see `make_sample`) is shared by models that are to be compared. `seen` are the perturbations whose form the model
    met in training, where that is known: they are then rated apart from the others. `mapped`: with a map of the latents,
    for the page.
    """
    started = time.perf_counter()
    if sample is None:
        sample = make_sample(task=task, episodes=episodes, split=split, clip=clip, settings=settings, progress=progress)
    assert sample.settings == describe(task, split, clip, settings), "a sample drawn with other settings"
    assert sample.seeds[0].keys() == diagnostics_of(settings).keys(), "a sample of other diagnostics"
    with judged(model) as subject:
        try:
            health = _check_health(subject, sample)
            measured = _measure(subject, sample, settings, progress)
            found = latent_map.make_map(subject, task, sample.held_out) if mapped else None
        except Unfit as error:
            health, measured, found = error.health, [], None
    record = {
        "protocol": settings.protocol,
        "settings": asdict(settings),
        "sample": sample.fingerprint,
        "seeds": list(settings.seeds),
        "data": {"name": episodes.path.name, "fingerprint": episodes.fingerprint()},
        "split": split.side(settings.split).facts,
        "health": asdict(health),
        "notes": list(sample.notes),
        "kinds": list(PERTURBATIONS),
        "strengths": sample.settings["bases"],
        "seconds": round(time.perf_counter() - started, 2),
    }
    arrays = {
        f"seed{seed}/{name}/{key}": values
        for seed, found in zip(settings.seeds, measured, strict=False)
        for name, one in found.items()
        for key, values in one.arrays.items()
    }
    if found is not None:
        record[latent_map.SECTION] = latent_map.section(found)
        arrays |= latent_map.arrays(found)
    return Diagnosis(record | _sections(measured, sample, settings, seen), arrays)


def save(diagnosis: Diagnosis, directory: Path, extra: Mapping[str, Any]) -> Path:
    """Write `<protocol>.npz` and then `<protocol>.json`, which is returned; `extra` is what only the caller knows."""
    path = directory / f"{diagnosis.record['protocol']}.json"
    with atomic(path.with_suffix(".npz")) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, allow_pickle=False, **diagnosis.arrays)
    write_json(path, diagnosis.record | dict(extra))
    return path


def _check_health(model: JudgedModel, sample: Sample) -> Health:
    """On frames from all over the held-out episodes, whatever was chosen; some are rolled out with the actions taken there."""
    held_out, blocks = sample.held_out, sample.material.settings.horizons[-1]
    starts = _evenly(held_out.rows_before(blocks), HEALTH_STARTS)
    rows = np.concatenate([starts, _evenly(held_out.rows, HEALTH_FRAMES - len(starts))])
    windows = held_out.actions_after(starts, blocks)[:, None]
    return model.check_health(held_out.episodes.frames, rows, windows)


def _evenly(rows: np.ndarray, count: int) -> np.ndarray:
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]


def _measure(
    model: JudgedModel, sample: Sample, settings: DiagnoseConfig, progress: Progress | None
) -> list[dict[str, Measured]]:
    """For each seed: diagnostic → what it found."""
    chosen = diagnostics_of(settings)
    measured: list[dict[str, Measured]] = [{} for _ in settings.seeds]
    steps = [(index, name) for index in range(len(settings.seeds)) for name in chosen]
    for done, (index, name) in enumerate(steps):
        if progress is not None:
            progress(f"measuring {name}", done, len(steps))
        drawn = sample.seeds[index][name]
        measured[index][name] = chosen[name].measure(model, drawn, sample.material, settings.seeds[index])
    if progress is not None:
        progress(f"measuring {steps[-1][1]}", len(steps), len(steps))
    return measured


def _sections(
    measured: Sequence[Mapping[str, Measured]], sample: Sample, settings: DiagnoseConfig, seen: Sequence[str] | None
) -> dict[str, Any]:
    """A model that could not be judged has every section too, with nothing counted and no rate."""
    sections = {}
    for name, diagnostic in diagnostics_of(settings).items():
        found = Findings(
            seeds=settings.seeds,
            samples=[drawn[name] for drawn in sample.seeds],
            measured=[one[name] for one in measured],
            replicates=settings.bootstrap,
            seen=seen,
        )
        sections[name] = found.headline() | diagnostic.beside_rate(found, settings)
    return sections
