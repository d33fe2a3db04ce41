"""What every speed benchmark shares: two things timed in turns, their ratio with its spread, and the record of it.

The machine is shared and its speed moves, so that a time alone says little. Both sides run in the same process tree, one after
the other, the order changing from repetition to repetition; what is reported is the median of the ratios.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from phylatent.machine import cores
from phylatent.records import provenance, write_json

HERE = Path(__file__).parent
RESULTS = HERE / "results"


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's table."""

    what: str
    """Such as "laptop, phylatent": what was timed."""
    unit: str
    """Of `ours` and `peer`, such as "s" or "clips/s"."""
    ours: float
    """Median."""
    peer: float | None = None
    """Median; None where nothing is compared."""
    peer_name: str = ""
    ratio: float | None = None
    """Median of the repetitions' ratios: how many times as fast as the peer."""
    spread: tuple[float, float] | None = None
    """The smallest and the largest of them."""
    asked: float | None = None
    """The ratio that was aimed at; for a row without a peer, the value."""
    at_most: bool = False
    """Whether `asked` is to stay above rather than below."""
    repetitions: int = 1
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else was measured: memory, costs, outcomes."""


def seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def in_turns(ours: Callable[[], float], peer: Callable[[], float], repetitions: int) -> list[tuple[float, float]]:
    """(ours, peer) of each repetition; the order changes from one to the next. Call both once before it, to warm up."""
    pairs = []
    for repetition in range(repetitions):
        if repetition % 2:
            theirs, mine = peer(), ours()
        else:
            mine, theirs = ours(), peer()
        pairs.append((mine, theirs))
    return pairs


def compared(
    what: str,
    pairs: Sequence[tuple[float, float]],
    *,
    unit: str,
    peer_name: str,
    more_is_better: bool = False,
    asked: float | None = None,
    **more: Any,
) -> Row:
    """A row from `in_turns`: seconds, or with `more_is_better` something per second."""
    ratios = [mine / theirs if more_is_better else theirs / mine for mine, theirs in pairs]
    return Row(
        what=what,
        unit=unit,
        ours=statistics.median(mine for mine, _ in pairs),
        peer=statistics.median(theirs for _, theirs in pairs),
        peer_name=peer_name,
        ratio=statistics.median(ratios),
        spread=(min(ratios), max(ratios)),
        asked=asked,
        repetitions=len(pairs),
        more=more,
    )


def machine() -> dict[str, Any]:
    """What a reader needs to know of the machine to compare with their own."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.cuda.is_available(),
        "load": round(os.getloadavg()[0], 1),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def write(name: str, rows: Iterable[Row], out: Path = RESULTS) -> Path:
    """`results/NAME.json`; each row is shown as soon as it is there."""
    kept = []
    for row in rows:
        print(sentence(row), flush=True)
        kept.append(asdict(row))
    path = out / f"{name}.json"
    made = provenance()
    made["command"] = [Path(argument).name for argument in made["command"]]  # a record gets published: no paths of a machine
    about = {"benchmark": name, "machine": machine(), "provenance": made}
    write_json(path, about | {"rows": kept})
    print(f"→ {path}")
    return path


def sentence(row: Row) -> str:
    text = f"{row.what}: {row.ours:.4g} {row.unit}"
    if row.ratio is not None and row.peer is not None and row.spread is not None:
        low, high = row.spread
        text += f", {row.peer_name} {row.peer:.4g}: {row.ratio:.2f}× ({low:.2f}–{high:.2f}, {row.repetitions} repetitions)"
    if row.asked is not None:
        text += f"; {'at most' if row.at_most else 'at least'} {row.asked:g} asked"
    return text
