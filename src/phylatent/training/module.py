"""The Lightning module: one step of the graph, its optimiser, and the watch over its losses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from phylatent.data.windows import Batch
from phylatent.errors import PhylatentError
from phylatent.randomness import Draws
from phylatent.schema import Config, TrainConfig
from phylatent.training.graph import Losses, TrainingGraph


class LossNotFinite(PhylatentError):
    """Names the terms that went wrong; where to go on from is added by the run."""

    shared = True


def rate_factor(step: int, train: TrainConfig, total_steps: int) -> float:
    """What the base rate is multiplied by at a step. The schedule has its own length, whatever the stopping step."""
    length = train.schedule_steps or total_steps
    warmup = round(train.warmup * length)
    if step < warmup:
        return (step + 1) / warmup
    if train.schedule == "constant":
        return 1.0
    if train.schedule == "hold":
        return min(1.0, max(0.0, (1 - step / length) / train.cooldown))
    done = min(1.0, (step - warmup) / max(1, length - warmup))
    return 0.5 * (1 + math.cos(math.pi * done))


def stop_unless_finite(losses: Mapping[str, float], where: str) -> None:
    broken = [name for name, value in losses.items() if name != "loss" and not math.isfinite(value)]
    if broken or not math.isfinite(losses["loss"]):
        named = " and ".join(broken) or "the weighted sum"
        raise LossNotFinite(f"the loss of {named} is not finite at {where}; training stopped")


def make_optimizer(parameters: Iterable[nn.Parameter], train: TrainConfig, *, fused: bool) -> torch.optim.Optimizer:
    """AdamW; `fused` does a step of all parameters in one call, to rounding the same."""
    return torch.optim.AdamW(parameters, lr=train.lr, weight_decay=train.weight_decay, fused=fused)


class StepModule(L.LightningModule):
    """What every stage of a training is to Lightning and to our callbacks: a graph, a number of steps, and the last losses."""

    title = "train"
    label = "step"
    """What the stage is called on its progress bar, and one step of it in sentences."""
    offset = 0
    """Steps of the run before this stage: tables count them all."""

    def __init__(self, graph: TrainingGraph, config: Config, total_steps: int) -> None:
        super().__init__()
        self.graph = graph
        self.settings = config
        self.total_steps = total_steps
        self.latest: dict[str, float] = {}
        """The last step's losses, as the mean over processes."""
        self.rate = 0.0

    @property
    def schedule(self) -> TrainConfig:
        """What the learning rate follows."""
        return self.settings.train

    def learning(self) -> list[nn.Parameter]:
        """The parameters that this stage changes."""
        return list(self.graph.parameters())

    def keep_losses(self, losses: Losses) -> Tensor:
        """Note the step's losses and rate, stop if one is not finite, and return what is to be minimised."""
        self.latest = losses.over_processes()
        stop_unless_finite(self.latest, f"{self.label} {self.global_step}")
        self.rate = self.settings.train.lr * rate_factor(self.global_step, self.schedule, self.total_steps)
        return losses.total

    def table_row(self) -> dict[str, float]:
        """Of the last losses, those that a table has beside the ones of other steps."""
        return self.latest

    def balanced_weights(self) -> dict[str, float]:
        """What the terms were last multiplied with, to be logged where it is not what the configuration says."""
        if self.graph.balance is None:
            return {}
        return {f"weight/{name}": float(weight) for name, weight in self.graph.weights.items()}

    def stop_unless_weights_are_finite(self) -> None:
        """Before a checkpoint: a finite loss can have gradients that are not, and then the weights are gone."""
        for name, parameter in self.graph.named_parameters():
            if not parameter.isfinite().all():
                raise LossNotFinite(f"{name} is not finite after {self.label} {self.global_step}; training stopped")

    def configure_optimizers(self) -> Any:
        schedule = self.schedule
        # Under mixed precision Lightning clips no gradients for a fused optimiser.
        fused = self.trainer.precision == "32-true" and self.device.type in ("cpu", "cuda")
        optimizer = make_optimizer(self.learning(), self.settings.train, fused=fused)
        factors = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, schedule, self.total_steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": factors, "interval": "step"}}


class TrainingModule(StepModule):
    """The joint training: every objective, every parameter."""

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        draws = Draws(self.settings.seed, self.global_step, self.device)
        rebalance = self.graph.balance is not None and self.global_step % self.settings.train.balance_every == 0
        return self.keep_losses(self.graph(*batch, draws, rebalance))
