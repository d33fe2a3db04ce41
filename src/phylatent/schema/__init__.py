"""What a task, a model and a run are, as frozen dataclasses. No torch here."""

from phylatent.schema.diagnose import PAPER_DIAGNOSTICS, PERTURBATIONS, SEVERITIES, DiagnoseConfig
from phylatent.schema.plan import PLAN_PROTOCOLS, PlanConfig
from phylatent.schema.settings import (
    AS_PUBLISHED,
    CHOICES,
    FAST,
    ClipConfig,
    CollectConfig,
    Config,
    ModelConfig,
    PrepareConfig,
    Settings,
    SplitConfig,
    TrainConfig,
)
from phylatent.schema.split import HELD_OUT, TEST, VALIDATION, split_note
from phylatent.schema.task import Normaliser, PhysicalTarget, Policy, Row, Rule, TaskSpec

__all__ = [
    "AS_PUBLISHED",
    "CHOICES",
    "FAST",
    "HELD_OUT",
    "PAPER_DIAGNOSTICS",
    "PERTURBATIONS",
    "PLAN_PROTOCOLS",
    "SEVERITIES",
    "TEST",
    "VALIDATION",
    "ClipConfig",
    "CollectConfig",
    "Config",
    "DiagnoseConfig",
    "ModelConfig",
    "Normaliser",
    "PhysicalTarget",
    "PlanConfig",
    "Policy",
    "PrepareConfig",
    "Row",
    "Rule",
    "Settings",
    "SplitConfig",
    "TaskSpec",
    "TrainConfig",
    "split_note",
]
