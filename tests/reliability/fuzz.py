"""Tries to break the commands, kind after kind of case, until the minutes are over: `make fuzz minutes=20 seed=0`.

A case is its kind, the seed and a number. What fails is written down as a case of its own, to be repeated by `make test`.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count, islice, takewhile
from pathlib import Path
from statistics import mean
from typing import Any

import cases
import foreign
import lines
import material
import subjects
from cases import Case, Outcome
from oracle import ANSWERED, SORTS, SUCCEEDED, Verdict
from rich.console import Console
from rich.table import Table

Make = Callable[[str], Case]
"""A case of the number "seed/number"."""
SIDE_BY_SIDE = 2
OF_ONE_CAUSE = 2
"""Failures of one cause that are kept."""


def kinds(source: Path) -> dict[str, Make]:
    """Every kind of case by its name."""
    found: dict[str, Make] = {}
    for command in lines.RIGHT:
        found[f"line {command}"] = lambda number, command=command: lines.make(command, number)
    for name in subjects.SUBJECTS:
        found[f"file {name}"] = lambda number, name=name: subjects.make(name, number, source)
    found["foreign code"] = foreign.make
    return found


def in_rotation(source: Path, seed: int, only: str = "", lines: int = 3) -> Iterator[tuple[str, str, Make]]:
    """(kind, number, its maker), without end. There are fewer kinds of command lines: each comes `lines` times in a round."""
    made = {name: make for name, make in kinds(source).items() if only in name}
    numbers: Counter[str] = Counter()
    for _ in count():
        for name, make in made.items():
            for _ in range(lines if name.startswith("line") or name == "foreign code" else 1):
                numbers[name] += 1
                yield name, f"{seed}/{numbers[name]}", make


class Bench:
    """Runs cases side by side, each in a process of its own, and keeps what came out."""

    def __init__(self, source: Path, place: Path, side_by_side: int = SIDE_BY_SIDE) -> None:
        self.source, self.place = source, place
        lines.make("list", "0/0")  # what Hypothesis builds first takes seconds, and every case would build it anew
        self.cores = sorted(os.sched_getaffinity(0))
        self.side_by_side = side_by_side
        self.working: dict[int, tuple[Path, Case | None, str]] = {}

    def run(self, made: Iterator[tuple[str, Callable[[], Case]]]) -> Iterator[Outcome]:
        """The outcomes of (label, a function that makes the case), as they come."""
        slots = list(range(self.side_by_side))
        of: dict[int, int] = {}
        for label, make in made:
            if not slots:
                yield self._next(of, slots)
            slot = slots.pop()
            of[self._start(label, make, slot)] = slot
        while of:
            yield self._next(of, slots)

    def _start(self, label: str, make: Callable[[], Case], slot: int) -> int:
        place = self.place / f"slot-{slot}"
        result = self.place / f"outcome-{slot}"
        result.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            case = Case(label, ())
            try:
                case = make()
                outcome = cases.run_case(case, self.source, place, self.cores[slot % len(self.cores)])
            except BaseException:
                outcome = Outcome(case, Verdict("harness", traceback.format_exc()[-1500:]))
            result.write_bytes(pickle.dumps(outcome))
            os._exit(0)
        self.working[pid] = (result, None, label)
        return pid

    def _next(self, of: dict[int, int], slots: list[int]) -> Outcome:
        pid = 0
        while pid not in of:
            pid, _ = os.wait()
        slots.append(of.pop(pid))
        result, _, label = self.working.pop(pid)
        if not result.exists():
            return Outcome(Case(label, ()), Verdict("harness", "the case's own process died"))
        return pickle.loads(result.read_bytes())


def tabled(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """A row for each kind, for the table and for docs/reliability.md; `seconds` are those of a case."""
    rows = []
    for kind in dict.fromkeys(outcome.case.kind for outcome in outcomes):
        of_kind = [outcome for outcome in outcomes if outcome.case.kind == kind]
        found = Counter(outcome.verdict.sort for outcome in of_kind)
        rows.append(
            {
                "kind": kind,
                "cases": len(of_kind),
                "answered": found[ANSWERED],
                "succeeded": found[SUCCEEDED],
                "failures": {sort: found[sort] for sort in SORTS if found[sort]},
                "seconds": round(mean(outcome.seconds for outcome in of_kind), 2),
            }
        )
    return rows


def show(rows: list[dict[str, Any]], screen: Console) -> None:
    table = Table("kind", "cases", "a sentence", "succeeded", "failures", "seconds each")
    for row in rows:
        failures = ", ".join(f"{number} {sort}" for sort, number in row["failures"].items())
        counts = (str(row[name]) for name in ("cases", "answered", "succeeded"))
        table.add_row(row["kind"], *counts, failures, f"{row['seconds']:.2f}")
    screen.print(table)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--cases", type=int, help="stop after so many cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds whose name contains this")
    parser.add_argument("--number", help="one case: its number, such as 0/12, with --only")
    parser.add_argument("--replay", nargs="*", type=Path, help="cases that were kept, instead of new ones")
    parser.add_argument("--place", type=Path, help="a directory to work in; the material in it is used again")
    parser.add_argument("--slots", type=int, default=SIDE_BY_SIDE, help="cases side by side")
    parser.add_argument("--keep", type=Path, default=cases.KEPT, help="where failures are written to")
    parser.add_argument("--record", type=Path, help="a JSON file for the table")
    chosen = parser.parse_args(arguments)
    begun = time.monotonic()
    place = (chosen.place or Path(tempfile.mkdtemp(prefix="fuzz-"))).absolute()
    screen = Console(highlight=False, soft_wrap=True)
    material.warm()
    source = material.build(place / "material")
    screen.print(f"warmed, and the material made, in {time.monotonic() - begun:.0f} s: {source}")
    bench = Bench(source, place, chosen.slots)
    outcomes, causes = [], Counter[str]()
    for outcome in bench.run(_wanted(chosen, source)):
        outcomes.append(outcome)
        if outcome.verdict.failed:
            causes[outcome.cause] += 1
            if chosen.replay is None and causes[outcome.cause] <= OF_ONE_CAUSE:
                outcome.save(chosen.keep)
            screen.print(
                f"{outcome.case.kind} {outcome.case.number}: {outcome.verdict.sort}: {outcome.cause}"[:300], markup=False
            )
        elif chosen.number:
            screen.print(f"{outcome.verdict.sort}: {outcome.verdict.said}", markup=False)
    rows = tabled(outcomes)
    show(rows, screen)
    minutes, each = (time.monotonic() - begun) / 60, sum(outcome.seconds for outcome in outcomes) / max(1, len(outcomes))
    total = f"{len(outcomes)} cases, {causes.total()} failures, {each:.2f} s each"
    screen.print(f"{total}, {minutes:.1f} minutes in all")
    if chosen.record:
        made = {"seed": chosen.seed, "minutes": round(minutes, 1), "rows": rows}
        chosen.record.parent.mkdir(parents=True, exist_ok=True)
        chosen.record.write_text(json.dumps(made, indent=1) + "\n")
    if chosen.place is None:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if causes else 0


def replayed(paths: list[Path]) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Cases that were kept."""
    for path in paths:
        yield path.stem, lambda path=path: Case.load(path)


def numbered(
    source: Path, seed: int, most: int | None, only: str = "", lines: int = 3
) -> Iterator[tuple[str, Callable[[], Case]]]:
    """New cases, in rotation."""
    for name, number, make in islice(in_rotation(source, seed, only, lines), most):
        yield name, lambda make=make, number=number: replace(make(number), number=number)


def _wanted(chosen: argparse.Namespace, source: Path) -> Iterator[tuple[str, Callable[[], Case]]]:
    if chosen.replay is not None:
        yield from replayed(chosen.replay or list(cases.kept()))
    elif chosen.number:
        name, make = next((n, m) for n, m in kinds(source).items() if chosen.only in n)
        yield name, lambda: replace(make(chosen.number), number=chosen.number)
    else:
        end = time.monotonic() + 60 * chosen.minutes
        yield from takewhile(lambda _: time.monotonic() < end, numbered(source, chosen.seed, chosen.cases, chosen.only))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
