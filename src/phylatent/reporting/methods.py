"""Runs grouped into methods, and a method's numbers averaged over its training seeds."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from phylatent.diagnostics import DIAGNOSTICS
from phylatent.diagnostics.diagnostic import Diagnostic
from phylatent.records import complete_key, rated_sections
from phylatent.reporting.inputs import Record, Run
from phylatent.schema import PAPER_DIAGNOSTICS, DiagnoseConfig, PlanConfig
from phylatent.statistics import spread
from phylatent.texts import printable, shortened

REFERENCE = "lewm"
ELSEWHERE = ("seed", "data", "device", "devices", "task_file")
"""Of a configuration, what may differ between seeds of one method."""
SEEDS = "training seeds"
"""What ± is over, where a method was trained several times."""
FIXED = {"lewm": "#D55E00", "phylatent": "#0072B2"}
OTHERS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7F7F7F")
NAME = 72
"""Characters of a name that stand in a label; the page's last section has the whole of it."""
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "star", "hexagon")


@dataclass(frozen=True)
class Method:
    """Everything that was trained in one way; its runs differ in their training seed only."""

    label: str
    colour: str
    symbol: str
    runs: tuple[Run, ...]

    @property
    def task(self) -> str | None:
        return self.runs[0].task

    @property
    def is_reference(self) -> bool:
        return self.runs[0].variant == REFERENCE

    def title(self, run: Run) -> str:
        """A run's name where all of a method's runs are listed."""
        return self.label if run.seed is None else f"{self.label} · seed {_name(run.seed)}"


@dataclass(frozen=True)
class Average:
    """A rate of a method: a share in 0–1, or None where nothing was measured."""

    mean: float | None
    spread: float | None
    over: str
    """What ± is over: `training seeds`, `evaluation seeds`, or nothing."""
    low: float | None
    high: float | None
    """One training seed: the record's 95 % interval. Several: mean ± spread."""
    values: tuple[float | None, ...]
    """Per run."""
    failures: int | None = None
    eligible: int | None = None

    @property
    def measured(self) -> int:
        return sum(value is not None for value in self.values)


def average(entries: Sequence[Record | None], *, counted: tuple[str, str] = ("failures", "eligible")) -> Average:
    """Mean ± sample standard deviation over training seeds; one training seed keeps its own interval and spread."""
    values = tuple(number(entry.get("rate")) if entry else None for entry in entries)
    known = [(value, entry) for value, entry in zip(values, entries, strict=True) if value is not None and entry is not None]
    if not known:
        return Average(None, None, "", None, None, values)
    if len(known) == 1:
        value, entry = known[0]
        low, high = entry.get("interval") or (None, None)
        own = number(entry.get("spread"))
        over = "evaluation seeds" if own is not None else ""
        return Average(value, own, over, number(low), number(high), values, entry.get(counted[0]), entry.get(counted[1]))
    mean = sum(value for value, _ in known) / len(known)
    deviation = spread([value for value, _ in known])
    assert deviation is not None
    return Average(mean, deviation, SEEDS, max(0.0, mean - deviation), min(1.0, mean + deviation), values)


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def dig(record: Record | None, *path: str) -> Any:
    """record[path…], or None where the way ends early."""
    found: Any = record
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def shown_diagnostics(methods: Sequence[Method]) -> list[Diagnostic[Any]]:
    """The paper's, and what else a record holds a rate of."""
    there = {name for method in methods for run in method.runs for name in rated_sections(run.diagnosis or {})}
    return [one for name, one in DIAGNOSTICS.items() if name in PAPER_DIAGNOSTICS or name in there]


def diagnostic(method: Method, *path: str) -> Average:
    """`diagnostic(method, "invariance")`, `diagnostic(method, "counterfactual", "by_horizon", "1")`."""
    return average([dig(run.diagnosis, *path) for run in method.runs])


def success(method: Method, protocol: str, policy: str = "model") -> Average:
    entries = [dig(run.plans.get(protocol), "policies", policy) for run in method.runs]
    return average(entries, counted=("successes", "count"))


def group(runs: Iterable[Run]) -> list[Method]:
    """Methods by (variant, stop-gradient), the reference first; tasks and presets are never averaged over."""
    runs = list(runs)
    tasks, presets = ({value for run in runs if (value := getattr(run, name))} for name in ("task", "preset"))
    many_tasks, many_presets = len(tasks) > 1, len(presets) > 1
    both = len({run.stop_gradient for run in runs}) > 1
    groups: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for run in runs:
        # An evaluation without its training does not say its preset: among runs of one preset that splits nothing.
        groups[run.variant, run.stop_gradient, run.task, run.preset if many_presets else None].append(run)

    named: dict[str, list[Run]] = {}
    for (variant, stop_gradient, task, preset), members in groups.items():
        label = _name(variant) + (f", {'' if stop_gradient else 'no '}stop-gradient" if both else "")
        label += f" · {_name(task or 'unknown task')}" if many_tasks else ""
        label += f" · {_name(preset or 'unknown preset')}" if many_presets else ""
        if _are_seeds(members):
            named[_free(label, named)] = _by_seed(members)
            continue
        # The same training seed twice is no second seed: they are runs that differ in some other way. Those that were trained
        # with the same settings still are seeds of one method, where they were judged on the same things in the same way.
        for alike in _trained_alike(members):
            if len(alike) > 1 and _are_seeds(alike) and (stem := _stem(alike)):
                named[_free(f"{label} · {_name(stem)}", named)] = _by_seed(alike)
                continue
            for name, run in zip(_names(members), members, strict=True):
                if run in alike:
                    named[_free(f"{label} · {_name(name)}", named)] = [run]
    ordered = sorted(named.items(), key=lambda item: (item[1][0].variant != REFERENCE, item[1][0].stop_gradient))
    colours = _colours([members[0] for _, members in ordered])
    return [
        Method(label, colour, SYMBOLS[index % len(SYMBOLS)], tuple(members))
        for index, ((label, members), colour) in enumerate(zip(ordered, colours, strict=True))
    ]


def _are_seeds(runs: Sequence[Run]) -> bool:
    return max(Counter(run.seed for run in runs).values()) == 1 and _measured_alike(runs)


def _by_seed(runs: Sequence[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.seed is None, run.seed or 0))


def _trained_alike(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs whose configurations differ in nothing but their seed, and in where things were; in the order given."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        settings = {key: value for key, value in (run.config or {}).items() if key not in ELSEWHERE}
        groups[json.dumps(settings, sort_keys=True, default=str) if settings else str(run.directory)].append(run)
    return list(groups.values())


def _stem(runs: Sequence[Run]) -> str:
    """What the names of seeds of one method have in common: `ablation` of `ablation-seed0` and `ablation-seed1`."""
    stems = {re.sub(r"[-_. ]?s(?:eed)?[-_. ]?\d+$", "", run.name) for run in runs}
    return stems.pop() if len(stems) == 1 else ""


def _measured_alike(runs: Sequence[Run]) -> bool:
    """Whether all that was measured of these runs was measured on the same things with the same settings."""
    records = [{"diagnosis": run.diagnosis, **run.plans} for run in runs]
    for name in {name for found in records for name in found}:
        defaults = DiagnoseConfig() if name == "diagnosis" else PlanConfig()
        keys = [_judged_on(record, defaults) for found in records if (record := found.get(name)) is not None]
        if any(key != keys[0] for key in keys):
            return False
    return True


def _judged_on(record: Record, defaults: DiagnoseConfig | PlanConfig) -> tuple[Any, ...]:
    """Versions differ in which settings they know: one that a record does not name is no difference at its default."""
    key = {name: value for name, value in complete_key(record.get("key") or {}, asdict(defaults)).items() if name != "weights"}
    return dig(record, "sample"), dig(record, "pairs", "hash"), key


def _names(runs: Sequence[Run]) -> list[str]:
    """Directory names; with their parents where those are alike."""
    names = [run.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.directory) for run in runs]


def _name(text: object) -> str:
    return shortened(printable(text), NAME)


def _free(label: str, taken: Mapping[str, Any]) -> str:
    """Two names that are alike once they are shortened, or spelled out, are still two."""
    numbered = (f"{label} ({number})" for number in count(2))
    return label if label not in taken else next(name for name in numbered if name not in taken)


def _colours(firsts: Sequence[Run]) -> list[str]:
    chosen: list[str] = []
    for run in firsts:
        own = FIXED.get(run.variant)
        free = [colour for colour in (own, *OTHERS) if colour and colour not in chosen]
        chosen.append(free[0] if free else OTHERS[-1])
    return chosen


def reference_of(methods: Sequence[Method], task: str | None) -> Method | None:
    """What the others on this task are compared with: `lewm` where it is there, else the first."""
    same = [method for method in methods if method.task == task]
    return next((method for method in same if method.is_reference), same[0] if same else None)
