"""How planning grows: seconds and memory of a search by candidates, horizon and episodes. Parts of `scale.py`."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import harness
import torch
from peer_lewm import LAPTOP, both

from phylatent.machine import peak_memory_gb
from phylatent.planning.planner import Planner
from phylatent.processes import one_thread
from phylatent.schema import PlanConfig

USUAL = PlanConfig(candidates=64, elites=8, iterations=2)
CANDIDATES, HORIZONS, EPISODES = (32, 128, 512, 2048), (1, 2, 5, 10), (1, 4, 16, 50)
REPETITIONS = 3


def candidates() -> list[harness.Row]:
    return [search(f"search, {n} candidates", replace(USUAL, candidates=n), 1) for n in CANDIDATES]


def horizon() -> list[harness.Row]:
    return [search(f"search, {n} blocks ahead", replace(USUAL, horizon=n, receding=1), 1) for n in HORIZONS]


def episodes() -> list[harness.Row]:
    return [search(f"search, {n} episodes side by side", USUAL, n) for n in EPISODES]


def search(what: str, settings: PlanConfig, count: int) -> harness.Row:
    """Median seconds of a search at laptop size on one thread, and how far it raised the process's peak of memory."""
    _, model = both(LAPTOP, 2, 1.0)
    planner = Planner(model, settings=settings)
    now, goal = torch.randn(2, count, model.config.model.width, generator=torch.Generator().manual_seed(0))

    def once() -> Any:
        return planner.search(now, goal, [planner.generator(index) for index in range(count)])

    with one_thread():
        before = peak_memory_gb()
        once()
        raised = peak_memory_gb() - before
        taken = [harness.seconds(once) for _ in range(REPETITIONS)]
    return harness.Row(what, "s", statistics.median(taken), repetitions=REPETITIONS, more={"memory_gb": round(raised, 3)})


PARTS = {"candidates": candidates, "horizon": horizon, "episodes": episodes}
