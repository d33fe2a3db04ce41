"""What is to be judged: a run directory, a model directory or a Hub id, with the data it was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from phylatent.composition import compose, judging_config, read_saved
from phylatent.composition.layers import is_known
from phylatent.composition.sections import known_keys
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import Split, split_episodes
from phylatent.errors import UserError
from phylatent.files import in_full
from phylatent.machine import resolve_device
from phylatent.models.load import load_model, weights_hash
from phylatent.models.world_model import WorldModel
from phylatent.objectives.svic import seen_in_training
from phylatent.own_files import is_path
from phylatent.planning.solvers import SOLVERS
from phylatent.runs import CONFIG, data_path, judged_directory, run_directory
from phylatent.schema import Config, DiagnoseConfig, PlanConfig, TaskSpec
from phylatent.tasks import saved_task

Sources = Sequence[str | Path]
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
    task, saved = (None, {}) if run is None else read_saved(run / CONFIG, task_file)
    model = load_model(source)
    if model.config.task is None:
        raise UserError(f"{source} does not say which task it is for, so there is nothing to judge it on")
    if model.config.action is None:
        raise UserError(
            f"{source} does not say what its actions are z-scored with; import it again with data=, the data it was trained on"
        )
    task = task or saved_task(model.config.task, now=task_file)
    config = _config(task, model, preset, overrides)
    given = any(override.startswith("data=") for override in overrides)
    placed = config if given or not saved else replace(config, preset=str(saved["preset"]), data=saved.get("data"))
    episodes = open_episodes(data_path(placed), task)
    name = run.name if run else place.name
    return Subject(
        name=name,
        directory=out or run or judged_directory(name),
        run=run,
        model=model.eval(),
        config=config,
        task=task,
        episodes=episodes,
        split=own_split(model, episodes, config),
    )


def judging_overrides(overrides: Sequence[str], section: str, seeds: Sequence[int]) -> list[str]:
    """`protocol=strict,paper` on the command line of `plan` means `plan.protocol=[strict,paper]`; `seed=` its seeds.

    A solver's own settings belong to `plan`, too. Settings of anything else would do nothing here, so they are refused.
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
        elif key not in BESIDE and key in known_keys() and not (section == "plan" and key.partition(".")[0] in SOLVERS):
            raise UserError(
                f"{key} does nothing here: {section} takes {', '.join(BESIDE)} and its own settings ({', '.join(names)})"
            )
        found.append(override)
    return found


def _trained(model: WorldModel) -> Mapping[str, Any]:
    """The configuration it was trained with, as far as it says."""
    return (model.config.provenance or {}).get("config") or {}


def _config(task: TaskSpec, model: WorldModel, preset: str | None, overrides: Sequence[str]) -> Config:
    """How the model is judged: as its preset and variant say today. A variant's own settings are the training's business."""
    trained, variant = _trained(model), model.config.variant or "lewm"
    named = str(trained.get("preset") or "laptop")
    by_name = not (is_path(named) or is_path(variant))  # a model holds names: a file is for the user to name
    if by_name and is_known("preset", preset or named) and is_known("variant", variant):
        return compose(task, preset or named, variant, overrides)
    # A file of the user's own is known by its name only here; what it said about judging is in the model's configuration.
    return judging_config(task, trained, overrides) if preset is None else compose(task, preset, "lewm", overrides)


def own_split(model: WorldModel, episodes: Episodes, config: Config) -> Split:
    """The model's own: an episode it was trained on must never be judged on."""
    if model.config.split is None:
        return split_episodes(len(episodes.lengths), config.split)
    known = ((model.config.provenance or {}).get("data") or {}).get("fingerprint")
    if known not in (None, episodes.fingerprint()):
        raise UserError(
            f"{episodes.path} is not the data this model was trained on, so its split into training and held-out episodes "
            "does not apply; give data= with the file it was trained on"
        )
    split, count = Split.from_dict(model.config.split), len(episodes.lengths)
    if not {*split.train, *split.validation, *split.test} <= set(range(count)):
        raise UserError(
            f"the model's split names episodes that {episodes.path} does not have: it has {count}; give data= of its own"
        )
    return split


def load_subjects(
    sources: Sources, overrides: Sequence[str], *, preset: str | None, task: str | None, out: str | Path | None
) -> list[Subject]:
    """Each source, on the device it is to be judged on; all of them share task, data and held-out episodes."""
    if not sources:
        raise UserError("name what to judge: a run directory, a model directory, or a Hub id")
    subjects: list[Subject] = []
    for source in sources:
        place = in_full(out)
        if place is not None and len(sources) > 1:
            place /= Path(source).name
        subject = load_subject(str(source), overrides=overrides, preset=preset, task_file=task, out=place)
        if subjects:
            _check_comparable(subjects[0], subject)
        subject.model.to(resolve_device(subject.config.device))
        subjects.append(subject)
    if len({subject.directory.resolve() for subject in subjects}) < len(subjects):
        raise UserError("the same run is named twice, or two of them would write to the same place")
    return subjects


def _check_comparable(first: Subject, other: Subject) -> None:
    same = first.task.name == other.task.name and first.split == other.split
    same = same and first.model.config.clip == other.model.config.clip
    if not same or first.episodes.fingerprint() != other.episodes.fingerprint():
        raise UserError(
            f"{other.name} and {first.name} do not share their task, data, clips and held-out episodes, so they cannot be "
            "judged on the same ones; call the command once for each"
        )
