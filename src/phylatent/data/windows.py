"""The clips that training sees: windows over episodes, and the order in which they come."""

# B batch, T frames, H context frames, A action dimensions, s stride, d_s physical dimensions, h height, w width

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from phylatent.data.readers import Episodes
from phylatent.errors import UserError
from phylatent.randomness import derive_seed
from phylatent.schema import ClipConfig


class Batch(NamedTuple):
    frames: Tensor
    """uint8 [B, T, h, w, 3]"""
    actions: Tensor
    """float32 [B, H, s·A], raw: block j is what was done from frame j to frame j + 1, in order of time."""
    targets: Tensor
    """float32 [B, T, d_s], raw; may hold NaN."""


def as_it_is(batch: Any) -> Batch:
    """The collate function of a loader over `Windows`, which hands out whole batches."""
    return batch


class Windows(Dataset[Batch]):
    """Every clip of consecutive steps inside one of the given episodes."""

    def __init__(self, episodes: Episodes, episode_ids: Sequence[int], clip: ClipConfig) -> None:
        if episodes.frame_stride not in (1, clip.stride):
            raise UserError(
                f"{episodes.path} stores every {episodes.frame_stride}th frame, but clip.stride is {clip.stride}; "
                f"set clip.stride={episodes.frame_stride}, or use data that stores every frame"
            )
        self.episodes = episodes
        self.clip = clip
        self.spacing = clip.stride // episodes.frame_stride
        """Rows from one frame of a clip to the next."""
        self.span = (clip.frames - 1) * self.spacing + 1
        self.episode_ids = ids = np.asarray(episode_ids, dtype=np.int64)
        counts = (episodes.lengths[ids] - self.span + 1).clip(0)
        if not counts.sum():
            raise UserError(
                f"no episode is long enough for one clip: the longest of {len(ids)} in {episodes.path} has "
                f"{episodes.lengths[ids].max(initial=0)} rows, and {clip.frames} frames at stride {clip.stride} span "
                f"{self.span}; collect longer episodes, or take a smaller clip.frames or clip.stride"
            )
        offsets = episodes.offsets[ids]
        self.starts = np.concatenate([np.arange(n) + offset for n, offset in zip(counts, offsets, strict=True)])
        """int64 [windows]: each clip's first row in the file."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Batch:
        """A batch of one."""
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        rows_BT, actions, targets = self.without_frames(indices)
        return Batch(torch.from_numpy(self.episodes.frames(rows_BT)), actions, targets)

    def without_frames(self, indices: Sequence[int]) -> tuple[np.ndarray, Tensor, Tensor]:
        """(rows of the file [B, T], actions, targets): a batch whose frames are not read."""
        starts = self.starts[np.asarray(indices, dtype=np.int64)][:, None]
        rows_BT = starts + np.arange(self.clip.frames) * self.spacing
        action_rows = starts + np.arange(self.clip.context * self.spacing)
        blocks = self.episodes.actions[action_rows].reshape(len(starts), self.clip.context, -1)
        return rows_BT, torch.from_numpy(blocks), torch.from_numpy(self.episodes.targets[rows_BT])


def steps_per_epoch(windows: int, batch_size: int, max_steps: int | None = None) -> int:
    """Full batches in one pass over the windows, cut at `max_steps`."""
    if windows < batch_size:
        raise UserError(
            f"the training episodes hold {windows} clips, fewer than one batch of {batch_size}; "
            f"collect more episodes, or take a smaller train.batch_size"
        )
    steps = windows // batch_size
    return steps if max_steps is None else min(steps, max_steps)


class StepSampler(Sampler[list[int]]):
    """Batches of a whole run, of which a process gets its own slice.

    The global batch of step n is a function of (seed, n) alone: a run that resumes at n goes on as if it had never
    stopped, and 2 processes × 16 see together what 1 process × 32 sees. Every pass over the data has its own order.
    """

    def __init__(
        self,
        windows: int,
        batch_size: int,
        seed: int,
        total_steps: int,
        max_steps_per_epoch: int | None = None,
        first_step: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size % world_size:
            raise UserError(
                f"train.batch_size is {batch_size}, shared by {world_size} processes; it must be a multiple of {world_size}"
            )
        self.windows = windows
        self.batch_size = batch_size
        self.seed = seed
        self.total_steps = total_steps
        self.first_step = first_step
        self.epoch_steps = steps_per_epoch(windows, batch_size, max_steps_per_epoch)
        share = batch_size // world_size
        self.own = slice(rank * share, (rank + 1) * share)

    def __len__(self) -> int:
        """All steps of the run, also for one that resumes: progress and schedules count from its beginning."""
        return self.total_steps

    def __iter__(self) -> Iterator[list[int]]:
        step = self.first_step
        while step < self.total_steps:
            epoch, position = divmod(step, self.epoch_steps)
            order = self._order(epoch)
            for at in range(position, min(self.epoch_steps, position + self.total_steps - step)):
                yield order[at * self.batch_size : (at + 1) * self.batch_size][self.own].tolist()
                step += 1

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng(derive_seed(self.seed, "windows", epoch)).permutation(self.windows)


def validation_batches(windows: int, batch_size: int, *, count: int, devices: int = 1) -> list[np.ndarray]:
    """Up to `count` global batches of window indices, the same for every run on the same data.

    Fewer windows than one batch make one smaller batch; each can be shared evenly by `devices` processes.
    """
    size = min(batch_size, windows)
    size -= size % devices
    if size == 0:
        raise UserError(
            f"the validation episodes hold {windows} clips, too few for {devices} processes; "
            f"collect more episodes, or raise split.validation"
        )
    # The name that earlier versions drew by: a run that they began goes on with the windows it has.
    order = np.random.default_rng(derive_seed("held-out windows")).permutation(windows)
    return [order[at * size : (at + 1) * size] for at in range(min(count, windows // size))]
