"""`import` and `export`: released LeWM checkpoints and packed data come in, models go out in LeWM's layout or in ours."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from phylatent.data.readers import open_episodes
from phylatent.data.stats import fit_statistics
from phylatent.errors import PhylatentError, UserError
from phylatent.lewm_files import BESIDE, CONFIG, WEIGHTS, Checkpoint, file_sha256, locate
from phylatent.models.lewm import VERSIONS, load_strictly, to_lewm, translate
from phylatent.models.lewm_config import describe, infer_config, variant_of
from phylatent.models.world_model import WorldModel, WorldModelConfig
from phylatent.records import home, is_disk_full, provenance, write_json
from phylatent.schema import TaskSpec
from phylatent.subjects import load_model, run_directory, weights_hash
from phylatent.tasks import get_task
from phylatent.training.directory import check_free

PACKED = (".zst", ".tar")
FORMATS = ("lewm", "phylatent")


def import_data(source: str | Path, *, out: Path | None = None, console: Console | None = None) -> Path:
    """Unpack a published data file to `out` (a file, or a directory), or into `data/`; returns its path."""
    from phylatent.data.unpack import unpack, unpacked_name

    source = Path(source).expanduser()
    target = out or home() / "data"
    path = target / unpacked_name(source) if target.is_dir() or target.suffix not in (".h5", ".hdf5") else target
    columns = (TextColumn("unpack"), BarColumn(bar_width=24), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console or Console(quiet=True), transient=True) as progress:
        bar = progress.add_task("unpack")
        path = unpack(source, path, lambda done, total: progress.update(bar, completed=done, total=total))
    write_json(
        path.with_name(path.name + ".json"), {"data": path.name, "unpacked_from": source.name, "provenance": provenance()}
    )
    return path


def import_model(
    source: str | Path, *, task: str | None = None, data: str | Path | None = None, out: Path | None = None
) -> Path:
    """A LeWM checkpoint as a model directory of ours, with `import.json` in it; returns the directory.

    It does not say what its actions were z-scored with; `data` is the data it was trained on, and gives that.
    """
    checkpoint = locate(str(source))
    out = out or home() / "runs" / f"imported-{checkpoint.name}"
    check_free(out)
    ours = translate(checkpoint.state)
    config = _restored(checkpoint, ours, task, data) if checkpoint.beside else _completed(checkpoint, ours, task, data)
    model = WorldModel(config)
    load_strictly(model, ours)
    record = {
        "source": checkpoint.name,
        "sha256": checkpoint.sha256,
        "weights": weights_hash(model),
        "source_config": checkpoint.config,
        "provenance": provenance(),
    }
    with whole_directory(out) as folder:
        model.save_pretrained(folder)
        write_json(folder / "import.json", record)
    return out


def knows_its_actions(model: Path) -> bool:
    return json.loads((model / "config.json").read_text()).get("action") is not None


def export_model(source: str | Path, *, format: str = "lewm", keys: int | str = 5, out: Path | None = None) -> Path:
    """A run's model, a model directory or a Hub id, written as LeWM's `config.json` and `weights.pt` or in our own layout.

    `keys` says whose names the encoder's tensors get: transformers 4's or 5's. Returns the directory.
    """
    if format not in FORMATS:
        raise UserError(f"format={format}: expected one of {', '.join(FORMATS)}")
    if str(keys) not in map(str, VERSIONS):
        raise UserError(f"keys={keys}: expected 4 or 5, the version of transformers whose names the encoder's tensors get")
    place = Path(source).expanduser()
    run = run_directory(place)
    out = out or home() / "runs" / f"exported-{(run or place).resolve().name}-{format}"
    check_free(out)
    model = load_model(str(source))
    record: dict[str, Any] = {"source": (run or place).resolve().name, "format": format, "weights": weights_hash(model)}
    if format == "phylatent":
        with whole_directory(out) as folder:
            model.save_pretrained(folder)
            write_json(folder / "export.json", record | {"provenance": provenance()})
        return out
    description = describe(model.config)
    with whole_directory(out) as folder:
        with (folder / WEIGHTS).open("wb") as handle:
            torch.save(to_lewm(model, keys=int(keys)), handle)
        write_json(folder / CONFIG, description)
        record |= {"keys": int(keys), "sha256": file_sha256(folder / WEIGHTS), "config": asdict(model.config)}
        write_json(folder / BESIDE, record | {"provenance": provenance()})
    return out


@contextlib.contextmanager
def whole_directory(out: Path) -> Iterator[Path]:
    """A directory that appears whole or not at all."""
    out = out.absolute()
    temporary = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        temporary.replace(out)
    except Exception as error:
        if is_disk_full(error):
            raise PhylatentError(f"no space left on the disk while writing {out}; free some space and run again") from error
        if isinstance(error, OSError):
            raise UserError(f"cannot write to {out}: {error.strerror}; choose another out=") from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _completed(
    checkpoint: Checkpoint, ours: Mapping[str, Tensor], task: str | None, data: str | Path | None
) -> WorldModelConfig:
    """What the checkpoint tells of itself, and what task and data add to it."""
    inferred = infer_config(ours, checkpoint.config)
    if task is None:
        raise UserError(
            f"{checkpoint.name} does not say which task it is for; give task=, and data= with the data it was trained on"
        )
    spec = get_task(task)
    if inferred.action_dim != spec.action_dim:
        raise UserError(
            f"{checkpoint.name} takes blocks of {inferred.block_dim} action values, but a block of {spec.name} has "
            f"{inferred.clip.stride} × {spec.action_dim}; give the task that it was trained on"
        )
    facts: dict[str, Any] = {"imported": {"source": checkpoint.name, "sha256": checkpoint.sha256}}
    statistics: dict[str, Any] = {}
    if data is not None:
        statistics, facts["statistics"] = _statistics(Path(data).expanduser(), spec)
    return replace(
        inferred,
        task=spec.name,
        variant=variant_of(checkpoint.config),
        action_low=spec.action_low,
        action_high=spec.action_high,
        provenance=facts,
        **statistics,
    )


def _statistics(data: Path, task: TaskSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """Over every episode, unlike our own training: that is what LeWM z-scores with."""
    episodes = open_episodes(data, task)
    fitted = fit_statistics(episodes, task, range(len(episodes.lengths)))
    facts = {"name": episodes.path.name, "episodes": len(episodes.lengths), "fingerprint": episodes.fingerprint()}
    return {"action": fitted.action, "target": fitted.target}, facts


def _restored(
    checkpoint: Checkpoint, ours: Mapping[str, Tensor], task: str | None, data: str | Path | None
) -> WorldModelConfig:
    """What our own export kept beside the weights; it must be about these weights."""
    beside = checkpoint.beside or {}
    remedy = f"move {BESIDE} away and give task= and data="
    if beside.get("sha256") != checkpoint.sha256:
        raise UserError(f"{BESIDE} in {checkpoint.name} is about other weights than the ones beside it; {remedy}")
    try:
        config = WorldModelConfig(**beside["config"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{BESIDE} in {checkpoint.name} is not what phylatent export writes ({error}); {remedy}") from error
    infer_config(ours, checkpoint.config, stride=config.clip.stride)
    if data is not None and config.action is not None:
        raise UserError(f"{checkpoint.name} says itself what its actions are z-scored with; leave data= out, or {remedy}")
    if task is not None and get_task(task).name != config.task:
        raise UserError(f"{checkpoint.name} is a model of {config.task}, not of {task}; leave task= out")
    if data is None or config.task is None:
        return config
    statistics, facts = _statistics(Path(data).expanduser(), get_task(config.task))
    return replace(config, provenance={**(config.provenance or {}), "statistics": facts}, **statistics)
