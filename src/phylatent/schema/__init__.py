"""What a task, a model and a run are, as frozen dataclasses. No torch here."""

from phylatent.schema.judging import PERTURBATIONS, PLAN_PROTOCOLS, DiagnoseConfig, PlanConfig
from phylatent.schema.settings import ClipConfig, CollectConfig, Config, ModelConfig, Settings, SplitConfig, TrainConfig
from phylatent.schema.task import Normaliser, PhysicalTarget, Row, Rule, TaskSpec

__all__ = [
    "PERTURBATIONS",
    "PLAN_PROTOCOLS",
    "ClipConfig",
    "CollectConfig",
    "Config",
    "DiagnoseConfig",
    "ModelConfig",
    "Normaliser",
    "PhysicalTarget",
    "PlanConfig",
    "Row",
    "Rule",
    "Settings",
    "SplitConfig",
    "TaskSpec",
    "TrainConfig",
]
