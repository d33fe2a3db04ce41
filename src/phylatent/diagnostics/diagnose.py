"""`diagnose_model`: the three rates of one model, as a record that says what was counted and arrays that show it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phylatent.data.readers import Episodes
from phylatent.data.stats import Split
from phylatent.diagnostics import counterfactual, identifiability, invariance, ordering
from phylatent.diagnostics.identifiability import Q_LAT, THRESHOLDS, threshold_name
from phylatent.diagnostics.latents import Health, Unfit, check_health, judged
from phylatent.diagnostics.ordering_sample import OrderingSample
from phylatent.diagnostics.rates import Measured, Rate, over_seeds
from phylatent.diagnostics.sample import PaperSample, Progress, Sample, describe, make_sample
from phylatent.files import atomic
from phylatent.models.latent import LatentModel
from phylatent.records import write_json
from phylatent.schema import PERTURBATIONS, ClipConfig, DiagnoseConfig, TaskSpec

HEALTH_FRAMES, HEALTH_STARTS = 64, 8
NOTHING = Rate(failures=0, eligible=0, rate=None, interval=None)


@dataclass(frozen=True, eq=False)
class Diagnosis:
    record: dict[str, Any]
    """Plain values, for JSON."""
    arrays: dict[str, np.ndarray]
    """`seed0/invariance/d_nuis` and so on: what a plot draws."""

    @property
    def rates(self) -> dict[str, float | None]:
        """The headline of each diagnostic."""
        return {name: self.record[name]["rate"] for name in SECTIONS[self.record["protocol"]]}


SECTIONS = {
    "paper": ("invariance", "identifiability", "counterfactual"),
    "ordering": ("invariance", "distinguishability", "counterfactual"),
}


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
) -> Diagnosis:
    """Judge a model on the episodes that `settings.split` names.

    `sample` (see `make_sample`) is shared by models that are to be compared. `seen` are the perturbations whose form the model
    met in training, where that is known: they are then rated apart from the others.
    """
    started = time.perf_counter()
    if sample is None:
        sample = make_sample(task=task, episodes=episodes, split=split, clip=clip, settings=settings, progress=progress)
    assert sample.settings == describe(task, split, clip, settings), "a sample drawn with other settings"
    measured: list[dict[str, Measured]] = []
    with judged(model):
        try:
            health = _check(model, sample)
            for index, one in enumerate(sample.seeds):
                tell = _teller(progress, index, len(sample.seeds))
                measured.append(
                    _measure_paper(model, one, sample, settings, tell)
                    if isinstance(one, PaperSample)
                    else _measure_ordering(model, one, sample, settings, tell)
                )
        except Unfit as error:
            health, measured = error.health, []
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
    return Diagnosis(record | _sections(measured, sample, settings, seen), arrays)


def save(diagnosis: Diagnosis, directory: Path, extra: Mapping[str, Any]) -> Path:
    """Write `<protocol>.npz` and then `<protocol>.json`, which is returned; `extra` is what only the caller knows."""
    path = directory / f"{diagnosis.record['protocol']}.json"
    with atomic(path.with_suffix(".npz")) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, allow_pickle=False, **diagnosis.arrays)
    write_json(path, diagnosis.record | dict(extra))
    return path


Tell = Callable[[str, int], None]


def _teller(progress: Progress | None, seed: int, seeds: int) -> Tell:
    def tell(what: str, done: int) -> None:
        if progress is not None:
            progress(f"measuring {what}", 3 * seed + done, 3 * seeds)

    return tell


def _check(model: LatentModel, sample: Sample) -> Health:
    """On frames of the sample; its first starts are rolled out with the actions they will be judged by."""
    first = sample.seeds[0]
    rows = first.pairs.rows if isinstance(first, PaperSample) else first.neighbours.rows
    starts = first.branches.rows[:HEALTH_STARTS]
    return check_health(
        model,
        sample.held.episodes.frames,
        np.concatenate([starts, rows[: HEALTH_FRAMES - len(starts)]]),
        first.branches.windows[:HEALTH_STARTS],
    )


def _measure_paper(
    model: LatentModel, one: PaperSample, sample: Sample, settings: DiagnoseConfig, tell: Tell
) -> dict[str, Measured]:
    held, coordinates = sample.held, sample.coordinates
    tell("invariance", 0)
    strengths = sample.settings["bases"]
    appearance = invariance.measure(model, one.states, held, strengths=strengths, severity=settings.severity, seed=one.seed)
    tell("identifiability", 1)
    folding = identifiability.measure(model, one.pairs, held, coordinates)
    tell("counterfactual", 2)
    separation = counterfactual.measure(
        model, one.branches, held, coordinates, horizons=sample.horizons, headline=settings.horizons[-1]
    )
    tell("counterfactual", 3)
    return dict(zip(SECTIONS["paper"], (appearance, folding, separation), strict=True))


def _measure_ordering(
    model: LatentModel, one: OrderingSample, sample: Sample, settings: DiagnoseConfig, tell: Tell
) -> dict[str, Measured]:
    tell("neighbours", 0)
    appearance, distinct = ordering.measure_neighbours(model, one.neighbours, sample.held)
    tell("counterfactual", 2)
    separation = ordering.measure_branches(
        model,
        one.branches,
        sample.held,
        sample.coordinates,
        horizons=sample.horizons,
        headline=settings.horizons[-1],
    )
    tell("counterfactual", 3)
    return dict(zip(SECTIONS["ordering"], (appearance, distinct, separation), strict=True))


def _sections(
    measured: Sequence[dict[str, Measured]], sample: Sample, settings: DiagnoseConfig, seen: Sequence[str] | None
) -> dict[str, Any]:
    """A model that could not be judged has every section too, with nothing counted and no rate."""
    table = _Table(measured, settings)
    horizons = [str(horizon) for horizon in sample.horizons]
    separation = {"horizon": settings.horizons[-1], "by_horizon": table.beside("counterfactual", horizons)}
    if settings.protocol == "ordering":
        conditions = [f"{kind} {strength:g}" for kind, strength in ordering.CONDITIONS]
        beside = table.beside("invariance", conditions)
        return {
            "invariance": table.headline("invariance") | {"by_condition": beside},
            "distinguishability": table.headline("distinguishability"),
            "counterfactual": table.headline("counterfactual") | separation,
        }
    pairs = sum(len(one.pairs.first) for one in sample.seeds if isinstance(one, PaperSample))

    def of_all_pairs(entry: dict[str, Any]) -> dict[str, Any]:
        return entry | {"share_of_all_pairs": entry["failures"] / pairs if entry["rate"] is not None else None}

    names = [threshold_name(*threshold) for threshold in THRESHOLDS]
    entries = table.beside("identifiability", names).values()
    thresholds = [
        {"q_phys": q_phys, "q_lat": q_lat} | of_all_pairs(entry)
        for (q_phys, q_lat), entry in zip(THRESHOLDS, entries, strict=True)
    ]
    folding = of_all_pairs(table.headline("identifiability")) | {"chance": Q_LAT / 100, "thresholds": thresholds}
    return {
        "invariance": table.headline("invariance")
        | {"by_kind": table.beside("invariance", PERTURBATIONS)}
        | ({} if seen is None else _by_form(table, seen)),
        "identifiability": folding,
        "counterfactual": table.headline("counterfactual")
        | {"pairs": sum(len(one.branches.rows) for one in sample.seeds)}
        | separation,
    }


def _by_form(table: _Table, seen: Sequence[str]) -> dict[str, Any]:
    """Over all states under every kind of a group; a group without a kind has no rate."""
    groups = {"seen": [kind for kind in PERTURBATIONS if kind in seen]}
    groups["unseen"] = [kind for kind in PERTURBATIONS if kind not in seen]
    return {name: table.pooled("invariance", kinds) | {"kinds": kinds} for name, kinds in groups.items()}


@dataclass(frozen=True, eq=False)
class _Table:
    """What was measured with every seed, put together."""

    measured: Sequence[dict[str, Measured]]
    settings: DiagnoseConfig

    def headline(self, name: str) -> dict[str, Any]:
        found = [one[name] for one in self.measured]
        rate, spread = self._rate([one.headline for one in found])
        seeds = [
            {
                "seed": seed,
                "failures": int(one.headline.failures.sum()),
                "eligible": int(one.headline.eligible.sum()),
                "rate": one.headline.share,
                **one.facts,
            }
            for seed, one in zip(self.settings.seeds, found, strict=False)
        ]
        return rate.to_dict() | {"spread": spread, "per_seed": seeds}

    def beside(self, name: str, conditions: Sequence[str]) -> dict[str, dict[str, Any]]:
        return {
            condition: self._rate([one[name].beside[condition] for one in self.measured])[0].to_dict()
            for condition in conditions
        }

    def pooled(self, name: str, conditions: Sequence[str]) -> dict[str, Any]:
        """The rate of these conditions together."""
        if not conditions:
            return NOTHING.to_dict()
        found = [[one[name].beside[condition] for condition in conditions] for one in self.measured]
        return self._rate([sum(counts[1:], counts[0]) for counts in found])[0].to_dict()

    def _rate(self, counts: Sequence[Any]) -> tuple[Rate, float | None]:
        return over_seeds(counts, replicates=self.settings.bootstrap) if counts else (NOTHING, None)
