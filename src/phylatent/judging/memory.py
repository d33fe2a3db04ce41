"""What judging takes of the machine's memory at least, told before anything is measured. What the data bounds is left out."""

from __future__ import annotations

from phylatent.judging.subject import Subject
from phylatent.machine import PROCESS, check_memory
from phylatent.schema import DiagnoseConfig, PlanConfig

FLOAT, DOUBLE = 4, 8


def check_planning(subject: Subject, settings: PlanConfig) -> None:
    """An error, with the numbers, if a search holds more candidates than this machine can."""
    values = settings.candidates * settings.horizon * subject.model.config.block_dim
    parts = {"plan.candidates and plan.horizon": values * FLOAT}
    parts["plan.workers"] = PROCESS * min(settings.workers or 1, settings.pairs * len(settings.seeds))
    check_memory(parts, "this search")


def check_diagnosis(settings: DiagnoseConfig) -> None:
    check_memory({"diagnose.bootstrap": settings.bootstrap * DOUBLE}, "this diagnosis")
