"""A case: pieces of the material, changes of them, a command line. Plain data, so that a failure can be kept and repeated."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import changes
import material
import oracle
from children import DEADLINE, Copy, Ended, Order
from oracle import Verdict

LONG = 8.0
"""Seconds after which a command that was asked for something long is interrupted: it should then stop with a sentence."""
KEPT = Path(__file__).parent / "cases"
"""Failures that were found once; `make test` repeats them all."""


@dataclass(frozen=True)
class Case:
    kind: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    changes: tuple[changes.Change, ...] = ()
    may_be_long: bool = False
    """Whether it asks for something that is allowed and endless, such as 10⁹ steps."""
    may_run_code: bool = False
    """Whether the user names a Python file on the command line: that one may run."""
    number: str = ""
    """Where it came from: "seed/number"."""

    @classmethod
    def load(cls, path: Path) -> Case:
        record = json.loads(path.read_text())["case"]
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in record.items()})


@dataclass(frozen=True)
class Outcome:
    case: Case
    verdict: Verdict
    ended: Ended | None = None
    seconds: float = 0.0

    @property
    def cause(self) -> str:
        """What failures of the same cause have in common, as far as can be told."""
        said = " ".join(self.verdict.said.split())
        return self.verdict.cause or re.sub(r"\d+", "0", said)[:160]

    def save(self, folder: Path) -> Path:
        """As a file that `Case.load` reads, named after what is wrong and where it came from."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.case.kind}-{self.case.number}-{self.verdict.sort}"
        path = folder / ("".join(c if c.isalnum() or c in "-." else "_" for c in name) + ".json")
        record = {"case": asdict(self.case), "verdict": asdict(self.verdict), "seconds": self.seconds}
        path.write_text(json.dumps(record, indent=1) + "\n")
        return path


def run_case(case: Case, source: Path, place: Path, core: int, deadline: float = DEADLINE) -> Outcome:
    """Prepare it in `place`, run its command there in a copy of this process, and judge what came out."""
    begun = time.monotonic()
    copy = Copy()
    here = _prepare(case, source, place)
    before = oracle.snapshot(here)
    arguments = tuple(argument.replace("{here}", str(here)) for argument in case.arguments)
    limit = LONG if case.may_be_long else deadline
    ended = copy.run(Order(arguments, str(here), str(place), material.environment(place), limit, core))
    verdict = oracle.judge(place, arguments, ended, before, may_be_long=case.may_be_long, may_run_code=case.may_run_code)
    seconds = round(time.monotonic() - begun, 3)
    if verdict.sort == "not your mistake":
        verdict = replace(verdict, cause=_cause(case, source, place, core))
    return Outcome(case, verdict, ended, seconds)


def _prepare(case: Case, source: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    here = place / "here"
    material.copy(source, case.needs, here)
    for change in case.changes:
        changes.apply(change, here, source)
    return here


def _cause(case: Case, source: Path, place: Path, core: int) -> str:
    """The same once more, with its traceback."""
    copy, here = Copy(), _prepare(case, source, place)
    arguments = tuple(argument.replace("{here}", str(here)) for argument in case.arguments)
    copy.run(Order((*arguments, "--debug"), str(here), str(place), material.environment(place), LONG * 3, core))
    return oracle.cause((place / "stderr").read_text(errors="replace"))


def kept(folder: Path = KEPT) -> Iterable[Path]:
    return sorted(folder.glob("*.json"))
