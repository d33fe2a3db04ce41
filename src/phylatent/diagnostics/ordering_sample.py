"""The sample of protocol=ordering: anchors with references from near to far, and a fan of constant actions from each start."""

# Q frames of the pool, a anchors, R references, C physical coordinates, A raw action values of a block, k blocks, b actions

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phylatent.diagnostics.coordinates import Coordinates
from phylatent.diagnostics.held_out import HeldOutRows
from phylatent.errors import UserError
from phylatent.schema import TaskSpec

QUARTILES = ("Q1", "Q3", "Q4")
"""Those that are compared."""
RANDOM_PAIRS = 100_000
DIRECTIONS, RADIUS = 3, 75
STARTS = 300
MISSING = -1


@dataclass(frozen=True, eq=False)
class Neighbours:
    """A pool of frames; its first ones are anchors."""

    rows: np.ndarray
    """int64 [Q]."""
    references: np.ndarray
    """int64 [3, a, R]: pool indices in Q1, Q3 and Q4 of the distance to the anchor; −1 where a quartile has no more."""


def draw_neighbours(
    held_out: HeldOutRows,
    coordinates: Coordinates,
    rng: np.random.Generator,
    *,
    pool: int,
    anchors: int,
    references: int,
) -> Neighbours:
    """Quartiles are those of the physical distance between random frames of the pool."""
    rows = rng.choice(held_out.rows, min(pool, len(held_out.rows)), replace=False)
    points_QC = coordinates(held_out.episodes.targets[rows])
    first = rng.integers(len(rows), size=RANDOM_PAIRS)
    second = (first + rng.integers(1, len(rows), size=RANDOM_PAIRS)) % len(rows)
    bounds = np.quantile(np.linalg.norm(points_QC[first] - points_QC[second], axis=1), (0.25, 0.5, 0.75))
    anchors = min(anchors, len(rows))
    chosen = np.full((len(QUARTILES), anchors, references), MISSING, dtype=np.int64)
    for anchor in range(anchors):
        quartile_Q = np.searchsorted(bounds, np.linalg.norm(points_QC - points_QC[anchor], axis=1), side="left")
        quartile_Q[anchor] = MISSING
        for place, name in enumerate(QUARTILES):
            there = np.flatnonzero(quartile_Q == int(name[1]) - 1)
            drawn = rng.choice(there, min(references, len(there)), replace=False)
            chosen[place, anchor, : len(drawn)] = drawn
    return Neighbours(rows, chosen)


def action_fan(blocks_NA: np.ndarray, *, low_A: np.ndarray, high_A: np.ndarray) -> np.ndarray:
    """float32 [b, A]: the mean block, and ± each of three principal directions at the 75 % radius, within the action bounds.

    A block of raw actions is one action here: one raw action of two dimensions has no third direction.
    """
    blocks = blocks_NA.astype(np.float64)
    centre = blocks.mean(axis=0)
    directions = np.linalg.svd(blocks - centre, full_matrices=False)[2][:DIRECTIONS]
    # A principal direction has no sign of its own; without one, machines could disagree about the order of the actions.
    directions *= np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])[:, None]
    radii = np.percentile(np.abs((blocks - centre) @ directions.T), RADIUS, axis=0)
    arms = radii[:, None] * directions
    return np.clip(np.concatenate([centre[None], centre + arms, centre - arms]), low_A, high_A).astype(np.float32)


def constant_windows(held_out: HeldOutRows, task: TaskSpec, *, stride: int, blocks: int) -> np.ndarray:
    """float32 [b, k, A]: each action of the fan, taken again and again."""
    pieces = []
    for episode in held_out.ids:
        offset, count = held_out.episodes.offsets[episode], (held_out.episodes.lengths[episode] - 1) // held_out.block_rows
        actions = held_out.episodes.actions[offset : offset + count * held_out.block_rows]
        pieces.append(actions.reshape(count, stride * task.action_dim))
    taken = np.concatenate(pieces)
    if len(taken) < 2:
        raise UserError(f"the held-out episodes of {held_out.episodes.path} hold {len(taken)} blocks of actions; it takes 2")
    low, high = (np.tile(np.array(bound), stride) for bound in (task.action_low, task.action_high))
    return np.repeat(action_fan(taken, low_A=low, high_A=high)[:, None], blocks, axis=1)
