"""What a training takes of the machine's memory at least, told from its configuration before anything is built.

Lower bounds only: a run that would fit is never refused. They are told on torch's meta device, where tensors have shapes and
no values, and for two layers in the place of many, since a hundred million layers take up memory even without values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from phylatent.errors import UserError
from phylatent.machine import PROCESS, check_memory
from phylatent.objectives.sigreg import SigregSettings
from phylatent.schema import Config
from phylatent.training.graph import build

FLOAT = 4
COPIES = 4
"""Of every parameter: itself, its gradient, and AdamW's two averages."""
LAYERS = ("depth", "predictor_depth")


def check_fits_memory(config: Config) -> None:
    """An error, with the numbers, if this machine cannot train this configuration."""
    check_memory(needed_bytes(config), "this training")


def needed_bytes(config: Config) -> dict[str, int]:
    """The keys that decide a part → its bytes, at least."""
    clip, model, train = config.clip, config.model, config.train
    frames = train.batch_size * clip.frames
    parts = {
        "train.batch_size, clip.frames and model.image_size": frames * 3 * model.image_size**2 * FLOAT,
        "train.batch_size and model.width": frames * model.width * FLOAT,
        "devices and train.loader_workers": (config.devices - 1 + train.loader_workers) * PROCESS,
    }
    sigreg = config.objective_settings.get("sigreg")
    if isinstance(sigreg, SigregSettings):
        parts["sigreg.directions"] = sigreg.directions * (frames + model.width + 2 * clip.frames * sigreg.knots) * FLOAT
    return parts | {"the model's sizes (model.*)": COPIES * FLOAT * config.devices * _parameters(config)}


def _parameters(config: Config) -> int:
    """Those of the whole graph: every layer of a stack has as many as the next."""
    small = {name: min(getattr(config.model, name), 1) for name in LAYERS}
    base = _count(config, small)
    more = 0
    for name in LAYERS:
        extra = getattr(config.model, name) - 1
        if extra > 0:
            more += extra * (_count(config, small | {name: 2}) - base)
    return base + more


def _count(config: Config, layers: Mapping[str, Any]) -> int:
    try:
        with torch.device("meta"):
            graph: nn.Module = build(replace(config, model=replace(config.model, **layers)))
        return sum(parameter.numel() for parameter in graph.parameters())
    except (RuntimeError, OverflowError, MemoryError, TypeError) as error:  # sizes whose product has no name in 64 bits
        if isinstance(error, TypeError) and "Overflow" not in str(error):
            raise
        raise UserError(
            f"the model's sizes are more than any machine has ({str(error).splitlines()[0]}); give smaller values of model.*"
        ) from error
