"""A training run from configuration to exported model: started, resumed, on one process or several."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import signal
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.loggers.logger import Logger
from rich.console import Console
from rich.markup import escape
from torch.utils.data import DataLoader

from phylatent.composition import save_config, to_dict, without_paths
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import Split, fit_statistics, split_episodes
from phylatent.data.windows import StepSampler, Windows, as_it_is, steps_per_epoch
from phylatent.diagnostics.small import make_small_diagnosis
from phylatent.errors import Interrupted, UserError
from phylatent.files import whole_directory
from phylatent.machine import cores, peak_memory_gb, resolve_device
from phylatent.objectives import TERMS
from phylatent.records import provenance, write_json
from phylatent.runs import (
    CONFIG,
    MODEL,
    RESULT,
    TENSORBOARD,
    check_data,
    check_free,
    claim,
    data_path,
    default_directory,
    go_on_command,
    newest_checkpoint,
)
from phylatent.schema import Config, TaskSpec
from phylatent.training.callbacks import Checkpoints, Diagnosing, Metrics, Validation
from phylatent.training.clock import Clock
from phylatent.training.graph import TrainingGraph, build, target_periods
from phylatent.training.module import LossNotFinite, TrainingModule
from phylatent.training.predictor_steps import predictor_windows, refine_predictor
from phylatent.training.result import TrainResult, read_result
from phylatent.training.storage import AtomicCheckpointIO, CsvTables, is_main, load_checkpoint
from phylatent.training.validation import Validator, make_validator


@dataclass(frozen=True)
class Prepared:
    """All a run needs, read and checked before its directory is touched."""

    config: Config
    device: str
    data: dict[str, Any]
    split: Split
    graph: TrainingGraph
    windows: Windows
    validator: Validator
    diagnosing: Diagnosing | None
    total_steps: int


def train(config: Config, *, out: Path | None = None, resume: bool = False) -> TrainResult:
    """Train, export to `out/model`, and leave `out/result.json`. `resume` continues what `out` holds."""
    started = time.perf_counter()
    directory = out or default_directory(config)
    config = with_data_path(config)
    if resume:
        if not (directory / CONFIG).exists():
            raise UserError(f"there is no run in {directory} to resume; leave out resume=true to start one")
        if (directory / RESULT).exists():
            return read_result(directory)
    elif is_main():
        check_free(directory)
    prepared = prepare(config)
    # With several processes Lightning starts this very command again for each: only the first one claims the directory.
    owner = claim(directory, resume=resume) if is_main() else contextlib.nullcontext()
    with owner:
        if is_main() and not (directory / CONFIG).exists():
            save_config(config, directory / CONFIG)
        return _fit(prepared, directory, started)


def with_data_path(config: Config) -> Config:
    """The configuration that names its data file in full, so that it means the same from any working directory."""
    return replace(config, data=str(data_path(config).resolve()))


def prepare(config: Config) -> Prepared:
    device = resolve_device(config.device)
    if device == "cpu":
        torch.set_num_threads(max(1, cores() // config.devices))
    if config.train.batch_size % config.devices:
        raise UserError(f"train.batch_size {config.train.batch_size} cannot be shared evenly by devices={config.devices}")
    if config.train.predictor_steps and not any(TERMS[name].of_prediction for name in config.terms):
        raise UserError("train.predictor_steps needs an objective that teaches the predictor, such as pred, among the terms")
    if config.train.wandb and importlib.util.find_spec("wandb") is None:
        raise UserError("train.wandb=true needs the wandb package: pip install 'phylatent[wandb]'")
    task = config.spec
    episodes = open_episodes(data_path(config), task)
    split = split_episodes(len(episodes.lengths), config.split)
    statistics = fit_statistics(episodes, task, split.train, periods=target_periods(config))
    windows = Windows(episodes, split.train, config.clip)
    predictor_windows(windows, config)  # what they lack shows now and not after the training
    return Prepared(
        config=config,
        device=device,
        data={"name": episodes.path.name, "episodes": len(episodes.lengths), "fingerprint": episodes.fingerprint()},
        split=split,
        graph=build(config, statistics.action, statistics.target, statistics.correlations),
        windows=windows,
        validator=make_validator(config, task, episodes, split),
        diagnosing=make_diagnosing(config, task, episodes, split),
        total_steps=planned_steps(config, len(windows)),
    )


def make_diagnosing(config: Config, task: TaskSpec, episodes: Episodes, split: Split) -> Diagnosing | None:
    if config.diagnose.every is None:
        return None
    small = None
    if is_main():
        small = make_small_diagnosis(task=task, episodes=episodes, split=split, clip=config.clip, settings=config.diagnose)
    return Diagnosing(config.diagnose.every, small)


def _fit(prepared: Prepared, directory: Path, started: float) -> TrainResult:
    _quiet()
    config, total_steps = prepared.config, prepared.total_steps
    if is_main():
        check_data(directory, prepared.data)
    newest = newest_checkpoint(directory)
    first_step = check_fits(newest, prepared.graph) if newest else 0
    clock = Clock(directory, started, earlier_unknown=newest is not None)
    clock.save()
    console = Console(stderr=True, quiet=not is_main())
    go_on = go_on_command(directory)

    validation = Validation(prepared.validator, config.train.validate_every, console.print, prepared.diagnosing)
    callbacks = [
        Metrics(console, config.train.batch_size, config.train.log_every),
        validation,
        Checkpoints(directory, config.train.checkpoint_every, config.train.checkpoint_minutes, go_on, clock),
    ]
    trainer = _trainer(config, prepared.device, directory, first_step, total_steps, callbacks)
    module = TrainingModule(prepared.graph, config, total_steps)
    loader = _loader(config, prepared.windows, total_steps, first_step, trainer)
    where = f"from step {first_step} " if first_step else ""
    console.print(f"training {config.variant} on {config.task} {where}to step {total_steps} → {escape(str(directory))}")
    try:
        trainer.fit(module, loader, ckpt_path=newest, weights_only=True)
    except LossNotFinite as error:
        raise LossNotFinite(f"{error}. Last good checkpoint: {newest_checkpoint(directory) or 'none yet'}") from error
    except SystemExit as error:  # Lightning's answer to a Ctrl-C that was not ours to take
        raise Interrupted(f"stopped at once; go on from the last checkpoint with: {go_on}") from error

    measured, before = validation.last or _last_validation(directory), None
    if config.train.predictor_steps:
        before = measured
        measured = before | _refine(prepared, trainer.strategy.root_device, console, go_on)
    result = TrainResult(
        directory=directory,
        steps=trainer.global_step,
        seconds=clock.seconds,
        starts=clock.starts,
        peak_memory_gb=round(peak_memory_gb(), 2),
        validation=measured,
        validation_before_predictor_steps=before,
    )
    if is_main():
        _finish(prepared, result)
    return result


def _refine(prepared: Prepared, device: torch.device, console: Console, go_on: str) -> dict[str, float]:
    """What validation says after the predictor's own steps. Killed in between, they begin again after the last checkpoint."""
    config = prepared.config
    console.print(f"the predictor alone, {config.train.predictor_steps} more steps on the latents of the training frames")
    try:
        refine_predictor(prepared.graph.to(device), prepared.windows, config, console.print)
    except KeyboardInterrupt as error:
        raise Interrupted(f"stopped during the predictor's own steps; go on with: {go_on}") from error
    return prepared.validator(prepared.graph, config.seed)


def _finish(prepared: Prepared, result: TrainResult) -> None:
    config = prepared.config
    made = provenance() | {"data": prepared.data, "seed": config.seed, "step": result.steps, "config": to_dict(config)}
    made |= {"seconds": result.seconds if math.isfinite(result.seconds) else None, "starts": result.starts}
    # A model gets published: it does not carry the paths of the machine that trained it.
    shared = {name: value for name, value in made.items() if name != "command"}
    shared["config"] = without_paths(config)
    model = prepared.graph.world_model
    model.config = model._hub_mixin_config = replace(model.config, split=prepared.split.to_dict(), provenance=shared)
    with whole_directory(result.directory / MODEL, replace=True) as folder:
        model.save_pretrained(folder)
    chosen = {"commit": made["commit"], "predictor_steps": config.train.predictor_steps, "trials": config.train.trials}
    record = asdict(result) | {"directory": result.directory.name} | chosen | {"provenance": made}
    write_json(result.directory / RESULT, record)


def planned_steps(config: Config, windows: int) -> int:
    train = config.train
    per_epoch = steps_per_epoch(windows, train.batch_size, train.max_steps_per_epoch)
    return train.steps or train.epochs * per_epoch


def check_fits(path: Path, graph: TrainingGraph) -> int:
    """The step a checkpoint is at; an error if it is of another shape than the run's graph."""
    checkpoint = load_checkpoint(path)
    saved = {name.removeprefix("graph."): tensor.shape for name, tensor in checkpoint["state_dict"].items()}
    ours = {name: tensor.shape for name, tensor in graph.state_dict().items()}
    for name in sorted(saved.keys() ^ ours.keys()):
        holder = "the checkpoint" if name in saved else "the run's configuration"
        raise UserError(f"{path} does not fit this run: only {holder} has {name}; was config.yaml changed?")
    for name, shape in ours.items():
        if saved[name] != shape:
            raise UserError(
                f"{path} does not fit this run: {name} is {list(saved[name])} in the checkpoint and {list(shape)} in the "
                "run's configuration; was config.yaml changed?"
            )
    return int(checkpoint["global_step"])


def _trainer(
    config: Config, device: str, directory: Path, first_step: int, total_steps: int, callbacks: list[L.Callback]
) -> L.Trainer:
    precision = config.train.precision
    if precision == "auto":
        precision = "bf16" if device == "cuda" else "fp32"
    loggers: list[Logger] = [
        CsvTables(directory, first_step),
        TensorBoardLogger(directory, name="", version=TENSORBOARD),
    ]
    if config.train.wandb:
        from lightning.pytorch.loggers import WandbLogger

        loggers.append(WandbLogger(project="phylatent", name=directory.name, save_dir=directory, config=to_dict(config)))
    return L.Trainer(
        accelerator="gpu" if device == "cuda" else device,
        devices=config.devices,
        strategy="ddp" if config.devices > 1 else "auto",
        precision="bf16-mixed" if precision == "bf16" else "32-true",
        max_steps=total_steps,
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


def _loader(config: Config, windows: Windows, total_steps: int, first_step: int, trainer: L.Trainer) -> DataLoader[Any]:
    sampler = StepSampler(
        len(windows),
        config.train.batch_size,
        seed=config.seed,
        total_steps=total_steps,
        max_steps_per_epoch=config.train.max_steps_per_epoch,
        first_step=first_step,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
    )
    workers = config.train.loader_workers
    return DataLoader(
        windows,
        batch_sampler=sampler,
        collate_fn=as_it_is,
        num_workers=workers,
        pin_memory=trainer.strategy.root_device.type == "cuda",
        persistent_workers=workers > 0,
        worker_init_fn=_ignore_interrupts,
        multiprocessing_context="spawn" if workers else None,
    )


def _last_validation(directory: Path) -> dict[str, float]:
    """For a run that was killed between its last step and its export."""
    rows = CsvTables.read(directory / CsvTables.FILES["val"])
    return {name: float(value) for name, value in rows[-1].items() if name != "step"} if rows else {}


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
