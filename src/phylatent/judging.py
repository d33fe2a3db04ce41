"""`diagnose`, `plan` and `report` as commands: progress, records that are not made twice, tables to read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from phylatent.diagnostics.diagnose import diagnose_model, save
from phylatent.diagnostics.drawing import draw_samples
from phylatent.errors import PhylatentError, UserError
from phylatent.machine import resolve_device
from phylatent.planning.closed_loop import Trajectory
from phylatent.planning.evaluate import Course, lay_out, run_policies
from phylatent.planning.films import Bank, filmstrips, write_video
from phylatent.planning.planner import Planner
from phylatent.planning.readout import fit_readout
from phylatent.planning.record import outcomes, summarise
from phylatent.records import atomic, home, provenance, write_json
from phylatent.schema import HELD_OUT, DiagnoseConfig, PlanConfig
from phylatent.subjects import Subject, judging_overrides, load_subject, records_of
from phylatent.tables import show_rates, show_success

Sources = Sequence[str | Path]
TRAINING_FILES = ("config.yaml", "train.csv", "validation.csv", "result.json")
Tell = Callable[[str, int, int], None]
FREE = ("workers", "chunk", "every", "filmstrips", "video", "protocol", "policy")
"""Settings that change no number in a record of one protocol."""


def diagnose(
    sources: Sources,
    *,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    preset: str | None = None,
    task: str | None = None,
    out: Path | None = None,
    quick: bool = False,
    tables: bool = True,
    console: Console | None = None,
) -> list[dict[str, Any]]:
    """The three failure rates of each model, on the same states, pairs and branches: one record for each.

    `task` is where the file that declares their task is now, if it is a user's own and was moved.
    """
    console = console or Console(quiet=True)
    subjects = _subjects(sources, judging_overrides(overrides, "diagnose", seeds), preset, task, out)
    settings = subjects[0].config.diagnose
    records, sample = [], None
    for subject in subjects:
        path = subject.directory / "diagnostics" / f"{settings.protocol}.json"
        key = _key(subject, settings)
        if not _is_done(path, key, console):
            held: dict[str, Any] = {"task": subject.task, "episodes": subject.episodes, "split": subject.split}
            held |= {"clip": subject.model.config.clip, "settings": settings}
            with _progress(console, f"diagnose {subject.name}") as tell:
                sample = sample or draw_samples(**held, progress=tell)
                diagnosis = diagnose_model(subject.model, **held, seen=subject.seen, sample=sample, progress=tell)
            _bring_training(subject)
            save(diagnosis, path.parent, {"model": subject.facts, "key": key, "quick": quick, "provenance": provenance()})
        records.append(json.loads(path.read_text()))
    if tables:
        show_rates(records, console)
    return records


def plan(
    sources: Sources,
    *,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    preset: str | None = None,
    task: str | None = None,
    out: Path | None = None,
    quick: bool = False,
    tables: bool = True,
    console: Console | None = None,
) -> list[dict[str, dict[str, Any]]]:
    """Success of each model, and of the policies it is compared with, on the same start/goal lists: protocol → record.

    `task` is as in `diagnose`.
    """
    console = console or Console(quiet=True)
    subjects = _subjects(sources, judging_overrides(overrides, "plan", seeds), preset, task, out)
    settings = subjects[0].config.plan
    shared: dict[tuple[str, ...], dict[str, list[Trajectory]]] = {}
    records = []
    for subject in subjects:
        folders = {protocol: subject.directory / "planning" / protocol for protocol in settings.protocol}
        key = _key(subject, settings)
        missing = tuple(p for p, folder in folders.items() if not _is_planned(folder, key, settings, console))
        if missing:
            chosen = replace(settings, protocol=missing)
            course = lay_out(subject.task, subject.episodes, subject.split, chosen, subject.model.config.clip.stride)
            # What needs no model is the same for every model on this course.
            results = dict(shared.get(missing, {}))
            results |= _run(course, subject, [name for name in course.settings.policy if name not in results], console)
            shared[missing] = {name: found for name, found in results.items() if name != "model"}
            _bring_training(subject)
            for protocol in missing:
                record = summarise(course, protocol, results)
                extra = {"model": subject.facts, "key": key, "quick": quick, "provenance": provenance()}
                record["data"]["name"] = subject.episodes.path.name
                _write_films(course, protocol, results.get("model"), subject, folders[protocol])
                course.lists[protocol].save(folders[protocol] / "pairs.json")
                write_json(folders[protocol] / "result.json", record | extra)
        records.append({p: json.loads((folder / "result.json").read_text()) for p, folder in folders.items()})
    if tables:
        show_success(records, console)
    return records


def report(sources: Sources, *, out: Path | None = None, title: str | None = None, console: Console | None = None) -> Path:
    """One self-contained page about one or several runs; returns its path."""
    from phylatent.report.page import make_report

    directories = [records_of(source) for source in sources]
    for source, directory in zip(sources, directories, strict=True):
        if not directory.is_dir():
            raise UserError(f"there are no records of {source}; report takes runs, or what diagnose and plan wrote")
    names = "-".join(dict.fromkeys(directory.resolve().name for directory in directories))[:80]
    page = make_report(directories, out or home() / "runs" / f"report-{names}", title=title)
    if console is not None:
        console.print(f"report: [bold]{escape(str(page))}[/]", soft_wrap=True)
    return page


def _subjects(
    sources: Sources, overrides: Sequence[str], preset: str | None, task: str | None, out: Path | None
) -> list[Subject]:
    if not sources:
        raise UserError("name what to judge: a run directory, a model directory, or a Hub id")
    subjects: list[Subject] = []
    for source in sources:
        place = out / Path(source).name if out is not None and len(sources) > 1 else out
        subject = load_subject(str(source), overrides=overrides, preset=preset, task_file=task, out=place)
        if subjects:
            _check_comparable(subjects[0], subject)
        subject.model.to(resolve_device(subject.config.device))
        subjects.append(subject)
    if len({subject.directory.resolve() for subject in subjects}) < len(subjects):
        raise UserError("the same run is named twice, or two of them would write to the same place")
    return subjects


def _bring_training(subject: Subject) -> None:
    """Records elsewhere than in the run come with what the run says of its training, so that a report can show it."""
    if subject.run is None or subject.run.resolve() == subject.directory.resolve():
        return
    for name in TRAINING_FILES:
        target = subject.directory / "training" / name
        if (subject.run / name).is_file() and not target.exists():
            with atomic(target) as temporary:
                shutil.copyfile(subject.run / name, temporary)


def _check_comparable(first: Subject, other: Subject) -> None:
    same = first.task.name == other.task.name and first.split == other.split
    same = same and first.model.config.clip == other.model.config.clip
    if not same or first.episodes.fingerprint() != other.episodes.fingerprint():
        raise UserError(
            f"{other.name} and {first.name} do not share their task, data, clips and held-out episodes, so they cannot be "
            "judged on the same ones; call the command once for each"
        )


def _key(subject: Subject, settings: DiagnoseConfig | PlanConfig) -> dict[str, Any]:
    """What decides a record's numbers: where it is unchanged, the record stands."""
    decisive = {name: value for name, value in asdict(settings).items() if name not in FREE}
    side = subject.split.side(settings.split)
    facts: dict[str, Any] = {"weights": subject.facts["weights"], "data": subject.episodes.fingerprint(), "split": side.name}
    facts["episodes"] = hashlib.sha256(repr(side.episodes).encode()).hexdigest()
    if isinstance(settings, DiagnoseConfig) and settings.protocol == "paper" and subject.task.severities:
        facts["severities"] = dict(subject.task.severities)
    return json.loads(json.dumps(decisive | facts))


def _as_today(key: Mapping[str, Any]) -> dict[str, Any]:
    """The key of a record that an earlier version made of a two-way split."""
    if "held_out" not in key:
        return dict(key)
    rest = {name: value for name, value in key.items() if name != "held_out"}
    return rest | {"split": HELD_OUT, "episodes": key["held_out"]}


def _is_done(path: Path, key: Mapping[str, Any], console: Console) -> bool:
    if not path.is_file():
        return False
    found = _as_today(json.loads(path.read_text()).get("key") or {})
    changes = [name for name in {**found, **key} if found.get(name) != key.get(name)]
    if changes:
        raise UserError(
            f"{path} holds a measurement with other settings ({', '.join(changes)}); nothing was overwritten: "
            "give out= another directory, or move that one away"
        )
    console.print(f"already measured: {escape(str(path))}", soft_wrap=True)
    return True


def _is_planned(folder: Path, key: Mapping[str, Any], settings: PlanConfig, console: Console) -> bool:
    """Whether all that is asked for is there; a record that has less is neither overwritten nor passed off as it."""
    if not _is_done(folder / "result.json", key, console):
        return False
    has = json.loads((folder / "result.json").read_text())["policies"]
    lacking = [name for name in settings.policy if name not in has and name != "expert"]
    if lacking or (settings.video and not (folder / "videos").is_dir()):
        what = f"policy {', '.join(lacking)}" if lacking else "videos"
        raise UserError(f"{folder} was measured without {what}; nothing was overwritten: give out= another directory")
    return True


def _run(course: Course, subject: Subject, policies: Sequence[str], console: Console) -> dict[str, list[Trajectory]]:
    total, done = len(policies) * len(course.starts), 0
    with _progress(console, f"plan {subject.name}") as tell:

        def on_episode() -> None:
            nonlocal done
            done += 1
            tell("episodes", done, total)

        tell("episodes", 0, total)
        model = subject.model if "model" in policies else None
        try:
            readout = _readout(subject) if model is not None and course.settings.cost == "readout" else None
            return run_policies(policies, course, model=model, readout_DS=readout, on_episode=on_episode)
        except PhylatentError as error:
            raise type(error)(f"{subject.name}: {error}; what was measured before it is kept") from error


def _readout(subject: Subject) -> Tensor:
    return fit_readout(Planner(subject.model).encode, subject.task, subject.episodes, subject.split)


def _write_films(
    course: Course, protocol: str, trajectories: Sequence[Trajectory] | None, subject: Subject, folder: Path
) -> None:
    """Of the filmed episodes of this protocol's list: filmstrips for the report, and the videos asked for."""
    if trajectories is None or not (course.settings.filmstrips or course.settings.video):
        return
    mine, scored = course.of(protocol, trajectories), outcomes(course, protocol, trajectories)
    starts = course.starts_of(protocol)
    filmed = [i for i, (start, t) in enumerate(zip(starts, mine, strict=True)) if start.film != "none" and t.frames]
    for i in [i for i in filmed if starts[i].film == "all"][: course.settings.video]:
        outcome = "solved" if scored[i].success else "failed"
        write_video(folder / "videos" / f"pair{i:03d}-{outcome}.webp", starts[i], mine[i], scored[i])
    filmed = filmed[: course.settings.filmstrips]
    if filmed:
        bank = Bank(Planner(subject.model), subject.episodes, course.side)
        strips = [(i, starts[i], mine[i], scored[i]) for i in filmed]
        arrays = filmstrips(strips, bank, course.settings, course.stride)
        with atomic(folder / "rollouts.npz") as temporary, temporary.open("wb") as handle:
            np.savez_compressed(handle, allow_pickle=False, **arrays)


@contextlib.contextmanager
def _progress(console: Console, title: str) -> Iterator[Tell]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[what]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(escape(title), what="")

        def tell(what: str, done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total, what=what)

        yield tell
