"""What samples are made of: held-out rows, physical coordinates, seeded randomness, and the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from phylatent.diagnostics.branches import Branches, Execution, execute
from phylatent.diagnostics.coordinates import Coordinates
from phylatent.diagnostics.held_out import HeldOutRows, generator
from phylatent.machine import cores
from phylatent.schema import ClipConfig, DiagnoseConfig, TaskSpec

Progress = Callable[[str, int, int], None]
"""(what is being done, how much of it is done, how much there is in all)"""


@dataclass(frozen=True, eq=False)
class Material:
    task: TaskSpec
    clip: ClipConfig
    settings: DiagnoseConfig
    held_out: HeldOutRows
    coordinates: Coordinates
    """Of physical states, in which distances can be compared."""
    progress: Progress | None = None

    def rng(self, seed: int, name: str) -> np.random.Generator:
        """The draws that go by this name."""
        return generator(seed, name)

    def execute(self, starts_M: np.ndarray, windows_MbkA: np.ndarray, seed: int) -> Branches:
        """From every start each of its windows of actions, really executed in the simulator."""
        episodes, seeds = self.held_out.episodes, self.settings.seeds
        done, total = seeds.index(seed) * len(starts_M), len(seeds) * len(starts_M)

        def tick() -> None:
            nonlocal done
            done += 1
            if self.progress is not None:
                self.progress("simulating branches", done, total)

        size, stride = episodes.frame_shape[0], self.clip.stride
        return execute(
            starts_M,
            windows_MbkA,
            execution=Execution(self.task, size, episodes.render, stride, self.settings.horizons),
            episodes=episodes,
            workers=self.settings.workers or cores(),
            tick=tick,
        )
