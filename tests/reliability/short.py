"""What `make test` has time for: the failures that were kept, one round of new cases, and one kill of each quick command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import cases
import fuzz
import kills
import material

QUICK = ("diagnose", "plan", "report", "import, a model", "import, packed data", "export", "prepare")
"""Of collecting and training there are tests of their own."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    material.warm()
    source = material.build(chosen.place / "material")
    bench = fuzz.Bench(source, chosen.place, min(2, len(os.sched_getaffinity(0))))
    again = [asdict(outcome) for outcome in bench.run(fuzz.replayed(list(cases.kept())))]
    new = [asdict(outcome) for outcome in bench.run(fuzz.numbered(source, chosen.seed, len(fuzz.kinds(source)), lines=1))]
    tallies = [kills.kill(name, source, chosen.place / "killed", 1, chosen.seed) for name in QUICK]
    record = {"again": again, "new": new, "kills": kills.rows(tallies)}
    (chosen.place / "short.json").write_text(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
