"""What `result.json` says of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from phylatent.reading import check_shape, read_json
from phylatent.reading.shapes import COUNT, REAL, Maybe
from phylatent.runs import RESULT

AGAIN = "delete it, and resume=true makes it again from the last checkpoint"
MEASURED = {"*": Maybe(REAL)}
SHAPE = {
    "steps": COUNT,
    "seconds": Maybe(REAL),
    "starts?": COUNT,
    "peak_memory_gb": Maybe(REAL),
    "validation": MEASURED,
    "validation_before_predictor_steps?": Maybe(MEASURED),
}


@dataclass(frozen=True)
class TrainResult:
    """`seconds` is the sum over all starts of the run, of a killed one up to its last checkpoint; NaN if it was begun by a
    version that kept no time. `peak_memory_gb` is that of the last start.
    """

    directory: Path
    steps: int
    seconds: float
    starts: int
    peak_memory_gb: float
    validation: dict[str, float]
    validation_before_predictor_steps: dict[str, float] | None = None
    """At the end of the joint training, where the predictor's own steps came after it."""


def read_result(directory: Path) -> TrainResult:
    record = read_json(directory / RESULT, again=AGAIN)
    check_shape(directory / RESULT, record, SHAPE, again=AGAIN)
    before = record.get("validation_before_predictor_steps")
    return TrainResult(
        directory=directory,
        steps=record["steps"],
        seconds=math.nan if record["seconds"] is None else record["seconds"],
        starts=record.get("starts", 1),
        peak_memory_gb=math.nan if record["peak_memory_gb"] is None else record["peak_memory_gb"],
        validation=_numbers(record["validation"]),
        validation_before_predictor_steps=None if before is None else _numbers(before),
    )


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    """JSON has no NaN: what is null there was one."""
    return {name: math.nan if value is None else value for name, value in values.items()}
