"""What happens around a training step: progress, validation, checkpoints, and an orderly stop on Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from phylatent.diagnostics.during_training import SmallDiagnosis
from phylatent.errors import Interrupted, PhylatentError
from phylatent.runs import CONFIG, checkpoint_file, checkpoints
from phylatent.training.checkpoint import first_not_finite
from phylatent.training.clock import Clock
from phylatent.training.module import LossNotFinite, StepModule
from phylatent.training.shares import INERT, inert
from phylatent.training.validation import Validator

KEPT = 2
ELSEWHERE = ("share", "r2")
"""What a validation measures for tables and figures alone."""


class TwoLines(Progress):
    """The bar with step, time left and speed, whatever the terminal's width, and the losses on a line of their own below it."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield Text(f"  {task.fields['losses']}", no_wrap=True, overflow="ellipsis")


class Metrics(L.Callback):
    """Every loss under its one name to the loggers, and to rank 0's terminal with clips per second and time left.

    It comes before `Checkpoints`: what a checkpoint knows is in the tables by then.
    """

    def __init__(self, console: Console, clips_per_step: int, every: int) -> None:
        self.console, self.clips_per_step, self.every = console, clips_per_step, every
        self.progress: Progress | None = None

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        assert isinstance(module, StepModule)
        self.started, self.first_step = time.perf_counter(), trainer.global_step
        if not trainer.is_global_zero or (self.console.is_jupyter and find_spec("ipywidgets") is None):
            return  # a notebook redraws through ipywidgets; without them Rich would complain
        self.progress = TwoLines(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[speed]} clips/s", markup=False),
            console=self.console,
            transient=True,
        )
        done, total = trainer.global_step, module.total_steps
        self.task = self.progress.add_task(module.title, total=total, completed=done, speed="–", losses="")
        self.progress.start()

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, StepModule)
        step = trainer.global_step
        speed = self.clips_per_step * (step - self.first_step) / (time.perf_counter() - self.started)
        if step % self.every == 0:
            values = module.table_row() | module.balanced_weights() | {"lr": module.rate, "clips_per_second": speed}
            for logger in trainer.loggers:
                logger.log_metrics({f"train/{name}": value for name, value in values.items()}, module.offset + step)
        if self.progress is not None:
            losses = " ".join(f"{name} {value:.3g}" for name, value in module.latest.items())
            self.progress.update(self.task, completed=step, speed=f"{speed:.0f}", losses=losses)

    def _stop(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: L.Trainer, module: L.LightningModule, exception: BaseException) -> None:
        self._stop()


def told(validation: dict[str, float]) -> str:
    """What a validation measured, for the terminal: losses, then read-out errors by dimension. validation.csv has all of it."""
    plain = {name: value for name, value in validation.items() if "/" not in name}
    errors = {name.removeprefix("error/"): value for name, value in validation.items() if name.startswith("error/")}
    rates = {name: value for name, value in validation.items() if name.partition("/")[0] not in (*ELSEWHERE, name, "error")}
    parts = [(plain, ""), (errors, "read-out errors: "), (rates, "")]
    lines = (title + "  ".join(f"{name} {value:.3g}" for name, value in part.items()) for part, title in parts if part)
    return "\n  ".join(lines)


@dataclass(frozen=True)
class Diagnosing:
    """A small diagnosis every so many steps. Only the first process has one; the others wait for it in their next step."""

    every: int
    columns: tuple[str, ...]
    diagnosis: SmallDiagnosis | None

    def __call__(self, module: StepModule, due: bool) -> dict[str, float]:
        """A table has the same columns in every row: NaN where nothing was diagnosed."""
        if due and self.diagnosis is not None:
            return self.diagnosis(module.graph.world_model)
        return dict.fromkeys(self.columns, math.nan)


class Validation(L.Callback):
    """Validates every so many steps and after the last one; logs under `val/` and prints one line.

    With `diagnosing`, also at each of its steps, and the rates are columns of the same table.
    """

    def __init__(
        self, validator: Validator, every: int, say: Callable[[str], None], diagnosing: Diagnosing | None = None
    ) -> None:
        self.validator, self.every, self.say, self.diagnosing = validator, every, say, diagnosing
        self.last: dict[str, float] = {}

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, StepModule)
        step = trainer.global_step
        diagnose = self.diagnosing is not None and (step % self.diagnosing.every == 0 or step == module.total_steps)
        if step % self.every and step < module.total_steps and not diagnose:
            return
        self.last = self.validator(module.graph, module.settings.seed)
        if self.diagnosing is not None:
            self.last |= self.diagnosing(module, diagnose)
        for logger in trainer.loggers:
            logger.log_metrics({f"val/{name}": value for name, value in self.last.items()}, module.offset + step)
        self.say(f"{module.label} {step}/{module.total_steps}, validation: {told(self.last)}")
        if idle := inert(self.last):
            self.say(f"  inert, with less than {INERT:.1%} of the gradient at Z and at Ẑ: {', '.join(idle)}")


class Checkpoints(L.Callback):
    """Saves by step and by time, and once more on Ctrl-C or SIGTERM, always between two whole steps.

    Every process decides alike, so that all of them save or stop at the same step.
    """

    def __init__(
        self, directory: Path, stage: str, every: int, minutes: float, how_to_go_on: str, clock: Clock, *, last: bool
    ) -> None:
        """`last`: whether nothing comes after this stage, so that a stop at its last step is none."""
        self.directory, self.stage, self.last = directory, stage, last
        self.every, self.minutes, self.how_to_go_on = every, minutes, how_to_go_on
        self.clock = clock
        self.asked_to_stop = False
        self.previous: dict[int, Any] = {}

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.saved_at = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.previous[number] = signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks for a stop after this step; a second one is served as usual."""
        self.asked_to_stop = True
        self._restore_signals()

    def _restore_signals(self) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)
        self.previous = {}

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, StepModule)
        decide = trainer.strategy.reduce_boolean_decision
        stop = decide(self.asked_to_stop, all=False)
        due = decide(time.monotonic() - self.saved_at >= 60 * self.minutes, all=False)
        if stop or due or trainer.global_step % self.every == 0 or trainer.global_step == module.total_steps:
            self._save(trainer, module)
        if stop and (trainer.global_step < module.total_steps or not self.last):
            done = f"{module.label} {trainer.global_step}"
            raise Interrupted(f"stopped after {done}, which is saved; go on with: {self.how_to_go_on}")

    def _save(self, trainer: L.Trainer, module: StepModule) -> None:
        module.stop_unless_weights_are_finite()
        self._stop_unless_all_is_finite(trainer, module)
        if not (self.directory / CONFIG).exists():  # it would come back as half a run
            raise PhylatentError(f"{self.directory} was moved or deleted while it was trained in; nothing was written there")
        trainer.save_checkpoint(checkpoint_file(self.directory, self.stage, trainer.global_step))
        self.clock.save()
        self.saved_at = time.monotonic()
        if trainer.is_global_zero:
            for old in checkpoints(self.directory, self.stage)[:-KEPT]:
                old.unlink()

    @staticmethod
    def _stop_unless_all_is_finite(trainer: L.Trainer, module: StepModule) -> None:
        """Weights are not all that goes on: statistics of layers and the optimiser's means can be lost before the weights are.

        Those of processes may differ, so that they decide together.
        """
        states = [{"state": optimizer.state_dict()["state"]} for optimizer in trainer.optimizers]
        broken = first_not_finite({"state_dict": module.state_dict(), "optimizer_states": states})
        if trainer.strategy.reduce_boolean_decision(broken is not None, all=False):
            step = f"{module.label} {trainer.global_step}"
            raise LossNotFinite(f"{broken or 'a tensor of another process'} is not finite after {step}; training stopped")

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._restore_signals()

    def on_exception(self, trainer: L.Trainer, module: L.LightningModule, exception: BaseException) -> None:
        self._restore_signals()
