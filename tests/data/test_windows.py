from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from episode_files import write_file
from torch.utils.data import DataLoader

from phylatent.data.readers import open_episodes
from phylatent.data.stats import split_episodes
from phylatent.data.windows import StepSampler, Windows, as_it_is, steps_per_epoch, validation_batches
from phylatent.errors import UserError
from phylatent.schema import ClipConfig, SplitConfig
from phylatent.tasks import get_task

TASK = get_task("tworooms")
CLIP = ClipConfig(frames=4, stride=2, context=3)
LENGTHS = (12, 6, 9, 7)


@pytest.fixture
def episodes(tmp_path):
    return open_episodes(write_file(tmp_path / "data.h5", LENGTHS), TASK)


def test_every_clip_that_fits_and_no_other(episodes):
    windows = Windows(episodes, [0, 1, 2, 3], CLIP)
    assert windows.starts.tolist() == [0, 1, 2, 3, 4, 5, 18, 19, 20, 27]
    assert len(windows) == 10


def test_a_clip_holds_the_frames_the_actions_between_them_and_the_targets(episodes):
    batch = Windows(episodes, [0, 2], CLIP).__getitems__([6, 1])
    assert (batch.frames.shape, batch.frames.dtype) == ((2, 4, 8, 8, 3), torch.uint8)
    assert batch.frames[:, :, 0, 0, 0].tolist() == [[18, 20, 22, 24], [1, 3, 5, 7]]
    assert batch.targets[1].tolist() == [[1, -1], [3, -3], [5, -5], [7, -7]]
    assert (batch.actions.shape, batch.actions.dtype) == ((2, 3, 4), torch.float32)
    taken = [[18, 18.01, 19, 19.01], [20, 20.01, 21, 21.01], [22, 22.01, 23, 23.01]]
    torch.testing.assert_close(batch.actions[0], torch.tensor(taken) / 1000)


def test_actions_of_the_context_only(episodes):
    batch = Windows(episodes, [0], ClipConfig(frames=4, stride=2, context=2, offset=2))[0]
    assert batch.actions.shape == (1, 2, 4)
    assert batch.frames.shape[1] == 4


def test_blocks_stored_at_their_spacing(tmp_path):
    path = write_file(tmp_path / "data.h5", LENGTHS, stride=5, attributes={"frame_stride": 5})
    stored = open_episodes(path, TASK)
    batch = Windows(stored, [1], ClipConfig())[2]
    assert batch.frames[0, :, 0, 0, 0].tolist() == [14, 15, 16, 17]
    torch.testing.assert_close(batch.actions[0, 1], torch.from_numpy(stored.actions[15]))
    with pytest.raises(UserError, match=r"every 5th frame, but clip\.stride is 2"):
        Windows(stored, [1], CLIP)


def test_no_episode_long_enough(episodes):
    with pytest.raises(UserError, match=r"the longest of 2 .* has 7 rows, .* span 16"):
        Windows(episodes, [1, 3], ClipConfig())


def test_validation_and_test_episodes_are_never_trained_on(episodes):
    split = split_episodes(len(LENGTHS), SplitConfig(validation=0.25, test=0.25))
    owner = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    for ids in (split.train, split.validation, split.test):
        windows = Windows(episodes, ids, ClipConfig(frames=3, stride=1, context=2))
        rows = windows.starts[:, None] + np.arange(3)
        assert set(owner[rows].ravel()) == set(ids)
        assert (owner[rows] == owner[rows][:, :1]).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_hands_out_the_sampler_s_batches(episodes, workers):
    windows = Windows(episodes, range(4), CLIP)
    episodes.frames(np.array([0]))
    sampler = StepSampler(len(windows), 4, seed=0, total_steps=5)
    loader = DataLoader(windows, batch_sampler=sampler, collate_fn=as_it_is, num_workers=workers)
    batches = list(loader)
    assert len(loader) == len(batches) == 5
    for batch, indices in zip(batches, sampler, strict=True):
        assert batch.frames[:, 0, 0, 0, 0].tolist() == windows.starts[indices].tolist()


def sampled(**settings) -> list[list[int]]:
    return list(StepSampler(**{"windows": 100, "batch_size": 32, "seed": 0, "total_steps": 10} | settings))


def test_an_epoch_sees_every_window_at_most_once_and_the_next_one_another_order():
    batches = sampled(batch_size=10, total_steps=20)
    first, second = (list(itertools.chain(*part)) for part in (batches[:10], batches[10:]))
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second


def test_capped_epochs_reshuffle_at_the_cap():
    batches = sampled(batch_size=10, total_steps=8, max_steps_per_epoch=4)
    assert batches[:4] == sampled(batch_size=10, total_steps=4)
    assert batches[4:] == sampled(batch_size=10, total_steps=20)[10:14]


def test_processes_share_out_the_global_batch():
    whole = sampled()
    shares = [sampled(rank=rank, world_size=2) for rank in (0, 1)]
    assert [a + b for a, b in zip(*shares, strict=True)] == whole
    assert all(len(batch) == 16 for batch in shares[0])


@pytest.mark.parametrize("first_step", [1, 3, 7, 10])
def test_a_resumed_run_goes_on_where_it_was(first_step):
    resumed = StepSampler(100, 32, seed=0, total_steps=10, first_step=first_step)
    assert list(resumed) == sampled()[first_step:]
    assert len(resumed) == 10


def test_the_run_s_length_changes_no_batch():
    assert sampled(total_steps=4) == sampled()[:4]


def test_another_seed_is_another_order():
    assert sampled(seed=1) != sampled()


def test_steps_per_epoch():
    assert steps_per_epoch(100, 32) == 3
    assert steps_per_epoch(100, 32, 2) == 2
    assert steps_per_epoch(100, 32, 20) == 3
    with pytest.raises(UserError, match="20 clips, fewer than one batch of 32"):
        steps_per_epoch(20, 32)


def test_a_batch_that_cannot_be_shared():
    with pytest.raises(UserError, match=r"train\.batch_size is 32, shared by 3"):
        sampled(world_size=3)


def test_validation_batches_are_fixed_and_disjoint():
    batches = validation_batches(100, 8, count=5)
    assert [len(batch) for batch in batches] == [8] * 5
    assert len(set(np.concatenate(batches))) == 40
    again = validation_batches(100, 8, count=5, devices=2)
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))
    assert len(validation_batches(100, 8, count=50)) == 12


def test_few_validation_windows_make_one_batch_that_can_be_shared():
    assert [len(batch) for batch in validation_batches(7, 32, count=5, devices=2)] == [6]
    with pytest.raises(UserError, match="1 clips, too few for 2"):
        validation_batches(1, 32, count=5, devices=2)
