"""What must be in a checkpoint before a run goes on from it or calls it good, so that Lightning meets no surprise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from phylatent.errors import UserError
from phylatent.reading import damaged
from phylatent.reading.shapes import COUNT, REAL, Rule, misfit
from phylatent.runs import checkpoints
from phylatent.training.module import StepModule
from phylatent.training.storage import DELETE, load_checkpoint

MORE_COUNTED = 16
"""Of what Lightning counts beside steps: more than twice the steps and this is no count of theirs."""
VERSION = r"[2-9]\d{0,3}\.\d{1,4}(\.\d{1,4})?((a|b|rc|\.post|\.dev)\d{1,9})*(\+[a-z0-9.]+)?"
PLAIN = Rule("a plain value", lambda value: value is None or isinstance(value, (bool, int, float)))
COUNTS = Rule("plain values by their names", lambda value: isinstance(value, dict) and _is_plain(value))
TENSOR = Rule("a tensor", lambda value: isinstance(value, Tensor) and value.layout == torch.strided)
PROGRESS = {"total": {"completed": COUNT, "*": COUNT}, "current": {"completed": COUNT, "*": COUNT}}
STEPS = "epoch_loop.automatic_optimization.optim_progress"
SHAPE = {
    "global_step": COUNT,
    "epoch": COUNT,
    "pytorch-lightning_version": Rule("a version", lambda value: isinstance(value, str) and bool(re.fullmatch(VERSION, value))),
    "state_dict": {"*": TENSOR},
    "callbacks?": {"*": dict},
    "loops": {
        "fit_loop": {
            STEPS: {"optimizer": {"step": PROGRESS, "zero_grad": PROGRESS}},
            "epoch_loop.batch_progress": PROGRESS | {"is_last_batch": bool},
            "epoch_loop.scheduler_progress": PROGRESS,
            "epoch_loop.state_dict": {"_batches_that_stepped?": COUNT},
            "epoch_progress": PROGRESS,
            "*": COUNTS,
        }
    },
    "optimizer_states": [
        {
            "state": {"*": {"step": TENSOR, "exp_avg": TENSOR, "exp_avg_sq": TENSOR, "*": TENSOR}},
            "param_groups": [
                {
                    "params": [COUNT],
                    "lr": REAL,
                    "betas": [REAL],
                    "eps": REAL,
                    "weight_decay": REAL,
                    "*": PLAIN,
                }
            ],
        }
    ],
    "lr_schedulers": [{"last_epoch": COUNT, "_step_count": COUNT, "base_lrs": [REAL], "_last_lr": [REAL], "lr_lambdas": list}],
}


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value.values())) if isinstance(value, dict) else PLAIN.holds(value)


def check_fits(path: Path, module: StepModule) -> int:
    """The step a checkpoint is at; an error unless it is whole, of this run's graph, and of finite numbers."""
    checkpoint = _read(path)
    _check_weights(path, checkpoint["state_dict"], module)
    _check_optimiser(path, checkpoint, module)
    step = int(checkpoint["global_step"])
    if step > module.total_steps:
        raise damaged(path, f"it is at {module.label} {step:,} of a run that ends at {module.total_steps:,}", DELETE)
    _check_counts(path, checkpoint, step)
    if name := first_not_finite(checkpoint):
        raise UserError(f"{path} holds numbers that are not finite ({name}), so it is no good one; {DELETE}")
    return step


def newest_good(directory: Path, *stages: str) -> Path | None:
    """The newest checkpoint of the stages, asked in this order, that can be read and holds finite numbers only."""
    for path in (path for stage in stages for path in reversed(checkpoints(directory, stage))):
        try:
            if first_not_finite(_read(path)) is None:
                return path
        except UserError:
            continue
    return None


def first_not_finite(checkpoint: Mapping[str, Any]) -> str | None:
    """The name of a tensor of the weights or of the optimiser that holds NaN or infinity."""
    return next((name for name, tensor in _tensors(checkpoint) if not tensor.isfinite().all()), None)


def _read(path: Path) -> dict[str, Any]:
    checkpoint = load_checkpoint(path)
    if wrong := misfit(checkpoint, SHAPE):
        raise damaged(path, f"it is not a whole phylatent checkpoint: {wrong}", DELETE)
    return checkpoint


def _tensors(checkpoint: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in checkpoint["state_dict"].items():
        yield name.removeprefix("graph."), tensor
    for optimiser in checkpoint["optimizer_states"]:
        for number, state in optimiser["state"].items():
            yield from ((f"{name} of the optimiser's parameter {number}", tensor) for name, tensor in state.items())


def _check_weights(path: Path, saved: Mapping[str, Tensor], module: StepModule) -> None:
    ours, changed = module.state_dict(), "was config.yaml changed?"
    for name in sorted(map(str, saved.keys() ^ ours.keys())):
        holder = "the checkpoint" if name in saved or name not in ours else "the run's configuration"
        raise UserError(f"{path} does not fit this run: only {holder} has {name.removeprefix('graph.')}; {changed}")
    for name, tensor in ours.items():
        if (saved[name].shape, saved[name].dtype) != (tensor.shape, tensor.dtype):
            raise UserError(
                f"{path} does not fit this run: {name.removeprefix('graph.')} is {_kind(saved[name], tensor)} in the "
                f"checkpoint and {_kind(tensor, saved[name])} in the run's configuration; {changed}"
            )


def _kind(tensor: Tensor, other: Tensor) -> str:
    """Its shape; its type where that is what differs."""
    return str(list(tensor.shape)) if tensor.shape != other.shape else str(tensor.dtype).removeprefix("torch.")


def _check_optimiser(path: Path, checkpoint: Mapping[str, Any], module: StepModule) -> None:
    """One optimiser with one group of all parameters that learn, and one schedule, as `configure_optimizers` makes them."""
    optimisers, schedules = checkpoint["optimizer_states"], checkpoint["lr_schedulers"]
    if len(optimisers) != 1 or len(schedules) != 1 or len(optimisers[0]["param_groups"]) != 1:
        raise damaged(path, "it has not one optimiser with one group and one schedule", DELETE)
    learning, group = module.learning(), optimisers[0]["param_groups"][0]
    if group["params"] != list(range(len(learning))) or len(group["betas"]) != 2:
        raise damaged(path, f"its optimiser is not one of {len(learning)} parameters", DELETE)
    for number, state in optimisers[0]["state"].items():
        if not isinstance(number, int) or not 0 <= number < len(learning):
            raise damaged(path, f"its optimiser has a parameter {number!r}", DELETE)
        for name, tensor in state.items():
            wanted = torch.Size() if name == "step" else learning[number].shape
            if tensor.shape != wanted or not tensor.is_floating_point():
                found = f"{name} of its optimiser's parameter {number} is {list(tensor.shape)}"
                raise damaged(path, f"{found}, expected {list(wanted)}", DELETE)
    if name := next(
        (name for name in schedules[0] if name == "optimizer" or callable(getattr(LambdaLR, str(name), None))), None
    ):
        raise damaged(path, f"its schedule has a {name}", DELETE)
    if len(schedules[0]["lr_lambdas"]) != 1 or schedules[0]["lr_lambdas"][0] is not None:
        raise damaged(path, "its schedule is not ours", DELETE)


def _check_counts(path: Path, checkpoint: Mapping[str, Any], step: int) -> None:
    """Lightning counts steps in several places; what it then does goes by the largest."""
    counted = checkpoint["loops"]["fit_loop"][STEPS]["optimizer"]["step"]["total"]["completed"]
    scheduled = checkpoint["lr_schedulers"][0]["last_epoch"]
    if not step == counted == scheduled:
        raise damaged(path, f"it is at step {step}, its optimiser at {counted} and its schedule at {scheduled}", DELETE)
    for name, count in _numbers(checkpoint["loops"]["fit_loop"], "loops.fit_loop"):
        if not 0 <= count <= 2 * step + MORE_COUNTED:
            raise damaged(path, f"{name} is {count:,} after {step:,} steps", DELETE)


def _numbers(found: Mapping[str, Any], where: str) -> Iterator[tuple[str, int]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{where}.{name}")
        elif isinstance(value, int):
            yield f"{where}.{name}", value
