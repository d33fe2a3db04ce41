"""Studies at laptop scale: which method's latent space fails less often and can be planned in, and what was tried for it.

    python benchmarks/laptop.py run STUDY HOME [METHOD ...]     # minutes to hours; goes on where it was stopped
    python benchmarks/laptop.py collate STUDY HOME              # → results/STUDY/, and the table on the screen

`TASK-laptop` is the comparison, on test episodes. `TASK-search` is what it rests on: the same settings tried for every method,
on validation episodes. `TASK-ablation` leaves out one objective at a time. Within a study every model has the same data, steps,
start/goal lists and diagnostic samples. METHODs can be given to two processes, one core each.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phylatent.diagnostics import DIAGNOSTICS
from phylatent.records import write_json
from phylatent.runs import CONFIG, MODEL, PLANNING, RESULT, diagnosis_file
from phylatent.schema import PAPER_DIAGNOSTICS
from phylatent.statistics import EPISODES, mcnemar, paired_difference, spread

PROTOCOLS = ("paper", "moderate", "strict")
OBJECTIVES = ("pred", "sigreg", "svic", "psg", "fra", "casc", "ld")
BASE, BEST = "lewm", "phylatent-plus"
EQUAL_TIME = f"{BASE}, equal time"


@dataclass(frozen=True)
class Study:
    """What is compared: title → (name of its runs, settings), and how it is judged."""

    task: str
    methods: dict[str, tuple[str, list[str]]]
    judged: dict[str, list[str]]
    """Command → its settings."""
    paired: tuple[tuple[str, str], ...] = ()
    seeds: tuple[int, ...] = (0,)
    chosen_on: str | None = None
    """The split whose records these are, if not the one that results come from."""


def comparison(task: str, longer: Sequence[str], protocols: Sequence[str] = PROTOCOLS) -> Study:
    """Both methods at equal steps, and the quicker one with the steps that the other's time allows it (`longer`)."""
    methods = {name: (name, [f"variant={name}"]) for name in (BASE, BEST)}
    methods[EQUAL_TIME] = (f"{BASE}-equal-time", [f"variant={BASE}", *longer])
    judged = {"diagnose": ["seed=0"], "plan": [f"protocol={','.join(protocols)}"]}
    return Study(task, methods, judged, paired=((BEST, BASE), (BEST, EQUAL_TIME)))


def search(task: str, trials: dict[str, list[str]], budget: Sequence[str] = ()) -> Study:
    """Every method with every setting of `trials`, trained as in the comparison or by `budget`, planned on validation."""
    methods = {}
    for variant, (title, settings) in itertools.product((BASE, BEST), trials.items()):
        name = f"{variant} {title}".replace(",", "").replace(" ", "-")
        methods[f"{variant}, {title}"] = (name, [f"variant={variant}", *settings, *budget])
    judged = {"plan": ["seed=0", "plan.pairs=60", "plan.policy=[model]", "plan.split=validation", "plan.filmstrips=0"]}
    return Study(task, methods, judged, chosen_on="validation")


def ablation(task: str, budget: Sequence[str] = ()) -> Study:
    """The whole, the whole without one of the five, and nothing of them, three trainings each: failure rates and read-out."""
    methods = {name: (f"{name}-ablation", [f"variant={name}", *budget]) for name in (BASE, BEST)}
    for term in OBJECTIVES[2:]:
        terms = ",".join(name for name in OBJECTIVES if name != term)
        methods[f"without {term}"] = (f"no-{term}-ablation", [f"variant={BEST}", f"objectives=[{terms}]", *budget])
    return Study(task, methods, {"diagnose": ["seed=0"]}, seeds=(0, 1, 2))


STOP = {"target free": ["pred.stop_gradient=false"], "target stopped": ["pred.stop_gradient=true"]}
STUDIES = {
    "tworooms-laptop": comparison("tworooms", ["train.steps=730"]),
    "reacher-laptop": comparison("reacher", ["train.steps=1400", "train.predictor_steps=2700"]),
    "pusht-laptop": comparison("pusht", ["train.steps=3100", "train.predictor_steps=3100"], (*PROTOCOLS, "object")),
    "cube-laptop": comparison("cube", ["train.steps=7200", "train.predictor_steps=5400"]),
    "tworooms-search": search("tworooms", STOP),
    "reacher-search": search("reacher", STOP),
    "pusht-search": search("pusht", STOP, ["train.steps=500", "train.predictor_steps=600"]),
    "cube-search": search("cube", STOP, ["train.steps=1000", "train.predictor_steps=1000"]),
    "tworooms-ablation": ablation("tworooms", ["train.steps=250"]),
    "reacher-ablation": ablation("reacher", ["train.steps=300", "train.predictor_steps=0"]),
}


def run(name: str, home: Path, *only: str) -> None:
    study, stages = STUDIES[name], home / f"{name}-stages.json"

    def phylatent(*arguments: str, stage: str | None = None) -> None:
        command, started = [sys.executable, "-m", "phylatent", *arguments], time.perf_counter()
        subprocess.run(command, check=True, env=os.environ | {"PHYLATENT_HOME": str(home)})
        if stage is not None:
            known = json.loads(stages.read_text()) if stages.is_file() else {}
            write_json(stages, known | {stage: round(time.perf_counter() - started)})

    phylatent("collect", f"task={study.task}", "preset=laptop")
    wanted = [(directory, given, seed) for title, directory, given, seed in _runs(study, home) if not only or title in only]
    for directory, given, seed in wanted:
        if not (directory / MODEL).is_dir():
            begun = (directory / CONFIG).is_file()
            settings = ["resume=true"] if begun else [f"task={study.task}", "preset=laptop", f"seed={seed}", *given]
            phylatent("train", f"out={directory}", *settings)
    directories = [directory for directory, _, _ in wanted]
    for command, settings in study.judged.items():
        stage = " ".join([command, *settings])
        if study.chosen_on is None:
            phylatent(command, *map(str, directories), *settings, stage=stage)
        for directory in directories if study.chosen_on is not None else ():
            phylatent(command, str(directory), *settings, f"out={home / name / directory.name}")


def _runs(study: Study, home: Path) -> list[tuple[str, Path, list[str], int]]:
    return [
        (title, _place(study.task, home, name, seed), given, seed)
        for title, (name, given) in study.methods.items()
        for seed in study.seeds
    ]


def _place(task: str, home: Path, name: str, seed: int) -> Path:
    return home / "runs" / f"{task}-{name}-seed{seed}"


def collate(name: str, home: Path) -> None:
    study, out = STUDIES[name], Path(__file__).parents[1] / "results" / name
    found: dict[str, list[dict[str, Any]]] = {title: [] for title in study.methods}
    for title, directory, _, seed in _runs(study, home):
        found[title].append(_read(directory, home / name / directory.name if study.chosen_on else directory))
        write_json(out / f"{study.methods[title][0]}-seed{seed}.json", found[title][-1])
    summary = {
        "methods": {method: _average(records) for method, records in found.items()},
        "validation": {method: _validation(records) for method, records in found.items()},
        "floors": {p: _floors(found, p) for p in _protocols(found)},
        "paired": {
            f"{first} against {second}": {p: _paired(found[first], found[second], p) for p in _protocols(found)}
            for first, second in study.paired
        },
        "seconds": _seconds(name, home),
    }
    write_json(out / "summary.json", summary)
    print(table(summary))


def _read(directory: Path, judged: Path) -> dict[str, Any]:
    """A run's records, without its frames and without where on whose machine it lay; empty before it is trained."""
    if not (directory / RESULT).is_file():
        return {"planning": {}}
    trained = json.loads((directory / RESULT).read_text())
    record: dict[str, Any] = {"validation": trained["validation"], "training_seconds": trained["seconds"]}
    chosen = ("starts", "commit", "predictor_steps", "trials", "validation_before_predictor_steps")
    record |= {name: trained[name] for name in chosen if trained.get(name) is not None}
    if (path := diagnosis_file(judged, "paper")).is_file():
        record["diagnostics"] = _public(json.loads(path.read_text()))
    record["planning"] = {}
    for path in sorted((judged / PLANNING).glob(f"*/{RESULT}")):
        planned = _public(json.loads(path.read_text()))
        planned["episodes"] = {
            policy: {key: [e[key] for e in episodes] for key in ("episode", "start", "first_success", "final_distance")}
            for policy, episodes in planned["episodes"].items()
            if policy == "model"
        }
        record["planning"][path.parent.name] = planned
    return record


def _public(record: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in record.items() if key not in ("key", "settings")}
    kept["settings"] = {key: value for key, value in record["settings"].items() if key != "workers"}
    kept["provenance"] = {key: record["provenance"][key] for key in ("created", "python", "packages", "commit")}
    return kept


def _protocols(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The usual three, and what a task has beside them."""
    there = {protocol for records in found.values() for record in records for protocol in record["planning"]}
    return [*PROTOCOLS, *sorted(there - set(PROTOCOLS))]


def _average(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Over training seeds; nothing where one of them was not measured."""
    assert len({r["diagnostics"]["sample"] for r in records if "diagnostics" in r}) <= 1, "other samples cannot be averaged"
    cells: dict[str, list[dict[str, Any]]] = {}
    for name in DIAGNOSTICS:
        cells[name] = [r["diagnostics"][name] for r in records if name in r.get("diagnostics", {})]
    for protocol in sorted({protocol for r in records for protocol in r["planning"]}):
        cells[protocol] = [r["planning"][protocol]["policies"]["model"] for r in records if protocol in r["planning"]]
    whole = {name: found for name, found in cells.items() if len(found) == len(records)}
    return {name: _cell_of(found) for name, found in whole.items() if None not in [cell["rate"] for cell in found]}


def _validation(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The prediction loss and what a linear map reads off the latents (median errors), over training seeds."""
    trained = [record["validation"] for record in records if "validation" in record]
    names = [name for name in (trained[0] if trained else ()) if name == "pred" or name.startswith("error/")]
    return {name: {"mean": float(np.mean(v := [t[name] for t in trained])), "per_seed": v} for name in names}


def _cell_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [cell["rate"] for cell in found]
    if len(rates) == 1:
        return {"mean": rates[0], "interval": found[0]["interval"]}
    return {"mean": float(np.mean(rates)), "spread": spread(rates), "per_seed": rates}


def _floors(found: dict[str, list[dict[str, Any]]], protocol: str) -> dict[str, Any]:
    planned = [r["planning"][protocol] for rs in found.values() for r in rs if protocol in r["planning"]]
    if not planned:
        return {}
    floors = {name: policy["rate"] for p in planned for name, policy in p["policies"].items() if name != "model"}
    return floors | {"pairs": planned[0]["pairs"]["count"], "already_solved": planned[0]["already_solved"]}


def _paired(first: list[dict[str, Any]], second: list[dict[str, Any]], protocol: str) -> dict[str, Any] | None:
    if not all(protocol in record["planning"] for record in (*first, *second)):
        return None
    hashes = {record["planning"][protocol]["pairs"]["hash"] for record in (*first, *second)}
    assert len(hashes) == 1, "other lists cannot be compared"
    won = [np.array([_successes(record, protocol) for record in records]) for records in (first, second)]
    difference = paired_difference(*won, first[0]["planning"][protocol]["episodes"]["model"]["episode"])
    tests = [mcnemar(a.tolist(), b.tolist()) for a, b in zip(*won, strict=True)]
    return {
        "difference": difference.mean,
        "interval": [difference.low, difference.high],
        "interval_of": EPISODES,
        "p_sign_flip": difference.p_sign_flip,
        "mcnemar": [{"only_first": t.only_first, "only_second": t.only_second, "p": t.p} for t in tests],
    }


def _successes(record: dict[str, Any], protocol: str) -> list[bool]:
    return [step is not None for step in record["planning"][protocol]["episodes"]["model"]["first_success"]]


def _seconds(name: str, home: Path) -> dict[str, float]:
    """Wall-clock of each stage, on this machine as busy as it was."""
    study, seconds = STUDIES[name], {}
    if (path := home / "data" / f"{study.task}-laptop.h5.json").is_file():
        seconds["collect"] = json.loads(path.read_text())["seconds"]
    for _, directory, _, _ in _runs(study, home):
        if (path := directory / RESULT).is_file():
            seconds[f"train {directory.name}"] = json.loads(path.read_text())["seconds"]
    if (path := home / f"{name}-stages.json").is_file():
        seconds |= json.loads(path.read_text())
    return seconds


def table(summary: dict[str, Any]) -> str:
    protocols = list(summary["floors"])
    counted = [f"{p}, {summary['floors'][p].get('pairs', 0)} pairs" for p in protocols]
    measured = {name for cells in summary["methods"].values() for name in cells}
    rates = [name for name in DIAGNOSTICS if name in PAPER_DIAGNOSTICS or name in measured]
    lines = ["| | " + " | ".join((*rates, *counted)) + " |", "|---" * (1 + len(rates) + len(protocols)) + "|"]
    for method, cells in summary["methods"].items():
        lines.append(f"| {method} | " + " | ".join(_cell(cells.get(name)) for name in (*rates, *protocols)) + " |")
    for policy in ("random", "nothing", "expert"):
        floors = [summary["floors"][p].get(policy) for p in protocols]
        shown = " | ".join("–" if f is None else f"{100 * f:.1f}" for f in floors)
        lines.append(f"| {policy} |{' |' * len(rates)} {shown} |")
    for method, found in summary["validation"].items():
        lines.append(f"{method}: " + ", ".join(f"{name} {value['mean']:.4g}" for name, value in found.items()))
    return "\n".join(lines)


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    if "spread" in cell:
        return f"{100 * cell['mean']:.2f} ± {100 * cell['spread']:.2f}"
    low, high = cell["interval"]
    return f"{100 * cell['mean']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


if __name__ == "__main__":
    {"run": run, "collate": collate}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
