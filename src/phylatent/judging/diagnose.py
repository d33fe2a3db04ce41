"""`diagnose`: the failure rates of models, on the same samples for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from phylatent.diagnostics import choose
from phylatent.diagnostics.diagnose import diagnose_model, save
from phylatent.diagnostics.sample import diagnostics_of, make_sample
from phylatent.judging.measured import ANEW, Say, is_measured, key_defaults, record_key, unless_measured
from phylatent.judging.memory import check_diagnosis
from phylatent.judging.subject import Sources, judging_overrides, load_subjects
from phylatent.records import provenance, read_diagnosis
from phylatent.runs import copy_training, diagnosis_file

Progress = Callable[[str, str, int, int], None]
"""(who is judged, what is being done, how much of it is done, how much there is in all)"""


def diagnose(
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
) -> list[dict[str, Any]]:
    """The failure rates of each model, on the same states, pairs and branches: one record for each.

    `task` is where the file that declares their task is now, if it is a user's own and was moved. `quick` marks the records as
    too small to compare anything.

    >>> record, = phylatent.diagnose([run], overrides=["workers=1"], out="judged")
    >>> 0 <= record["invariance"]["rate"] <= 1
    True
    """
    subjects = load_subjects(sources, judging_overrides(overrides, "diagnose", seeds), preset=preset, task=task, out=out)
    settings = subjects[0].config.diagnose
    choose(settings.diagnostics)
    check_diagnosis(settings)
    records, sample = [], None
    for subject in subjects:
        path = diagnosis_file(subject.directory, settings.protocol)
        key = record_key(subject, settings)
        with unless_measured(path, partial(is_measured, path, key, key_defaults(settings), say)) as missing:
            if missing:
                held: dict[str, Any] = {"task": subject.task, "episodes": subject.episodes, "split": subject.split}
                held |= {"clip": subject.model.config.clip, "settings": settings}

                def tell(what: str, done: int, total: int, name: str = subject.name) -> None:
                    progress(f"diagnose {name}", what, done, total)

                sample = sample or make_sample(**held, progress=tell)
                diagnosis = diagnose_model(subject.model, **held, seen=subject.seen, sample=sample, progress=tell)
                if subject.run is not None:
                    copy_training(subject.run, subject.directory)
                save(diagnosis, path.parent, {"model": subject.facts, "key": key, "quick": quick, "provenance": provenance()})
        records.append(read_diagnosis(path, again=ANEW, sections=diagnostics_of(settings)))
    return records
