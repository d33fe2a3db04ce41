"""Time, memory and validation quality of the laptop preset on TwoRooms, as its user would run it.

    python benchmarks/core_laptop.py results/vit/core.json

Collects 800 episodes, then trains each row of RUNS for 1,000 steps, one after another; memory is that of the command and all
its processes together, sampled twice a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from phylatent.records import provenance, write_json
from phylatent.runs import RESULT

RUNS = {
    "phylatent": ["variant=phylatent"],
    "lewm": ["variant=lewm"],
    "phylatent, no stop-gradient": ["variant=phylatent", "pred.stop_gradient=false"],
    "lewm, no stop-gradient": ["variant=lewm", "pred.stop_gradient=false"],
}


def run(*arguments: str, home: Path) -> dict[str, float]:
    started, peak = time.perf_counter(), 0
    process = psutil.Popen([sys.executable, "-m", "phylatent", *arguments], env=os.environ | {"PHYLATENT_HOME": str(home)})
    while process.poll() is None:
        family = [process, *process.children(recursive=True)]
        peak = max(peak, sum(_memory(member) for member in family))
        time.sleep(0.5)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, arguments)
    return {"seconds": round(time.perf_counter() - started, 1), "peak_memory_gb": round(peak / 1e9, 2)}


def _memory(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return 0


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        record = {"collect": run("collect", "preset=laptop", home=home), "train": {}, "provenance": provenance()}
        for number, (name, arguments) in enumerate(RUNS.items()):
            directory = home / "runs" / str(number)
            cost = run("train", "preset=laptop", *arguments, f"out={directory}", home=home)
            result = json.loads((directory / RESULT).read_text())
            record["train"][name] = cost | {"steps": result["steps"], "validation": result["validation"]}
            write_json(out, record)
            print(name, json.dumps(record["train"][name]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
