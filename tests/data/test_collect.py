from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import h5py
import numpy as np
import pytest
from small_collection import SMALL, TASK, contents

from phylatent.data.collect import collect
from phylatent.data.readers import open_episodes
from phylatent.errors import UserError
from phylatent.simulator import Simulator


def test_rows_and_columns(collected):
    with h5py.File(collected) as file:
        assert set(file) == {"pixels", "action", *TASK.columns, "ep_idx", "step_idx", "ep_len", "ep_offset"}
        assert file["pixels"].shape == (65, 32, 32, 3)
        assert file["pixels"].chunks == (1, 32, 32, 3)
        assert file["ep_len"][:].tolist() == [13] * 5
        assert file["ep_offset"][:].tolist() == [0, 13, 26, 39, 52]
        assert (file["ep_idx"][:] == np.repeat(np.arange(5), 13)).all()
        assert (file["step_idx"][:] == np.tile(np.arange(13), 5)).all()
        assert (np.isnan(file["action"][:]).all(axis=1) == (file["step_idx"][:] == 12)).all()
        said = [file.attrs[name] for name in ("task", "env_id", "frame_stride", "seed")]
        assert said == ["tworooms", "swm/TwoRoom-v1", 1, 0]
        assert json.loads(file.attrs["provenance"])["packages"]["stable-worldmodel"]
    assert list(collected.parent.iterdir()) == [collected]


def test_a_restored_row_draws_its_frame_to_the_pixel(collected):
    episodes = open_episodes(collected, TASK)
    simulator = Simulator(TASK, 32)
    simulator.reset(123)
    for row in range(0, 65, 7):
        simulator.restore(episodes.row(row))
        assert (simulator.frame() == episodes.frames(np.array(row))).all()


def test_replaying_the_actions_gives_the_recorded_states(collected):
    episodes = open_episodes(collected, TASK)
    simulator = Simulator(TASK, 32)
    simulator.reset(123)
    for offset in episodes.offsets:
        simulator.restore(episodes.row(offset))
        for row in range(offset, offset + 12):
            simulator.step(episodes.actions[row])
            assert (simulator.columns()["state"] == episodes.row(row + 1)["state"]).all()


def new_goal_every_step(simulator: Simulator, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    steps = iter(range(1000))

    def act() -> np.ndarray:
        step = next(steps)
        simulator.env._set_goal_state(np.array([20 + step, 50], dtype=np.float32))
        return np.array([0.01 * step, 0], dtype=np.float32)

    return act


def test_a_row_holds_the_goal_that_its_action_went_for(tmp_path):
    task = replace(TASK, behaviour=new_goal_every_step)
    path = collect(task, replace(SMALL, episodes=1, steps=4), seed=0, path=tmp_path / "data.h5")
    with h5py.File(path) as file:
        assert file["goal_state"][:, 0].tolist() == [20, 21, 22, 23, 23]
        assert file["action"][:4, 0].tolist() == pytest.approx([0, 0.01, 0.02, 0.03])


@pytest.mark.slow
def test_contents_do_not_depend_on_processes_or_shards(collected, tmp_path):
    calls: list[tuple[int, int]] = []
    path = collect(
        TASK,
        replace(SMALL, workers=2, shard_episodes=1),
        seed=0,
        path=tmp_path / "data.h5",
        progress=lambda done, total: calls.append((done, total)),
    )
    assert contents(path) == contents(collected)
    assert calls == [(done, 5) for done in range(6)]


def test_every_episode_is_another(collected):
    with h5py.File(collected) as file:
        assert len(np.unique(file["state"][::13], axis=0)) == 5
        assert len(np.unique(file["action"][:].reshape(5, 13, 2)[:, :12, 0], axis=0)) == 5


def test_another_seed_is_another_collection(collected, tmp_path):
    other = collect(TASK, replace(SMALL, episodes=2), seed=1, path=tmp_path / "data.h5")
    with h5py.File(other) as a, h5py.File(collected) as b:
        assert not np.isin(a["state"][:], b["state"][:]).any()


def test_a_longer_collection_begins_with_the_shorter_one(collected, tmp_path):
    longer = collect(TASK, replace(SMALL, episodes=6, shard_episodes=3), seed=0, path=tmp_path / "data.h5")
    with h5py.File(longer) as a, h5py.File(collected) as b:
        assert (a["pixels"][:65] == b["pixels"][:]).all()


def test_stored_blocks_are_the_same_episodes_at_block_spacing(collected, tmp_path):
    path = collect(TASK, replace(SMALL, frame_stride=4), seed=0, path=tmp_path / "data.h5")
    blocks, rows = open_episodes(path, TASK), open_episodes(collected, TASK)
    assert blocks.frame_stride == 4
    assert blocks.lengths.tolist() == [4] * 5
    kept = (rows.offsets[:, None] + np.arange(0, 13, 4)).ravel()
    assert (blocks.frames(np.arange(20)) == rows.frames(kept)).all()
    assert (blocks.targets == rows.targets[kept]).all()
    assert blocks.column("step_idx").tolist() == [0, 4, 8, 12] * 5
    for episode in range(5):
        taken = rows.actions[rows.offsets[episode] :][:12]
        assert (blocks.actions[blocks.offsets[episode] :][:3] == taken.reshape(3, 8)).all()


def test_stable_worldmodel_reads_it(collected):
    from stable_worldmodel.data.formats.hdf5 import HDF5Dataset

    rows = open_episodes(collected, TASK)
    dataset = HDF5Dataset(path=collected, frameskip=3, num_steps=4)
    assert dataset.lengths.tolist() == [13] * 5
    for index in (0, len(dataset) - 2):
        episode, start = dataset.clip_indices[index]
        first = rows.offsets[episode] + start
        clip = dataset[index]
        assert (clip["pixels"].permute(0, 2, 3, 1).numpy() == rows.frames(first + 3 * np.arange(4))).all()
        assert (clip["proprio"].numpy() == rows.targets[first + 3 * np.arange(4)]).all()
        assert (clip["action"].numpy()[:3] == rows.actions[first : first + 9].reshape(3, 6)).all()


def test_a_finished_collection_is_left_alone(collected):
    before = (collected.stat().st_mtime_ns, collected.stat().st_ino)
    assert collect(TASK, replace(SMALL, workers=2, shard_episodes=3), seed=0, path=collected) == collected
    assert (collected.stat().st_mtime_ns, collected.stat().st_ino) == before


def test_what_a_crash_after_completion_left_is_cleared_away(collected):
    parts = collected.with_name("data.h5.parts")
    parts.mkdir()
    (parts / "shard-00000.h5").touch()
    collect(TASK, SMALL, seed=0, path=collected)
    assert not parts.exists()


def test_an_existing_file_is_never_overwritten(collected, tmp_path):
    with pytest.raises(UserError, match=r"another collection \(seed is 0 there and 1 here, steps is 12 there and 24 here"):
        collect(TASK, replace(SMALL, steps=24), seed=1, path=collected)
    foreign = tmp_path / "data.h5"
    foreign.write_text("mine")
    with pytest.raises(UserError, match="exists and was not written by"):
        collect(TASK, SMALL, seed=0, path=foreign)
    assert foreign.read_text() == "mine"


@pytest.mark.parametrize(
    "task, seed, expected", [(replace(TASK, behaviour=None), 0, "without a behaviour policy"), (TASK, -1, "seed is -1")]
)
def test_what_cannot_be_collected(tmp_path, task, seed, expected):
    with pytest.raises(UserError, match=expected):
        collect(task, SMALL, seed=seed, path=tmp_path / "data.h5")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="a part of it is a file, not a directory"):
        collect(TASK, SMALL, seed=0, path=tmp_path / "file" / "data.h5")
