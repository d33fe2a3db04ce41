"""A small diagnosis that is drawn once and asked again and again while a model trains."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from phylatent.data.readers import Episodes
from phylatent.data.stats import Split
from phylatent.diagnostics import choose
from phylatent.diagnostics.diagnose import diagnose_model
from phylatent.diagnostics.sample import Sample, make_sample
from phylatent.models.latent import LatentModel
from phylatent.schema import TEST, VALIDATION, ClipConfig, DiagnoseConfig, TaskSpec

LIMITS = {"states": 200, "frames": 300, "pairs": 5000, "branches": 50}


def shrink(settings: DiagnoseConfig) -> DiagnoseConfig:
    """The paper's protocol with one seed and few samples. One process: others may belong to the training."""
    fewer = {name: min(limit, getattr(settings, name)) for name, limit in LIMITS.items()}
    return replace(settings, protocol="paper", seeds=settings.seeds[:1], bootstrap=1, workers=1, **fewer)


def columns(settings: DiagnoseConfig) -> tuple[str, ...]:
    """The columns that a small diagnosis fills."""
    return tuple(f"diagnose/{name}" for name in choose(settings.diagnostics))


@dataclass(frozen=True, eq=False)
class SmallDiagnosis:
    task: TaskSpec
    episodes: Episodes
    split: Split
    clip: ClipConfig
    settings: DiagnoseConfig
    sample: Sample

    def __call__(self, model: LatentModel) -> dict[str, float]:
        """The rates by column name; NaN where there is none."""
        found = diagnose_model(
            model,
            task=self.task,
            episodes=self.episodes,
            split=self.split,
            clip=self.clip,
            settings=self.settings,
            sample=self.sample,
            mapped=False,
        )
        return {f"diagnose/{name}": math.nan if rate is None else rate for name, rate in found.rates.items()}


def make_small_diagnosis(
    *, task: TaskSpec, episodes: Episodes, split: Split, clip: ClipConfig, settings: DiagnoseConfig
) -> SmallDiagnosis:
    """On what training validates on."""
    small = replace(shrink(settings), split=TEST if split.two_way else VALIDATION)
    sample = make_sample(task=task, episodes=episodes, split=split, clip=clip, settings=small)
    return SmallDiagnosis(task, episodes, split, clip, small, sample)
