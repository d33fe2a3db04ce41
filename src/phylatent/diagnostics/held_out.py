"""Everything the paper's protocol draws: a function of (seed, name) and the held-out episodes, the same for every model."""

# R candidate rows, N states, F frames, P pairs, M branches, k blocks, A raw action values of a block, E episodes

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phylatent.data.readers import Episodes
from phylatent.data.stats import Side, episode_rows
from phylatent.errors import UserError
from phylatent.randomness import derive_seed
from phylatent.schema import PERTURBATIONS, ClipConfig

SHOWN = 20_000
"""Pairs that a plot draws."""


@dataclass(frozen=True, eq=False)
class States:
    """eq:invariance_diagnostic is asked of these."""

    rows: np.ndarray
    later: np.ndarray
    """The row Δ = one block later, in the same episode."""
    kinds: np.ndarray
    """Index into `PERTURBATIONS`: the one that counts in the headline."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """eq:identifiability_diagnostic is asked of these."""

    rows: np.ndarray
    """int64 [F]: the frames."""
    first: np.ndarray
    """int64 [P]: index into `rows`; `second` is another one, and no pair is there twice."""
    second: np.ndarray
    shown: np.ndarray
    """A fixed choice among the pairs, for plots."""


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
    held = HeldOutRows(episodes, tuple(sorted(side.episodes, key=lambda i: int(episodes.offsets[i]))), block_rows)
    if len(held.rows) < 2:
        raise UserError(
            f"the {side.name} episodes of {episodes.path} have {len(held.rows)} rows with a known state; it takes 2"
        )
    return held


def generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng(derive_seed(seed, "diagnose", name))


def draw_states(held: HeldOutRows, *, count: int, seed: int) -> States:
    """Distinct states; the kinds of perturbation in equal shares."""
    rng = generator(seed, "states")
    last = held.episodes.last_rows[list(held.ids)][held.episode_of(held.rows)]
    candidates = held.rows[held.rows + held.block_rows <= last]
    if not len(candidates):
        raise UserError(f"no held-out episode of {held.episodes.path} is as long as one block of actions; collect longer ones")
    rows = rng.choice(candidates, min(count, len(candidates)), replace=False)
    kinds = rng.permutation(np.arange(len(rows)) % len(PERTURBATIONS))
    return States(rows, rows + held.block_rows, kinds)


def draw_pairs(held: HeldOutRows, *, frames: int, count: int, seed: int) -> Pairs:
    """Distinct frames, and distinct unordered pairs of two of them."""
    rng = generator(seed, "pairs")
    rows = rng.choice(held.rows, min(frames, len(held.rows)), replace=False)
    possible = len(rows) * (len(rows) - 1) // 2
    drawn = rng.choice(possible, min(count, possible), replace=False)
    first, second = unrank_pairs(drawn)
    shown = np.sort(rng.choice(len(drawn), min(SHOWN, len(drawn)), replace=False))
    return Pairs(rows, first, second, shown)


def unrank_pairs(ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pair i < j of each rank j(j−1)/2 + i."""
    second = ((1 + np.sqrt(1 + 8 * ranks.astype(np.float64))) // 2).astype(np.int64)
    second -= second * (second - 1) // 2 > ranks  # the root of a large number may round up
    return ranks - second * (second - 1) // 2, second


def draw_starts(held: HeldOutRows, *, count: int, seed: int) -> np.ndarray:
    return generator(seed, "starts").choice(held.rows, min(count, len(held.rows)), replace=False)


def draw_windows(held: HeldOutRows, starts_M: np.ndarray, *, blocks: int, seed: int) -> np.ndarray:
    """float32 [M, 2, k, A]: for each start two windows of raw actions that were taken in two other held-out episodes."""
    rng = generator(seed, "windows")
    length = blocks * held.block_rows
    places = held.episodes.lengths[list(held.ids)] - length  # an episode's last row has no action
    usable = np.flatnonzero(places > 0)
    homes = held.episode_of(starts_M)
    if len(usable) == 0 or (len(usable) == 1 and bool((homes == usable[0]).any())):
        raise UserError(
            f"of {len(held.ids)} held-out episodes {len(usable)} are long enough for {blocks} blocks of actions, and branches "
            "take their actions from other episodes than their start's; collect more or longer ones, or raise split.validation "
            "and split.test"
        )
    windows = [_two_windows(held, usable[usable != home], places, length, rng) for home in homes]
    return np.stack(windows).reshape(len(starts_M), 2, blocks, -1).astype(np.float32)


def _two_windows(
    held: HeldOutRows, others: np.ndarray, places: np.ndarray, length: int, rng: np.random.Generator
) -> np.ndarray:
    """From two episodes, or two different windows of the only one there is."""
    if len(others) > 1:
        chosen = rng.choice(others, 2, replace=False)
        begins = [int(rng.integers(places[episode])) for episode in chosen]
    else:
        chosen = np.repeat(others, 2)
        begins = rng.choice(places[others[0]], 2, replace=bool(places[others[0]] < 2)).tolist()
    offsets = held.episodes.offsets[np.array(held.ids)[chosen]]
    return np.stack([held.episodes.actions[row : row + length] for row in offsets + begins])


def shortfall(name: str, found: int, wanted: int) -> list[str]:
    """A sentence when the held-out episodes had less than was asked for."""
    return [f"{found:,} {name} instead of {wanted:,}: the held-out episodes have no more"] if found < wanted else []
