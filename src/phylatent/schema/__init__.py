"""What a task, a model and a run are, as frozen dataclasses. No torch here."""

from phylatent.schema.judging import PERTURBATIONS, PLAN_PROTOCOLS, SEVERITIES, DiagnoseConfig, PlanConfig
from phylatent.schema.settings import (
    AS_PUBLISHED,
    FAST,
    ClipConfig,
    CollectConfig,
    Config,
    ModelConfig,
    Settings,
    SplitConfig,
    TrainConfig,
)
from phylatent.schema.task import Normaliser, PhysicalTarget, Policy, Row, Rule, TaskSpec

__all__ = [
    "AS_PUBLISHED",
    "FAST",
    "PERTURBATIONS",
    "PLAN_PROTOCOLS",
    "SEVERITIES",
    "ClipConfig",
    "CollectConfig",
    "Config",
    "DiagnoseConfig",
    "ModelConfig",
    "Normaliser",
    "PhysicalTarget",
    "PlanConfig",
    "Policy",
    "Row",
    "Rule",
    "Settings",
    "SplitConfig",
    "TaskSpec",
    "TrainConfig",
]
