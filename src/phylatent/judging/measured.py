"""A record is not made twice, and never overwritten: what decides its numbers is kept in it as its key."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phylatent.diagnostics import choose
from phylatent.errors import UserError
from phylatent.files import locked
from phylatent.judging.subject import Subject
from phylatent.own_files import is_path
from phylatent.planning.solvers import find_solver
from phylatent.reading import check_shape, read_json
from phylatent.reading.shapes import Maybe
from phylatent.records import complete_key
from phylatent.schema import HELD_OUT, DiagnoseConfig, PlanConfig

Say = Callable[[str], None]
JudgingConfig = DiagnoseConfig | PlanConfig
ANEW = "move it away, and the same command measures it again"
"""What to do about a record that is damaged; it is never overwritten."""
FREE = ("workers", "chunk", "compile", "every", "filmstrips", "video", "protocol", "policy")
"""Settings that change no number in a record of one protocol."""


def record_key(subject: Subject, settings: JudgingConfig, solver: Any = None) -> dict[str, Any]:
    """What decides a record's numbers: where it is unchanged, the record stands. `solver` are the solver's own settings."""
    decisive = {name: value for name, value in asdict(settings).items() if name not in FREE} | _of_solver(settings, solver)
    if isinstance(settings, DiagnoseConfig):
        decisive["diagnostics"] = list(choose(settings.diagnostics))
    elif is_path(settings.solver):  # by what it is, not by where it lies: an edited file is another solver, a moved one is not
        content = Path(settings.solver).expanduser().read_bytes()
        decisive["solver"] = f"{find_solver(settings.solver).name} {hashlib.sha256(content).hexdigest()[:16]}"
    side = subject.split.side(settings.split)
    facts: dict[str, Any] = {"weights": subject.facts["weights"], "data": subject.episodes.fingerprint(), "split": side.name}
    facts["episodes"] = hashlib.sha256(repr(side.episodes).encode()).hexdigest()
    if isinstance(settings, DiagnoseConfig) and settings.protocol == "paper" and subject.task.severities:
        facts["severities"] = dict(subject.task.severities)
    return json.loads(json.dumps(decisive | facts))


def key_defaults(settings: JudgingConfig, solver: Any = None) -> dict[str, Any]:
    """The default of every setting in a key."""
    defaults = asdict(type(settings)()) | _of_solver(settings, None if solver is None else type(solver)())
    return json.loads(json.dumps(defaults))


def _of_solver(settings: JudgingConfig, solver: Any) -> dict[str, Any]:
    """The solver's own settings, with its name before theirs."""
    if solver is None:
        return {}
    assert isinstance(settings, PlanConfig)
    return {f"{find_solver(settings.solver).name}.{name}": value for name, value in asdict(solver).items()}


def _as_today(key: Mapping[str, Any]) -> dict[str, Any]:
    """The key of a record that an earlier version made of a two-way split."""
    if "held_out" not in key:
        return dict(key)
    rest = {name: value for name, value in key.items() if name != "held_out"}
    return rest | {"split": HELD_OUT, "episodes": key["held_out"]}


def is_measured(path: Path, key: Mapping[str, Any], defaults: Mapping[str, Any], say: Say) -> bool:
    """Whether the record is there with this key; one with another key is an error, and stays as it is.

    A setting that was not there when the record was made had the value that is its default now.
    """
    if not path.is_file():
        return False
    record = read_json(path, again=ANEW)
    check_shape(path, record, {"key?": Maybe({})}, again=ANEW)
    before = _as_today(record.get("key") or {})
    found, asked = (complete_key(one, defaults) for one in (before, key))
    changes = [name for name in {**found, **asked} if found.get(name) != asked.get(name)]
    if changes:
        raise UserError(
            f"{path} holds a measurement with other settings ({', '.join(changes)}); nothing was overwritten: "
            "give out= another directory, or move that one away"
        )
    say(f"already measured: {path}")
    return True


@contextlib.contextmanager
def unless_measured(path: Path, measured: Callable[[], bool]) -> Iterator[bool]:
    """Whether a record is still to be made. Until it is, no other process makes one in that place, with whatever settings."""
    if measured():
        yield False
        return
    busy = f"another process is measuring {path} right now; wait for it, or give out= another directory"
    with locked(path.parent, f".{path.stem}.lock", busy=busy, elsewhere="give out= another directory", tidy=True):
        yield not measured()
