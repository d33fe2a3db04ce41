"""`plan`: how often models reach their goals in the real environment, on the same start/goal lists for all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from phylatent.errors import PhylatentError, UserError
from phylatent.files import atomic
from phylatent.judging.diagnose import Progress
from phylatent.judging.measured import ANEW, Say, is_measured, key_defaults, record_key, unless_measured
from phylatent.judging.memory import check_planning
from phylatent.judging.subject import Sources, Subject, judging_overrides, load_subjects
from phylatent.planning.closed_loop import Trajectory
from phylatent.planning.evaluate import Course, lay_out, run_policies
from phylatent.planning.films import Bank, Filmed, filmstrips, write_video
from phylatent.planning.planner import Planner
from phylatent.planning.readout import fit_readout
from phylatent.planning.record import outcomes, summarise
from phylatent.records import provenance, read_planning, write_json
from phylatent.runs import PAIRS, RESULT, ROLLOUTS, VIDEOS, copy_training, planning_folder
from phylatent.schema import PlanConfig


def plan(
    sources: Sources,
    *,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    preset: str | None = None,
    task: str | None = None,
    out: str | Path | None = None,
    quick: bool = False,
    progress: Progress = lambda *_: None,
    say: Say = lambda _: None,
) -> list[dict[str, dict[str, Any]]]:
    """Success of each model, and of the policies it is compared with, on the same start/goal lists: protocol → record.

    `task` and `quick` are as in `diagnose`.

    >>> records, = phylatent.plan([run], overrides=["workers=1", "policy=model"], out="planned")
    >>> list(records)
    ['paper']
    """
    subjects = load_subjects(sources, judging_overrides(overrides, "plan", seeds), preset=preset, task=task, out=out)
    settings, solver = subjects[0].config.plan, subjects[0].config.solver
    check_planning(subjects[0], settings)
    shared: dict[tuple[str, ...], dict[str, list[Trajectory]]] = {}
    records = []
    for subject in subjects:
        folders = {protocol: planning_folder(subject.directory, protocol) for protocol in settings.protocol}
        key = record_key(subject, settings, solver)
        with contextlib.ExitStack() as locks:
            missing = tuple(
                protocol
                for protocol, folder in folders.items()
                if locks.enter_context(
                    unless_measured(folder / RESULT, partial(_is_planned, folder, key, settings, solver, say))
                )
            )
            if missing:
                chosen = replace(settings, protocol=missing)
                course = lay_out(
                    subject.task, subject.episodes, subject.split, chosen, subject.model.config.clip.stride, solver
                )
                # What needs no model is the same for every model on this course.
                results = dict(shared.get(missing, {}))
                results |= _run(course, subject, [name for name in course.settings.policy if name not in results], progress)
                shared[missing] = {name: found for name, found in results.items() if name != "model"}
                # They read the data once more: before anything is written, for it may be damaged where nobody looked yet.
                strips = {protocol: _strips(course, protocol, results.get("model"), subject) for protocol in missing}
                if subject.run is not None:
                    copy_training(subject.run, subject.directory)
                for protocol in missing:
                    record = summarise(course, protocol, results)
                    extra = {"model": subject.facts, "key": key, "quick": quick, "provenance": provenance()}
                    record["data"]["name"] = subject.episodes.path.name
                    _write_films(course, protocol, results.get("model"), strips[protocol], folders[protocol])
                    course.lists[protocol].save(folders[protocol] / PAIRS)
                    write_json(folders[protocol] / RESULT, record | extra)
        records.append({p: read_planning(folder / RESULT, again=ANEW, shown=True) for p, folder in folders.items()})
    return records


def _is_planned(folder: Path, key: Mapping[str, Any], settings: PlanConfig, solver: Any, say: Say) -> bool:
    """Whether all that is asked for is there; a record that has less is neither overwritten nor passed off as it."""
    if not is_measured(folder / RESULT, key, key_defaults(settings, solver), say):
        return False
    has = read_planning(folder / RESULT, again=ANEW, shown=True)["policies"]
    lacking = [name for name in settings.policy if name not in has and name != "expert"]
    if lacking or (settings.video and not (folder / VIDEOS).is_dir()):
        what = f"policy {', '.join(lacking)}" if lacking else "videos"
        raise UserError(f"{folder} was measured without {what}; nothing was overwritten: give out= another directory")
    return True


def _run(course: Course, subject: Subject, policies: Sequence[str], progress: Progress) -> dict[str, list[Trajectory]]:
    total, done = len(policies) * len(course.starts), 0

    def on_episode() -> None:
        nonlocal done
        done += 1
        progress(f"plan {subject.name}", "episodes", done, total)

    progress(f"plan {subject.name}", "episodes", 0, total)
    model = subject.model if "model" in policies else None
    try:
        readout = _readout(subject) if model is not None and course.settings.cost == "readout" else None
        return run_policies(policies, course, model=model, readout_DS=readout, on_episode=on_episode)
    except PhylatentError as error:
        raise type(error)(f"{subject.name}: {error}; what was measured before it is kept") from error


def _readout(subject: Subject) -> Tensor:
    return fit_readout(Planner(subject.model).encode, subject.task, subject.episodes, subject.split)


def _filmed(course: Course, protocol: str, trajectories: Sequence[Trajectory] | None) -> list[Filmed]:
    """The episodes of this protocol's list whose frames were kept."""
    if trajectories is None:
        return []
    mine, scored = course.of(protocol, trajectories), outcomes(course, protocol, trajectories)
    found = enumerate(zip(course.starts_of(protocol), mine, scored, strict=True))
    return [(i, start, t, outcome) for i, (start, t, outcome) in found if start.film != "none" and t.frames]


def _strips(
    course: Course, protocol: str, trajectories: Sequence[Trajectory] | None, subject: Subject
) -> dict[str, np.ndarray] | None:
    """Filmstrips for the report, with the held-out frames that are nearest to what was imagined."""
    filmed = _filmed(course, protocol, trajectories)[: course.settings.filmstrips]
    if not filmed:
        return None
    return filmstrips(filmed, Bank(Planner(subject.model), subject.episodes, course.side), course.settings, course.stride)


def _write_films(
    course: Course,
    protocol: str,
    trajectories: Sequence[Trajectory] | None,
    strips: Mapping[str, np.ndarray] | None,
    folder: Path,
) -> None:
    """The videos asked for, and the filmstrips."""
    whole = [one for one in _filmed(course, protocol, trajectories) if one[1].film == "all"]
    for i, start, trajectory, scored in whole[: course.settings.video]:
        outcome = "solved" if scored.success else "failed"
        write_video(folder / VIDEOS / f"pair{i:03d}-{outcome}.webp", start, trajectory, scored)
    if strips is not None:
        with atomic(folder / ROLLOUTS) as temporary, temporary.open("wb") as handle:
            np.savez_compressed(handle, allow_pickle=False, **strips)
