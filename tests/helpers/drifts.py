"""A small diagnosis of slow drifts in TwoRooms, as tests ask for it."""

from __future__ import annotations

from typing import Any

from phylatent.data.readers import Episodes
from phylatent.data.stats import Split
from phylatent.diagnostics.diagnose import Diagnosis, diagnose_model
from phylatent.diagnostics.sample import Sample, make_sample
from phylatent.schema import ClipConfig, DiagnoseConfig
from phylatent.tasks import get_task

TASK = get_task("tworooms")
CLIP = ClipConfig()
SETTINGS = DiagnoseConfig(states=40, frames=60, pairs=500, branches=8, seeds=(0, 1), bootstrap=50, workers=1)
EPISODES, STEPS, SIZE = 8, 30, 48
SPLIT = Split(train=(0, 1), validation=(2,), test=(3, 4, 5, 6, 7), seed=0)


def draw(episodes: Episodes, settings: DiagnoseConfig = SETTINGS, split: Split = SPLIT) -> Sample:
    return make_sample(task=TASK, episodes=episodes, split=split, clip=CLIP, settings=settings)


def diagnose(model: Any, sample: Sample, settings: DiagnoseConfig = SETTINGS) -> Diagnosis:
    episodes = sample.held_out.episodes
    return diagnose_model(model, task=TASK, episodes=episodes, split=SPLIT, clip=CLIP, settings=settings, sample=sample)
