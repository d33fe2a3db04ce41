"""The effect on TwoRooms at laptop scale: `lewm` against `phylatent`, with and without the stop-gradient, three training seeds.

    python benchmarks/tworooms_laptop.py run HOME          # hours on two cores; goes on where it was stopped
    python benchmarks/tworooms_laptop.py collate HOME      # → results/tworooms-laptop/, and the table on the screen

Every model has the same data, steps, start/goal lists and diagnostic samples.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from phylatent.records import write_json
from phylatent.statistics import mcnemar, paired_difference, spread

SEEDS = (0, 1, 2)
METHODS = {
    "lewm": ("lewm-nosg", ["variant=lewm", "pred.stop_gradient=false"]),
    "phylatent": ("phylatent-nosg", ["variant=phylatent", "pred.stop_gradient=false"]),
    "lewm, stop-gradient": ("lewm-sg", ["variant=lewm", "pred.stop_gradient=true"]),
    "phylatent, stop-gradient": ("phylatent-sg", ["variant=phylatent", "pred.stop_gradient=true"]),
}
PAIRED = [
    ("phylatent", "lewm"),
    ("phylatent", "lewm, stop-gradient"),
    ("phylatent, stop-gradient", "lewm, stop-gradient"),
]
PROTOCOLS = ("paper", "moderate", "strict")
RATES = ("invariance", "identifiability", "counterfactual")
OUT = Path(__file__).parents[1] / "results" / "tworooms-laptop"


def run(home: Path) -> None:
    def phylatent(*arguments: str) -> None:
        command = [sys.executable, "-m", "phylatent", *arguments]
        subprocess.run(command, check=True, env=os.environ | {"PHYLATENT_HOME": str(home)})

    phylatent("collect", "preset=laptop")
    runs = [(home / "runs" / f"{name}-seed{seed}", given, seed) for name, given in METHODS.values() for seed in SEEDS]
    for directory, given, seed in runs:
        if not (directory / "model").is_dir():
            begun = (directory / "config.yaml").is_file()
            settings = ["resume=true"] if begun else ["preset=laptop", f"seed={seed}", *given]
            phylatent("train", f"out={directory}", *settings)
    directories = [str(directory) for directory, _, _ in runs]
    phylatent("diagnose", *directories)
    phylatent("plan", *directories, "protocol=paper,moderate")
    phylatent("plan", *directories, "protocol=strict", "seed=0")


def collate(home: Path) -> None:
    found = {method: [_read(home / "runs" / f"{name}-seed{seed}") for seed in SEEDS] for method, (name, _) in METHODS.items()}
    for method, (name, _) in METHODS.items():
        for seed, record in zip(SEEDS, found[method], strict=True):
            write_json(OUT / f"{name}-seed{seed}.json", record)
    summary = {
        "methods": {method: _average(records) for method, records in found.items()},
        "floors": {p: _floors(found, p) for p in PROTOCOLS},
        "paired": {
            f"{first} against {second}": {p: _paired(found[first], found[second], p) for p in PROTOCOLS}
            for first, second in PAIRED
        },
    }
    write_json(OUT / "summary.json", summary)
    print(table(summary))


def _read(directory: Path) -> dict[str, Any]:
    """A run's records, without its frames and without where on whose machine it lay."""
    record: dict[str, Any] = {"validation": json.loads((directory / "result.json").read_text())["validation"]}
    if (path := directory / "diagnostics" / "paper.json").is_file():
        record["diagnostics"] = _public(json.loads(path.read_text()))
    record["planning"] = {}
    for protocol in PROTOCOLS:
        if (path := directory / "planning" / protocol / "result.json").is_file():
            planned = _public(json.loads(path.read_text()))
            planned["episodes"] = {
                policy: {key: [e[key] for e in episodes] for key in ("episode", "start", "first_success", "final_distance")}
                for policy, episodes in planned["episodes"].items()
                if policy == "model"
            }
            record["planning"][protocol] = planned
    return record


def _public(record: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in record.items() if key not in ("key", "settings")}
    kept["settings"] = {key: value for key, value in record["settings"].items() if key != "workers"}
    kept["provenance"] = {key: record["provenance"][key] for key in ("created", "python", "packages", "commit")}
    return kept


def _average(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and sample deviation over training seeds; None where one of them was not measured."""
    assert len({r["diagnostics"]["sample"] for r in records if "diagnostics" in r}) <= 1, "other samples cannot be averaged"
    cells: dict[str, list[float]] = {}
    for rate in RATES:
        cells[rate] = [r["diagnostics"][rate]["rate"] for r in records if "diagnostics" in r]
    for protocol in PROTOCOLS:
        cells[protocol] = [r["planning"][protocol]["policies"]["model"]["rate"] for r in records if protocol in r["planning"]]
    return {
        name: {"mean": float(np.mean(values)), "spread": spread(values), "per_seed": values}
        if len(values) == len(records) and None not in values
        else None
        for name, values in cells.items()
    }


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
    difference = paired_difference(*won)
    tests = [mcnemar(a.tolist(), b.tolist()) for a, b in zip(*won, strict=True)]
    return {
        "difference": difference.mean,
        "interval": [difference.low, difference.high],
        "mcnemar": [{"only_first": t.only_first, "only_second": t.only_second, "p": t.p} for t in tests],
    }


def _successes(record: dict[str, Any], protocol: str) -> list[bool]:
    return [step is not None for step in record["planning"][protocol]["episodes"]["model"]["first_success"]]


def table(summary: dict[str, Any]) -> str:
    counted = [f"{p}, {summary['floors'][p].get('pairs', 0)} pairs" for p in PROTOCOLS]
    lines = ["| | " + " | ".join((*RATES, *counted)) + " |", "|---" * 7 + "|"]
    for method, cells in summary["methods"].items():
        lines.append(f"| {method} | " + " | ".join(_cell(cells[name]) for name in (*RATES, *PROTOCOLS)) + " |")
    for policy in ("random", "nothing", "expert"):
        floors = [summary["floors"][p].get(policy) for p in PROTOCOLS]
        lines.append(f"| {policy} | | | | " + " | ".join("–" if f is None else f"{100 * f:.1f}" for f in floors) + " |")
    return "\n".join(lines)


def _cell(cell: dict[str, Any] | None) -> str:
    return "–" if cell is None else f"{100 * cell['mean']:.2f} ± {100 * cell['spread']:.2f}"


if __name__ == "__main__":
    {"run": run, "collate": collate}[sys.argv[1]](Path(sys.argv[2]))
