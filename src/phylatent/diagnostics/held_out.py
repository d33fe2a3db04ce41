"""The rows that a model is judged on: of held-out episodes, with a known physical state."""

# R rows, E episodes, k blocks, A raw action values of a block

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phylatent.data.readers import Episodes
from phylatent.data.stats import Side, episode_rows
from phylatent.errors import UserError
from phylatent.randomness import derive_seed
from phylatent.schema import ClipConfig


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """The episodes that are judged on, in the order of their rows, and how many rows make a block."""

    episodes: Episodes
    ids: tuple[int, ...]
    block_rows: int

    @property
    def rows(self) -> np.ndarray:
        """Every held-out row whose physical state is known."""
        rows = episode_rows(self.episodes, self.ids)
        return rows[np.isfinite(self.episodes.targets[rows]).all(axis=1)]

    def rows_before(self, blocks: int) -> np.ndarray:
        """Those of `rows` that have so many blocks of actions after them in their episode."""
        last = self.episodes.last_rows[list(self.ids)][self.episode_of(self.rows)]
        return self.rows[self.rows + blocks * self.block_rows <= last]

    def actions_after(self, rows_R: np.ndarray, blocks: int) -> np.ndarray:
        """float32 [R, k, A]: the raw actions that were taken from each row on."""
        places = rows_R[:, None] + np.arange(blocks * self.block_rows)
        return self.episodes.actions[places].reshape(len(rows_R), blocks, self.block_rows * self.episodes.actions.shape[1])

    def episode_of(self, rows: np.ndarray) -> np.ndarray:
        """int64: position of each row's episode in `ids`."""
        return np.searchsorted(self.episodes.offsets[list(self.ids)], rows, side="right") - 1


def find_held_out_rows(episodes: Episodes, side: Side, clip: ClipConfig) -> HeldOutRows:
    block_rows, rest = divmod(clip.stride, episodes.frame_stride)
    if rest:
        raise UserError(
            f"{episodes.path} has a frame every {episodes.frame_stride} steps, which does not divide a block of "
            f"{clip.stride}; collect with a collect.frame_stride that does"
        )
    if not side.episodes:
        raise UserError("the split holds out no episode; diagnostics are measured on held-out episodes only")
    held_out = HeldOutRows(episodes, tuple(sorted(side.episodes, key=lambda i: int(episodes.offsets[i]))), block_rows)
    if len(held_out.rows) < 2:
        raise UserError(
            f"the {side.name} episodes of {episodes.path} have {len(held_out.rows)} rows with a known state; it takes 2"
        )
    return held_out


def generator(seed: int, name: str) -> np.random.Generator:
    """Draws of a seed and of its user's own name, so that no diagnostic's sample depends on the others."""
    return np.random.default_rng(derive_seed(seed, "diagnose", name))
