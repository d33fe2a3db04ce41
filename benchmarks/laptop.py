"""Every task at laptop scale: which method's latent space fails less often, and can be planned in.

    python benchmarks/laptop.py run TASK HOME          # tens of minutes to hours on two cores; goes on where it was stopped
    python benchmarks/laptop.py collate TASK HOME      # → results/TASK-laptop/, and the table on the screen

Every model of a task has the same data, steps, start/goal lists and diagnostic samples.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from phylatent.records import write_json
from phylatent.statistics import EPISODES, mcnemar, paired_difference, spread


@dataclass(frozen=True)
class Study:
    """What is compared on a task: title → (name of its runs, settings), and how it is judged."""

    methods: dict[str, tuple[str, list[str]]]
    paired: list[tuple[str, str]]
    seeds: tuple[int, ...] = (0,)
    judged: dict[str, list[list[str]]] = field(default_factory=dict)
    """Command → the settings of each of its calls."""


def _variants(*names: str) -> dict[str, tuple[str, list[str]]]:
    return {name: (name, [f"variant={name}"]) for name in names}


PROTOCOLS = ("paper", "moderate", "strict")
RATES = ("invariance", "identifiability", "counterfactual")
ALL = f"protocol={','.join(PROTOCOLS)}"
METHODS = _variants("lewm", "phylatent-plus")
PAIRED = [("phylatent-plus", "lewm")]
STUDIES = {
    "tworooms": Study(METHODS, PAIRED, judged={"diagnose": [["seed=0"]], "plan": [[ALL]]}),
    "reacher": Study(METHODS, PAIRED, judged={"diagnose": [["seed=0"]], "plan": [[ALL]]}),
    "pusht": Study(METHODS, PAIRED, judged={"diagnose": [["seed=0"]], "plan": [[f"{ALL},object"]]}),
    "cube": Study(METHODS, PAIRED, judged={"diagnose": [["seed=0"]], "plan": [[ALL]]}),
}


def run(task: str, home: Path) -> None:
    study, stages = STUDIES[task], home / f"{task}-stages.json"

    def phylatent(*arguments: str, stage: str | None = None) -> None:
        command, started = [sys.executable, "-m", "phylatent", *arguments], time.perf_counter()
        subprocess.run(command, check=True, env=os.environ | {"PHYLATENT_HOME": str(home)})
        if stage is not None:
            known = json.loads(stages.read_text()) if stages.is_file() else {}
            write_json(stages, known | {stage: round(time.perf_counter() - started)})

    phylatent("collect", f"task={task}", "preset=laptop")
    for directory, given, seed in _runs(task, home):
        if not (directory / "model").is_dir():
            begun = (directory / "config.yaml").is_file()
            settings = ["resume=true"] if begun else [f"task={task}", "preset=laptop", f"seed={seed}", *given]
            phylatent("train", f"out={directory}", *settings)
    directories = [str(directory) for directory, _, _ in _runs(task, home)]
    for command, calls in study.judged.items():
        for settings in calls:
            phylatent(command, *directories, *settings, stage=" ".join([command, *settings]))


def _runs(task: str, home: Path) -> list[tuple[Path, list[str], int]]:
    study = STUDIES[task]
    return [(_place(task, home, name, seed), given, seed) for name, given in study.methods.values() for seed in study.seeds]


def _place(task: str, home: Path, name: str, seed: int) -> Path:
    return home / "runs" / f"{task}-{name}-seed{seed}"


def collate(task: str, home: Path) -> None:
    study, out = STUDIES[task], Path(__file__).parents[1] / "results" / f"{task}-laptop"
    found: dict[str, list[dict[str, Any]]] = {}
    for method, (name, _) in study.methods.items():
        found[method] = [_read(_place(task, home, name, seed)) for seed in study.seeds]
        for seed, record in zip(study.seeds, found[method], strict=True):
            write_json(out / f"{name}-seed{seed}.json", record)
    summary = {
        "methods": {method: _average(records) for method, records in found.items()},
        "floors": {p: _floors(found, p) for p in _protocols(found)},
        "paired": {
            f"{first} against {second}": {p: _paired(found[first], found[second], p) for p in _protocols(found)}
            for first, second in study.paired
        },
        "seconds": _seconds(task, home),
    }
    write_json(out / "summary.json", summary)
    print(table(summary))


def _read(directory: Path) -> dict[str, Any]:
    """A run's records, without its frames and without where on whose machine it lay; empty before it is trained."""
    if not (directory / "result.json").is_file():
        return {"planning": {}}
    trained = json.loads((directory / "result.json").read_text())
    record: dict[str, Any] = {"validation": trained["validation"], "training_seconds": trained["seconds"]}
    chosen = ("starts", "commit", "predictor_steps", "trials", "validation_before_predictor_steps")
    record |= {name: trained[name] for name in chosen if trained.get(name) is not None}
    if (path := directory / "diagnostics" / "paper.json").is_file():
        record["diagnostics"] = _public(json.loads(path.read_text()))
    record["planning"] = {}
    for path in sorted((directory / "planning").glob("*/result.json")):
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
    for rate in RATES:
        cells[rate] = [r["diagnostics"][rate] for r in records if "diagnostics" in r]
    for protocol in sorted({protocol for r in records for protocol in r["planning"]}):
        cells[protocol] = [r["planning"][protocol]["policies"]["model"] for r in records if protocol in r["planning"]]
    whole = {name: found for name, found in cells.items() if len(found) == len(records)}
    return {name: _cell_of(found) for name, found in whole.items() if None not in [cell["rate"] for cell in found]}


def _cell_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [cell["rate"] for cell in found]
    if len(rates) == 1:
        return {"mean": rates[0], "interval": found[0]["interval"]}
    return {"mean": float(np.mean(rates)), "spread": spread(rates), "per_seed": rates}


def _floors(found: dict[str, list[dict[str, Any]]], protocol: str) -> dict[str, Any]:
    planned = next((r["planning"][protocol] for rs in found.values() for r in rs if protocol in r["planning"]), None)
    if planned is None:
        return {}
    floors = {name: policy["rate"] for name, policy in planned["policies"].items() if name != "model"}
    return floors | {"pairs": planned["pairs"]["count"], "already_solved": planned["already_solved"]}


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


def _seconds(task: str, home: Path) -> dict[str, float]:
    """Wall-clock of each stage, on this machine as busy as it was."""
    seconds: dict[str, float] = {}
    if (path := home / "data" / f"{task}-laptop.h5.json").is_file():
        seconds["collect"] = json.loads(path.read_text())["seconds"]
    for directory, _, _ in _runs(task, home):
        if (path := directory / "result.json").is_file():
            seconds[f"train {directory.name}"] = json.loads(path.read_text())["seconds"]
    if (path := home / f"{task}-stages.json").is_file():
        seconds |= json.loads(path.read_text())
    return seconds


def table(summary: dict[str, Any]) -> str:
    protocols = list(summary["floors"])
    counted = [f"{p}, {summary['floors'][p].get('pairs', 0)} pairs" for p in protocols]
    lines = ["| | " + " | ".join((*RATES, *counted)) + " |", "|---" * (1 + len(RATES) + len(protocols)) + "|"]
    for method, cells in summary["methods"].items():
        lines.append(f"| {method} | " + " | ".join(_cell(cells.get(name)) for name in (*RATES, *protocols)) + " |")
    for policy in ("random", "nothing", "expert"):
        floors = [summary["floors"][p].get(policy) for p in protocols]
        lines.append(f"| {policy} | | | | " + " | ".join("–" if f is None else f"{100 * f:.1f}" for f in floors) + " |")
    return "\n".join(lines)


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    if "spread" in cell:
        return f"{100 * cell['mean']:.2f} ± {100 * cell['spread']:.2f}"
    low, high = cell["interval"]
    return f"{100 * cell['mean']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


if __name__ == "__main__":
    {"run": run, "collate": collate}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
