"""A LeWM checkpoint as a model of ours, and a model of ours in LeWM's layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phylatent.errors import UserError
from phylatent.models.lewm.config import describe, infer_config, variant_of
from phylatent.models.lewm.files import BESIDE, CONFIG, WEIGHTS, Checkpoint, file_sha256
from phylatent.models.lewm.weights import load_strictly, to_lewm, translate
from phylatent.models.saved import config_misfit
from phylatent.models.world_model import WorldModel, WorldModelConfig
from phylatent.records import write_json
from phylatent.schema import Normaliser, TaskSpec


@dataclass(frozen=True)
class ScalesOfData:
    """What actions and physical targets are z-scored with, and what that was fitted on."""

    action: Normaliser
    target: Normaliser
    facts: Mapping[str, Any]


Fit = Callable[[str], ScalesOfData]
"""Of the data that the user names, for the task of that name."""


def from_lewm(checkpoint: Checkpoint, task: TaskSpec | None, fit: Fit | None) -> WorldModel:
    """The checkpoint's weights in a model of ours.

    It does not say what its actions were z-scored with, unless we exported it; `fit` gives that.
    """
    ours = translate(checkpoint.state)
    config = _restored(checkpoint, ours, task, fit) if checkpoint.beside else _completed(checkpoint, ours, task, fit)
    model = WorldModel(config)
    load_strictly(model, ours)
    return model


def write_lewm(model: WorldModel, folder: Path, *, keys: int, record: Mapping[str, Any]) -> None:
    """`config.json` and `weights.pt` as LeWM has them, and beside them what that layout has no place for."""
    description = describe(model.config)
    with (folder / WEIGHTS).open("wb") as handle:
        torch.save(to_lewm(model, keys=keys), handle)
    write_json(folder / CONFIG, description)
    beside = {"keys": keys, "sha256": file_sha256(folder / WEIGHTS), "config": asdict(model.config)}
    write_json(folder / BESIDE, {**record, **beside})


def _completed(checkpoint: Checkpoint, ours: Mapping[str, Tensor], task: TaskSpec | None, fit: Fit | None) -> WorldModelConfig:
    """What the checkpoint tells of itself, and what task and data add to it."""
    inferred = infer_config(ours, checkpoint.config)
    if task is None:
        raise UserError(
            f"{checkpoint.name} does not say which task it is for; give task=, and data= with the data it was trained on"
        )
    if inferred.action_dim != task.action_dim:
        raise UserError(
            f"{checkpoint.name} takes blocks of {inferred.block_dim} action values, but a block of {task.name} has "
            f"{inferred.clip.stride} × {task.action_dim}; give the task that it was trained on"
        )
    facts: dict[str, Any] = {"imported": {"source": checkpoint.name, "sha256": checkpoint.sha256}}
    scales = fit(task.name) if fit is not None else None
    return replace(
        inferred,
        task=task.name,
        variant=variant_of(checkpoint.config),
        action_low=task.action_low,
        action_high=task.action_high,
        action=scales.action if scales else None,
        target=scales.target if scales else None,
        provenance=facts | ({"statistics": dict(scales.facts)} if scales else {}),
    )


def _restored(checkpoint: Checkpoint, ours: Mapping[str, Tensor], task: TaskSpec | None, fit: Fit | None) -> WorldModelConfig:
    """What our own export kept beside the weights; it must be about these weights."""
    beside = checkpoint.beside or {}
    remedy = f"move {BESIDE} away and give task= and data="
    if beside.get("sha256") != checkpoint.sha256:
        raise UserError(f"{BESIDE} in {checkpoint.name} is about other weights than the ones beside it; {remedy}")
    try:
        if wrong := config_misfit(beside.get("config")):
            raise UserError(wrong)
        config = WorldModelConfig(**beside["config"])
    except UserError as error:
        raise UserError(f"{BESIDE} in {checkpoint.name} is not what phylatent export writes ({error}); {remedy}") from error
    inferred = infer_config(ours, checkpoint.config, stride=config.clip.stride)
    if (inferred.action_dim, inferred.clip, inferred.model) != (config.action_dim, config.clip, config.model):
        raise UserError(f"{BESIDE} in {checkpoint.name} says other sizes than the weights beside it have; {remedy}")
    if fit is not None and config.action is not None:
        raise UserError(f"{checkpoint.name} says itself what its actions are z-scored with; leave data= out, or {remedy}")
    if task is not None and task.name != config.task:
        raise UserError(f"{checkpoint.name} is a model of {config.task}, not of {task.name}; leave task= out")
    if fit is None or config.task is None:
        return config
    scales = fit(config.task)
    provenance = {**(config.provenance or {}), "statistics": dict(scales.facts)}
    return replace(config, action=scales.action, target=scales.target, provenance=provenance)
