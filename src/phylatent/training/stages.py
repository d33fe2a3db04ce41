"""A stage of a training as Lightning runs it: trainer, loader, callbacks, and the checkpoint it goes on from."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.strategies import DDPStrategy
from rich.console import Console
from rich.text import Text
from torch.utils.data import DataLoader

from phylatent.composition import to_dict
from phylatent.data.read_ahead import ReadAhead
from phylatent.data.windows import StepSampler, Windows, as_it_is
from phylatent.errors import Interrupted
from phylatent.extras import missing
from phylatent.runs import JOINT, TENSORBOARD, go_on_command, newest_checkpoint
from phylatent.schema import Config
from phylatent.texts import printable
from phylatent.training.callbacks import Checkpoints, Diagnosing, Metrics, Validation
from phylatent.training.checkpoint import check_fits, newest_good
from phylatent.training.clock import Clock
from phylatent.training.module import LossNotFinite, StepModule
from phylatent.training.predictor_steps import ClipsWithoutFrames
from phylatent.training.storage import AtomicCheckpointIO, CsvTables
from phylatent.training.validation import Validator


@dataclass(frozen=True)
class Surroundings:
    """What all stages of a run share."""

    config: Config
    device: str
    directory: Path
    validator: Validator
    diagnosing: Diagnosing | None
    clock: Clock
    console: Console


@dataclass(frozen=True)
class Stage:
    """A module, the clips it sees and in which order, and the name of its checkpoints."""

    name: str
    module: StepModule
    windows: Windows | ClipsWithoutFrames
    batch_size: int
    """The clips of one step, over all processes together."""
    seed: int
    opening: str
    """The sentence that it begins with, up to its steps."""
    max_steps_per_epoch: int | None = None
    last: bool = True
    """Whether no other stage comes after it."""
    unused_parameters: bool = False
    """Whether its losses leave some parameters out, which several processes have to know."""


def fit(stage: Stage, run: Surroundings) -> dict[str, float]:
    """Run a stage to its last step, from its newest checkpoint if it has one; returns its last validation.

    Empty where a stage that was finished before had nothing left to do.
    """
    _quiet()
    config, module = run.config, stage.module
    newest = newest_checkpoint(run.directory, stage.name)
    first_step = check_fits(newest, module) if newest else 0
    go_on = go_on_command(run.directory)
    validation = Validation(run.validator, config.train.validate_every, run.console.print, run.diagnosing)
    saving = (config.train.checkpoint_every, config.train.checkpoint_minutes, go_on, run.clock)
    callbacks = [
        Metrics(run.console, stage.batch_size, config.train.log_every),
        validation,
        Checkpoints(run.directory, stage.name, *saving, last=stage.last),
    ]
    trainer = _trainer(stage, run, first_step, callbacks)
    loader = _loader(stage, config, first_step, trainer)
    run.clock.save()  # from here on it counts: everything that it goes on from was read
    where = f"from step {first_step} " if first_step else ""
    opening = f"{stage.opening} {where}to step {module.total_steps} → {run.directory}"
    run.console.print(Text(printable(opening)))
    try:
        trainer.fit(module, loader, ckpt_path=newest, weights_only=True)
    except LossNotFinite as error:
        good = newest_good(run.directory, *dict.fromkeys((stage.name, JOINT)))
        raise LossNotFinite(f"{error}. Last good checkpoint: {good or 'none yet'}") from error
    except SystemExit as error:  # Lightning's answer to a Ctrl-C that was not ours to take
        raise Interrupted(f"stopped at once; go on from the last checkpoint with: {go_on}") from error
    return validation.last


def _trainer(stage: Stage, run: Surroundings, first_step: int, callbacks: list[L.Callback]) -> L.Trainer:
    config, directory = run.config, run.directory
    precision = config.train.precision
    if precision == "auto":
        precision = "bf16" if run.device == "cuda" else "fp32"
    loggers: list[Logger] = [CsvTables(directory, stage.module.offset + first_step)]
    if not missing("tensorboard"):
        loggers.append(TensorBoardLogger(directory, name="", version=TENSORBOARD))
    if config.train.wandb:
        from lightning.pytorch.loggers import WandbLogger

        loggers.append(WandbLogger(project="phylatent", name=directory.name, save_dir=directory, config=to_dict(config)))
    return L.Trainer(
        accelerator="gpu" if run.device == "cuda" else run.device,
        devices=config.devices,
        strategy=DDPStrategy(find_unused_parameters=stage.unused_parameters) if config.devices > 1 else "auto",
        precision="bf16-mixed" if precision == "bf16" else "32-true",
        max_steps=stage.module.total_steps,
        max_epochs=-1,
        gradient_clip_val=config.train.clip_norm or None,
        callbacks=callbacks,
        logger=loggers,
        log_every_n_steps=1,  # what is logged when is up to Metrics; this silences advice about short runs
        plugins=[AtomicCheckpointIO()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=directory,
    )


def _loader(stage: Stage, config: Config, first_step: int, trainer: L.Trainer) -> DataLoader[Any] | ReadAhead:
    sampler = StepSampler(
        len(stage.windows),
        stage.batch_size,
        seed=stage.seed,
        total_steps=stage.module.total_steps,
        max_steps_per_epoch=stage.max_steps_per_epoch,
        first_step=first_step,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
    )
    workers, pin_memory = config.train.loader_workers, trainer.strategy.root_device.type == "cuda"
    if workers and isinstance(stage.windows, Windows) and stage.windows.episodes.store.at_hand:
        return ReadAhead(stage.windows, sampler, workers, pin_memory=pin_memory)
    return DataLoader(
        stage.windows,
        batch_sampler=sampler,
        collate_fn=as_it_is,
        num_workers=workers,
        pin_memory=pin_memory,
        persistent_workers=workers > 0,
        worker_init_fn=_ignore_interrupts,
        multiprocessing_context="spawn" if workers else None,
    )


def _ignore_interrupts(worker: int) -> None:
    """Ctrl-C reaches every process of a terminal: the one that trains answers it, and still needs its loaders until then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _quiet() -> None:
    """Lightning's advice that does not apply: our sampler resumes by step, and its data is read ahead where it matters."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*your dataloader is not resumable.*",
        ".*`IterableDataset` has `__len__` defined.*",
        ".*Checkpoint directory .* exists and is not empty.*",
        ".*tensorboardX.*",
        ".*isinstance.treespec, LeafSpec.*",
    ):
        warnings.filterwarnings("ignore", message=message)
    threading.excepthook = _tell_unless_told


def _tell_unless_told(failed: threading.ExceptHookArgs) -> None:
    """TensorBoard's writer raises its error once more in the thread that trains, where it becomes a sentence."""
    if type(failed.thread).__name__ != "_AsyncWriterThread":
        threading.__excepthook__(failed)
