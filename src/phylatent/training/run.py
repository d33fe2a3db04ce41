"""A training run from configuration to exported model: started, resumed, on one process or several."""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from phylatent.composition import save_config, to_dict, without_paths
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import Split, fit_statistics, split_episodes
from phylatent.data.windows import Windows, steps_per_epoch
from phylatent.diagnostics.during_training import columns, make_small_diagnosis
from phylatent.errors import Interrupted, UserError
from phylatent.extras import install, missing, need
from phylatent.files import in_full, whole_directory
from phylatent.machine import cores, has_compiler, keep_freed_memory, peak_memory_gb, resolve_device
from phylatent.objectives import OBJECTIVES
from phylatent.records import provenance, write_json
from phylatent.runs import (
    CONFIG,
    JOINT,
    MODEL,
    PREDICTOR,
    RESULT,
    TRAIN_TABLE,
    check_data,
    check_free,
    claim,
    data_path,
    default_directory,
    holds_something,
    newest_checkpoint,
)
from phylatent.schema import Config, TaskSpec
from phylatent.training.callbacks import Diagnosing
from phylatent.training.clock import Clock
from phylatent.training.graph import TrainingGraph, build, target_periods
from phylatent.training.memory import check_fits_memory
from phylatent.training.module import LossNotFinite, TrainingModule
from phylatent.training.predictor_steps import ClipsWithoutFrames, PredictorModule, predictor_windows
from phylatent.training.result import TrainResult, read_result
from phylatent.training.stages import Stage, Surroundings, fit
from phylatent.training.storage import is_main, validation_at
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


def train(config: Config, *, out: str | Path | None = None, resume: bool = False) -> TrainResult:
    """Train, export to `out/model`, and leave `out/result.json`. `resume` continues what `out` holds.

    >>> config = phylatent.compose("tworooms", "smoke", "lewm", [f"data={data}", "train.steps=2"])
    >>> result = phylatent.train(config, out="runs/mine")
    >>> result.steps, sorted(path.name for path in (result.directory / "model").iterdir())
    (2, ['README.md', 'config.json', 'model.safetensors'])
    """
    started = time.perf_counter()
    directory = in_full(out) or default_directory(config)
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
    with owner, gone_unless_begun(directory):
        if is_main() and not (directory / CONFIG).exists():
            save_config(config, directory / CONFIG)
        return _fit(prepared, directory, started)


@contextlib.contextmanager
def gone_unless_begun(directory: Path) -> Iterator[None]:
    """A run that fails before its first checkpoint, and that was nothing before, leaves nothing behind to be in the way.

    Whoever calls it holds the directory: what another process has just begun there is not for us to take away.
    """
    there = holds_something(directory)
    try:
        yield
    except (LossNotFinite, Interrupted):  # what it did until then says why
        raise
    except Exception:
        begun = newest_checkpoint(directory) is not None or (directory / TRAIN_TABLE).exists()
        if is_main() and not there and not begun:
            shutil.rmtree(directory, ignore_errors=True)
        raise


def with_data_path(config: Config) -> Config:
    """The configuration that names its data file in full, so that it means the same from any working directory."""
    return replace(config, data=str(data_path(config).resolve()))


def prepare(config: Config) -> Prepared:
    device = resolve_device(config.device)
    if device == "cpu":
        torch.set_num_threads(max(1, cores() // config.devices))
        keep_freed_memory()
    if config.train.batch_size % config.devices:
        raise UserError(f"train.batch_size {config.train.batch_size} cannot be shared evenly by devices={config.devices}")
    if config.train.predictor_steps and not any(OBJECTIVES[name].of_prediction for name in config.objectives):
        raise UserError("train.predictor_steps needs an objective that teaches the predictor, such as pred")
    if config.train.compile and device == "cpu" and not has_compiler():
        raise UserError("train.compile=true needs a C++ compiler, such as g++, which this machine does not have")
    if config.train.wandb:
        need("wandb", "train.wandb=true")
    task = config.spec
    episodes = open_episodes(data_path(config), task)
    split = split_episodes(len(episodes.lengths), config.split)
    statistics = fit_statistics(episodes, task, split.train, periods=target_periods(config))
    windows = Windows(episodes, split.train, config.clip)
    predictor_windows(windows, config)  # what they lack shows now and not after the training
    check_fits_memory(config)
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
    return Diagnosing(config.diagnose.every, columns(config.diagnose), small)


def _fit(prepared: Prepared, directory: Path, started: float) -> TrainResult:
    config, total_steps = prepared.config, prepared.total_steps
    if config.train.compile:
        prepared.graph.world_model.encoder.compile()  # of the rest, dropout's own draws would leave only fragments
    if is_main():
        check_data(directory, prepared.data)
    clock = Clock(directory, started, earlier_unknown=newest_checkpoint(directory) is not None)
    console = Console(stderr=True, quiet=not is_main())
    if missing("tensorboard"):
        console.print(f"no tables for TensorBoard are written: {install('tensorboard')}", highlight=False, markup=False)
    run = Surroundings(config, prepared.device, directory, prepared.validator, prepared.diagnosing, clock, console)
    # A run that stopped in the predictor's own steps is done with the joint ones, and its newest weights are not theirs.
    joint = fit(_joint_stage(prepared), run) if newest_checkpoint(directory, PREDICTOR) is None else {}
    measured, before = joint or validation_at(directory, total_steps), None
    if config.train.predictor_steps:
        alone = fit(_predictor_stage(prepared), run)
        before, measured = measured, alone or validation_at(directory, total_steps + config.train.predictor_steps)
    result = TrainResult(
        directory=directory,
        steps=total_steps,
        seconds=clock.seconds,
        starts=clock.starts,
        peak_memory_gb=round(peak_memory_gb(), 2),
        validation=measured,
        validation_before_predictor_steps=before,
    )
    if is_main():
        _finish(prepared, result)
    return result


def _joint_stage(prepared: Prepared) -> Stage:
    config = prepared.config
    return Stage(
        name=JOINT,
        module=TrainingModule(prepared.graph, config, prepared.total_steps),
        windows=prepared.windows,
        batch_size=config.train.batch_size,
        seed=config.seed,
        opening=f"training {config.variant} on {config.task}",
        max_steps_per_epoch=config.train.max_steps_per_epoch,
        last=not config.train.predictor_steps,
    )


def _predictor_stage(prepared: Prepared) -> Stage:
    windows = predictor_windows(prepared.windows, prepared.config)
    module = PredictorModule(prepared.graph, windows, prepared.config, offset=prepared.total_steps)
    clips = ClipsWithoutFrames(windows)
    opening = "the predictor alone, on the latents of the training frames,"
    return Stage(PREDICTOR, module, clips, module.batch_size, module.seed, opening, unused_parameters=True)


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
