"""`audit`: the diagnostics of a model that phylatent has never seen, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from phylatent.composition import PRESET, compose
from phylatent.data.readers import Episodes, open_episodes
from phylatent.data.stats import Split, split_episodes
from phylatent.diagnostics import choose
from phylatent.diagnostics.diagnose import diagnose_model, save
from phylatent.errors import UserError
from phylatent.extras import install, missing
from phylatent.judging.memory import check_diagnosis
from phylatent.judging.subject import Subject, judging_overrides, own_split
from phylatent.models.latent import LatentModel
from phylatent.models.load import load_model
from phylatent.models.world_model import WorldModel
from phylatent.records import provenance
from phylatent.runs import diagnosis_file, home
from phylatent.schema import Config, DiagnoseConfig, TaskSpec
from phylatent.tasks import get_task, saved_task
from phylatent.texts import file_name

SIMULATED = ("counterfactual",)
"""Diagnostics that execute actions, and so need the task's environment."""


@dataclass(frozen=True)
class Audit:
    """What an audit found. `report` opens it: it stands for the directory that holds its record.

    >>> found = phylatent.audit(run, data=data, preset="smoke", overrides=["diagnostics=invariance"])
    >>> list(found.rates), found.left_out
    (['invariance'], {})
    """

    rates: dict[str, float | None]
    """Diagnostic → the share of samples that fail; None for a model that could not be judged."""
    record: dict[str, Any] = field(repr=False)
    directory: Path
    left_out: dict[str, str] = field(default_factory=dict)
    """Diagnostic → why it could not be measured on this machine."""

    def __fspath__(self) -> str:
        return str(self.directory)


def audit(
    model: LatentModel | str | Path,
    *,
    data: str | Path,
    task: str | TaskSpec | None = None,
    name: str | None = None,
    preset: str = PRESET,
    overrides: Sequence[str] = (),
    test_episodes: Sequence[int] | None = None,
    seen: Sequence[str] | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Audit:
    """Measure the three collapses of any model with `encode(frames)` and `rollout(z, blocks)`, on held-out episodes of `data`.

    `model` may also be a run directory, a model directory or a Hub id. `task` is a name, or the path of a file that declares
    one; a model of ours knows its own. `test_episodes` are episodes that the model was not trained on; where neither it nor
    the model says, a tenth of the data. `seen` are the perturbations that the model was trained to ignore, which are then rated
    apart. `preset` and `overrides` size the diagnosis (`"states=100"`), `out` is a directory of its own for the record.

    >>> import numpy as np
    >>> class Thumbnail:
    ...     def encode(self, frames):
    ...         return frames[:, ::8, ::8].reshape(len(frames), -1) / 255.0
    ...     def rollout(self, z, blocks):
    ...         return np.repeat(np.asarray(z)[:, None], blocks.shape[1], axis=1)
    >>> found = phylatent.audit(Thumbnail(), task="tworooms", data=data, preset="smoke")
    >>> sorted(found.rates)
    ['counterfactual', 'identifiability', 'invariance']
    >>> phylatent.report([found]).name
    'report.html'
    """
    judged: Any = load_model(str(model)) if isinstance(model, (str, Path)) else model
    called = name or (Path(model).name if isinstance(model, (str, Path)) else type(model).__name__)
    if not (callable(getattr(judged, "encode", None)) and callable(getattr(judged, "rollout", None))):
        raise UserError(f"a {type(judged).__name__} cannot be audited: it needs encode(frames) and rollout(z, blocks)")
    spec = _task(judged, task)
    config = compose(spec, preset, "lewm", judging_overrides(overrides, "diagnose", ()))
    chosen, left_out = _measurable(spec, config.diagnose)
    settings = replace(config.diagnose, diagnostics=chosen, workers=config.diagnose.workers or 1)
    check_diagnosis(settings)
    episodes = open_episodes(Path(data).expanduser(), spec)
    split = _split(judged, episodes, config, test_episodes)
    directory = _place(out, called, settings.protocol)
    clip, facts = config.clip, {"name": called, "task": spec.name, "variant": None}
    if isinstance(judged, WorldModel):
        subject = Subject(called, directory, None, judged, config, spec, episodes, split)
        clip, facts, seen = judged.config.clip, subject.facts, subject.seen if seen is None else seen
    held: dict[str, Any] = {"task": spec, "episodes": episodes, "split": split, "clip": clip, "settings": settings}
    diagnosis = diagnose_model(judged, **held, seen=seen, progress=progress)
    path = diagnosis_file(directory, settings.protocol)
    save(diagnosis, path.parent, {"model": facts, "left_out": left_out, "provenance": provenance()})
    return Audit(diagnosis.rates, diagnosis.record, directory, left_out)


def _task(model: Any, task: str | TaskSpec | None) -> TaskSpec:
    if isinstance(task, TaskSpec):
        return task
    if task is not None:
        return get_task(str(task))
    if isinstance(model, WorldModel) and model.config.task is not None:
        return saved_task(model.config.task)
    raise UserError("say which task the model is for: task= a name, or the path of a file that declares one")


def _measurable(task: TaskSpec, settings: DiagnoseConfig) -> tuple[tuple[str, ...], dict[str, str]]:
    """The diagnostics that can be measured here, and why not the others: some execute actions in the task's environment."""
    chosen = choose(settings.diagnostics)
    why = f"executing actions of {task.name} needs the environments: {install('envs')}" if missing("envs") else None
    if task.read_columns is None:
        why = f"task {task.name!r} is declared without its environment"
    if why is None or settings.protocol != "paper":
        return tuple(chosen), {}
    rest = tuple(name for name in chosen if name not in SIMULATED)
    if not rest:
        raise UserError(why)
    return rest, {name: why for name in chosen if name in SIMULATED}


def _split(model: Any, episodes: Episodes, config: Config, test_episodes: Sequence[int] | None) -> Split:
    """The episodes that are named, the model's own held-out ones, or a tenth of the data."""
    count = len(episodes.lengths)
    if test_episodes is not None:
        named = tuple(sorted({int(number) for number in test_episodes}))
        if not named or not set(named) <= set(range(count)):
            raise UserError(
                f"test_episodes must be some of the {count} episodes of {episodes.path}, by their numbers from 0 on"
            )
        rest = tuple(number for number in range(count) if number not in named)
        return Split(train=rest, validation=(), test=named, seed=0)
    return own_split(model, episodes, config) if isinstance(model, WorldModel) else split_episodes(count, config.split)


def _place(out: str | Path | None, name: str, protocol: str) -> Path:
    """Where the record goes: never over another one."""
    if out is not None:
        directory = Path(out).expanduser()
        if diagnosis_file(directory, protocol).exists():
            raise UserError(f"{directory} holds a measurement already; nothing was overwritten: give out= another directory")
        return directory
    names = (f"audit-{file_name(name)}{number}" for number in ("", *(f"-{n}" for n in range(2, 10**6))))
    return next(place for place in (home() / "runs" / name for name in names) if not place.exists())
