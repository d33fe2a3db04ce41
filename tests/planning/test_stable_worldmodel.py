"""Our model inside stable-worldmodel's own planning: equal costs, and its whole pipeline on twenty of our pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from phylatent import WorldModel
from phylatent.data.readers import open_episodes
from phylatent.data.stats import Split
from phylatent.planning.pairs import draw_pairs
from phylatent.planning.planner import Planner
from phylatent.planning.stable_worldmodel import ActionScaler, CostModel
from phylatent.schema import PlanConfig
from phylatent.tasks.tworooms import TASK


@pytest.fixture(scope="module")
def model(uninterrupted: Path) -> WorldModel:
    return WorldModel.from_pretrained(uninterrupted / "model").eval()


def candidates(model: WorldModel, count: int) -> torch.Tensor:
    """z-scored blocks inside the bounds [1, count, 5, A]."""
    low, high = Planner(model).actions.bounds()
    return low + (high - low) * torch.rand(1, count, 5, len(low), generator=torch.Generator().manual_seed(0))


def test_the_adapter_s_costs_are_the_planner_s(model, tworooms_data):
    frames = torch.from_numpy(open_episodes(tworooms_data, TASK).frames(np.array([3, 25])))
    planner, tried = Planner(model), candidates(model, 30)
    now, goal = planner.encode(frames)
    info = {"pixels": frames[:1].expand(30, 1, -1, -1, -1)[None], "goal": frames[1:].expand(30, 1, -1, -1, -1)[None]}
    theirs = CostModel(model).get_cost(info, tried)
    ends = planner.imagine(now.expand(30, -1), planner.actions.raw(tried[0]))[:, -1]
    assert torch.allclose(theirs[0], (ends - goal).square().sum(-1), rtol=1e-4)
    assert theirs.std() > 0


def test_the_adapter_s_costs_are_the_reference_s(reference, ours):
    """With the reference's own `get_cost` on the reference's own weights, for the same candidates."""
    from dataclasses import replace

    from phylatent.schema import Normaliser

    generator = torch.Generator().manual_seed(2)
    frames = torch.randint(0, 256, (2, 224, 224, 3), generator=generator, dtype=torch.uint8)
    actions = 0.5 * torch.randn(1, 6, 5, 10, generator=generator)
    config = replace(ours.config, action=Normaliser((0.0, 0.0), (1.0, 1.0)), action_low=(-9.0, -9.0), action_high=(9.0, 9.0))
    planned = WorldModel(config)
    planned.load_state_dict(ours.state_dict())
    adapter = CostModel(planned)
    shown = frames[:, None, None, None].expand(2, 1, 6, 1, -1, -1, -1)
    mine = adapter.get_cost({"pixels": shown[0], "goal": shown[1]}, actions)
    pixels = planned.normalise_frames(frames)[:, None, None, None].expand(2, 1, 6, 1, -1, -1, -1)
    info = {"pixels": pixels[0], "goal": pixels[1], "action": torch.zeros(1, 6, 1, 10)}
    with torch.no_grad():
        theirs = reference.get_cost(info, actions)
    assert torch.allclose(mine, theirs, rtol=1e-4)


def test_its_solver_policy_and_world_run_on_our_model_over_twenty_pairs(model, tworooms_data):
    import stable_worldmodel as swm
    from stable_worldmodel.data.formats.hdf5 import HDF5Dataset
    from stable_worldmodel.policy import PlanConfig as PeerConfig
    from stable_worldmodel.policy import WorldModelPolicy
    from stable_worldmodel.solver import CEMSolver

    episodes, split = open_episodes(tworooms_data, TASK), Split.from_dict(model.config.split)
    pairs = draw_pairs(TASK, episodes, split, "paper", PlanConfig(pairs=10, seeds=(0, 1))).pairs
    assert len(pairs) == 20
    world = swm.World("swm/TwoRoom-v1", num_envs=len(pairs), image_shape=episodes.frame_shape[:2], max_episode_steps=60)
    solver = CEMSolver(model=CostModel(model), batch_size=20, num_samples=20, topk=4, n_steps=2)
    settings = PeerConfig(horizon=5, receding_horizon=5, action_block=5, warm_start=False)
    world.set_policy(WorldModelPolicy(solver=solver, config=settings, process={"action": ActionScaler(model)}))
    keys = ["pixels", "state", "proprio", "action"]
    found = world.evaluate(
        dataset=HDF5Dataset(path=tworooms_data, keys_to_load=keys),
        episodes_idx=[pair.episode for pair in pairs],
        start_steps=[pair.start for pair in pairs],
        goal_offset=25,
        eval_budget=50,
        callables=[
            {"method": "_set_state", "args": {"state": {"value": "state"}}},
            {"method": "_set_goal_state", "args": {"goal_state": {"value": "goal_state"}}},
        ],
    )
    assert len(found["episode_successes"]) == 20
    assert 0 < found["episode_successes"].sum() <= 20, "pairs that are all but solved are among them"
