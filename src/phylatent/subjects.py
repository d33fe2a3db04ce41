"""What is to be judged: a run directory, a model directory or a Hub id, with the data it was trained on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download

from phylatent.composition import compose, known_keys, load_config
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import Split, split_episodes
from phylatent.errors import PhylatentError, UserError
from phylatent.models.lewm_config import is_lewm
from phylatent.models.world_model import WorldModel
from phylatent.objectives.svic import seen_in_training
from phylatent.records import data_path, home
from phylatent.schema import Config, DiagnoseConfig, PlanConfig, TaskSpec
from phylatent.tasks import get_task
from phylatent.training.directory import CONFIG, MODEL

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
OURS = "model.safetensors"
"""The weights in a model directory of ours."""
SECTIONS = {"diagnose": DiagnoseConfig, "plan": PlanConfig}
BESIDE = ("data", "device")
"""Keys that mean something to every judging command."""


@dataclass(frozen=True)
class Subject:
    """One model, and where its records go."""

    name: str
    directory: Path
    run: Path | None
    """The training that it came from, where that is at hand."""
    model: WorldModel
    config: Config
    """Task, preset and variant it was trained with; sections for judging as the command asked."""
    task: TaskSpec
    episodes: Episodes
    split: Split

    @property
    def seen(self) -> tuple[str, ...] | None:
        """The diagnosed perturbations whose form it met in training; None where it does not say how it was trained."""
        return seen_in_training(_trained(self.model))

    @property
    def facts(self) -> dict[str, Any]:
        """What a record says about the model."""
        trained, made = _trained(self.model), self.model.config.provenance or {}
        settings = trained.get("train") or {}
        return {
            "name": self.name,
            "task": self.task.name,
            "variant": self.model.config.variant,
            "training_seed": trained.get("seed"),
            "training_steps": made.get("step"),
            "predictor_steps": settings.get("predictor_steps"),
            "training_seconds": made.get("seconds"),
            "trials": settings.get("trials"),
            "commit": made.get("commit"),
            "preset": trained.get("preset"),
            "stop_gradient": (trained.get("pred") or {}).get("stop_gradient"),
            "svic_sees": None if (seen := self.seen) is None else list(seen),
            "weights": weights_hash(self.model),
            "split": "the model's" if self.model.config.split else "drawn anew: the model does not say what it was trained on",
        }


def load_subject(
    source: str,
    *,
    overrides: Sequence[str] = (),
    preset: str | None = None,
    task_file: str | None = None,
    out: Path | None = None,
) -> Subject:
    """`task_file` is where the file that declares the model's task is now, if it is a user's own and was moved."""
    place = Path(source).expanduser()
    run = run_directory(place)
    model = load_model(source)
    trained = _trained(model)
    if model.config.task is None:
        raise UserError(f"{source} does not say which task it is for, so there is nothing to judge it on")
    if model.config.action is None:
        raise UserError(
            f"{source} does not say what its actions are z-scored with; import it again with data=, the data it was trained on"
        )
    if run is None:
        task = get_task(model.config.task, now=task_file)
    else:
        task = get_task(load_config(run / CONFIG, task=task_file).task)
    config = compose(
        task.name,
        preset or trained.get("preset") or "laptop",
        model.config.variant or "lewm",
        # A variant's own settings are the training's business; only what judges is asked for here.
        overrides,
    )
    episodes = open_episodes(_data(config, run, overrides), task)
    name = run.name if run else place.name
    return Subject(
        name=name,
        directory=out or run or judged_directory(name),
        run=run,
        model=model.eval(),
        config=config,
        task=task,
        episodes=episodes,
        split=_split(model, episodes, config),
    )


def judging_overrides(overrides: Sequence[str], section: str, seeds: Sequence[int]) -> list[str]:
    """`protocol=strict,paper` on the command line of `plan` means `plan.protocol=[strict,paper]`; `seed=` its seeds.

    Settings of anything else would do nothing here, so they are refused.
    """
    names = {entry.name: str(entry.type).startswith("tuple") for entry in fields(SECTIONS[section]) if entry.name != "every"}
    given = list(overrides)
    if seeds:
        given.append(f"seeds={','.join(map(str, seeds))}")
    found = []
    for override in given:
        key, _, value = override.partition("=")
        short = key.removeprefix(f"{section}.")
        if short in names:
            value = f"[{value.strip('[]')}]" if names[short] else value
            override = f"{section}.{short}={value}"
        elif key not in BESIDE and key in known_keys():
            raise UserError(
                f"{key} does nothing here: {section} takes {', '.join(BESIDE)} and its own settings ({', '.join(names)})"
            )
        found.append(override)
    return found


def judged_directory(name: str) -> Path:
    """Where the records of a model without a run directory go."""
    return home() / "runs" / f"judged-{name}"


def records_of(source: str | Path) -> Path:
    """The directory that holds the records about a source: its own, its run's, or where judging put them."""
    place = Path(source).expanduser()
    run = run_directory(place)
    if run is not None or (place.is_dir() and not (place / "config.json").is_file()):
        return run or place
    return judged_directory(place.name)


def weights_hash(model: WorldModel) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def run_directory(place: Path) -> Path | None:
    """The run that a directory is, or belongs to."""
    if (place / CONFIG).is_file():
        return place
    return place.parent if place.name == MODEL and (place.parent / CONFIG).is_file() else None


def load_model(source: str) -> WorldModel:
    """The model of a run directory, a model directory or a Hub id."""
    place = Path(source).expanduser()
    run = run_directory(place)
    if run is not None:
        if not (run / MODEL).is_dir():
            raise UserError(f"{run} has no exported model yet; finish its training: phylatent train out={run} resume=true")
        return WorldModel.from_pretrained(run / MODEL)
    if place.is_dir():
        if not (place / "config.json").is_file():
            raise UserError(f"{source} is neither a run directory (no {CONFIG}) nor a model directory (no config.json)")
        if not (place / OURS).is_file():
            _refuse_lewm(source, place / "config.json")
        return WorldModel.from_pretrained(place)
    if place.exists() or not HUB_ID.fullmatch(source):
        raise UserError(f"{source} is not a run directory, not a model directory, and not a Hub id like owner/name")
    try:
        _refuse_lewm(source, Path(hf_hub_download(source, "config.json")))
        return WorldModel.from_pretrained(source)
    except PhylatentError:
        raise
    except Exception as error:
        raise UserError(
            f"there is no directory {source}, and as a Hub id it could not be loaded: {' '.join(str(error).split())[:200]}"
        ) from error


def _refuse_lewm(source: str, config: Path) -> None:
    """LeWM's layout shares a file name with ours; what it lacks for being judged, `import` adds."""
    try:
        described = json.loads(config.read_text())
    except ValueError:
        return
    if isinstance(described, dict) and is_lewm(described):
        raise UserError(f"{source} is a LeWM checkpoint; import it first: phylatent import {source} task=… data=…")


def _trained(model: WorldModel) -> Mapping[str, Any]:
    """The configuration it was trained with, as far as it says."""
    return (model.config.provenance or {}).get("config") or {}


def _data(config: Config, run: Path | None, overrides: Sequence[str]) -> Path:
    if run is not None and not any(override.startswith("data=") for override in overrides):
        return data_path(load_config(run / CONFIG))
    return data_path(config)


def _split(model: WorldModel, episodes: Episodes, config: Config) -> Split:
    """The model's own: an episode it was trained on must never be judged on."""
    if model.config.split is None:
        return split_episodes(len(episodes.lengths), config.split)
    known = ((model.config.provenance or {}).get("data") or {}).get("fingerprint")
    if known not in (None, episodes.fingerprint()):
        raise UserError(
            f"{episodes.path} is not the data this model was trained on, so its split into training and held-out episodes "
            "does not apply; give data= with the file it was trained on"
        )
    return Split.from_dict(model.config.split)
