"""Models out, as LeWM's files that stable-worldmodel loads and plans with, and back again bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from lewm_checkpoints import CONFIG, as_transformers_4, assert_same_tensors, randomise

from phylatent import WorldModel, export_model, import_model
from phylatent.composition import compose
from phylatent.data.readers import open_episodes
from phylatent.data.stats import Split
from phylatent.errors import UserError
from phylatent.models.lewm.config import describe
from phylatent.models.world_model import WorldModelConfig
from phylatent.planning.pairs import draw_pairs
from phylatent.planning.stable_worldmodel import ActionScaler
from phylatent.schema import PlanConfig
from phylatent.tasks.tworooms import TASK


@pytest.mark.parametrize("keys", [4, 5])
def test_lewm_to_ours_and_back(lewm, imported: Path, keys: int, tmp_path: Path) -> None:
    back = export_model(imported, keys=keys, out=tmp_path / "back")
    state = lewm.state_dict()
    expected = {as_transformers_4(name): tensor for name, tensor in state.items()} if keys == 4 else dict(state)
    assert_same_tensors(torch.load(back / "weights.pt"), expected)
    assert json.loads((back / "config.json").read_text()) == CONFIG


@pytest.mark.parametrize("keys", [4, 5])
def test_ours_to_lewm_and_back(untrained: Path, keys: int, tmp_path: Path) -> None:
    """Action statistics, split and provenance come along: no task= and no data= is needed."""
    out = export_model(untrained, keys=keys, out=tmp_path / "out")
    back = import_model(out, out=tmp_path / "back")
    for name in ("model.safetensors", "config.json"):
        assert (back / name).read_bytes() == (untrained / "model" / name).read_bytes()
    assert {path.name for path in out.iterdir()} == {"config.json", "weights.pt", "phylatent.json"}


def test_a_run_s_model_alone(untrained: Path, tmp_path: Path, here) -> None:
    done = here("export", str(untrained), "format=phylatent", f"out={tmp_path / 'model'}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "model" / name).read_bytes() == (untrained / "model" / name).read_bytes()


def test_what_lewm_cannot_be() -> None:
    smoke = compose(preset="smoke")
    config = WorldModelConfig(action_dim=2, model=smoke.model, clip=compose(overrides=["clip.context=2", "clip.offset=2"]).clip)
    with pytest.raises(UserError, match="predicts one block ahead, this model 2"):
        describe(config)
    one_head = compose(preset="smoke", overrides=["model.predictor_heads=1", "model.predictor_head_dim=48"]).model
    with pytest.raises(UserError, match="export needs more heads"):
        describe(WorldModelConfig(action_dim=2, model=one_head))


def test_the_paper_s_size_is_described_as_released_checkpoints_are() -> None:
    described = describe(WorldModelConfig(action_dim=2, model=compose(preset="paper").model))
    assert described["encoder"] == {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "size": "tiny",
        "patch_size": 14,
        "image_size": 224,
        "pretrained": False,
        "use_mask_token": False,
    }
    released = {"num_frames": 3, "depth": 6, "heads": 16, "mlp_dim": 2048, "dim_head": 64, "dropout": 0.1, "emb_dropout": 0.0}
    assert described["predictor"].items() >= released.items()


@pytest.mark.parametrize("size", ["smoke", "laptop", "paper"])
def test_stable_worldmodel_loads_our_export(size: str, tmp_path: Path) -> None:
    """Its own `load_pretrained`: same graph, same tensors, same latents."""
    pytest.importorskip("hydra", reason="stable-worldmodel's load_pretrained needs hydra-core")
    if size == "paper":
        pytest.importorskip("stable_pretraining", reason="released configurations name an encoder of stable-pretraining's")
    from stable_worldmodel.wm.utils import load_pretrained

    ours = WorldModel(WorldModelConfig(action_dim=2, model=compose(preset=size, overrides=["model.encoder=vit"]).model))
    randomise(ours)
    ours.eval().save_pretrained(tmp_path / "ours")
    export_model(tmp_path / "ours", out=tmp_path / "checkpoints" / "mine")
    theirs = load_pretrained("mine", cache_dir=str(tmp_path)).eval()
    assert_same_tensors(theirs.state_dict(), torch.load(tmp_path / "checkpoints" / "mine" / "weights.pt"))
    frames = torch.randint(0, 256, (1, 3, 32, 32, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    blocks = torch.randn(1, 3, 10, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        info = theirs.encode({"pixels": ours.normalise_frames(frames), "action": blocks})
        z, c = ours.encode(frames), ours.embed_actions(blocks)
        torch.testing.assert_close(z, info["emb"], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours.predict(z, c), theirs.predict(info["emb"], info["act_emb"]), rtol=1e-4, atol=1e-4)


def test_our_export_plans_in_stable_worldmodel_s_world(untrained: Path, tworooms_data: Path, tmp_path: Path) -> None:
    """Its loader, solver, policy and evaluation; ours are the pairs and the action scaler."""
    pytest.importorskip("hydra", reason="stable-worldmodel's load_pretrained needs hydra-core")
    import stable_worldmodel as swm
    from stable_worldmodel.data.formats.hdf5 import HDF5Dataset
    from stable_worldmodel.policy import PlanConfig as PeerConfig
    from stable_worldmodel.policy import WorldModelPolicy
    from stable_worldmodel.solver import CEMSolver
    from stable_worldmodel.wm.utils import load_pretrained

    theirs = load_pretrained(str(export_model(untrained, out=tmp_path / "mine"))).eval()
    ours = WorldModel.from_pretrained(untrained / "model")
    episodes = open_episodes(tworooms_data, TASK)
    split = Split.from_dict(ours.config.split)
    pairs = draw_pairs(TASK, episodes, split, "paper", PlanConfig(pairs=2, seeds=(0,))).pairs
    world = swm.World("swm/TwoRoom-v1", num_envs=len(pairs), image_shape=episodes.frame_shape[:2], max_episode_steps=60)
    solver = CEMSolver(model=theirs, batch_size=1, num_samples=16, topk=4, n_steps=2)
    settings = PeerConfig(horizon=5, receding_horizon=5, action_block=5, warm_start=False)
    normalise = {key: lambda image: ours.normalise_frames(image.permute(1, 2, 0)) for key in ("pixels", "goal")}
    world.set_policy(
        WorldModelPolicy(solver=solver, config=settings, process={"action": ActionScaler(ours)}, transform=normalise)
    )
    found = world.evaluate(
        dataset=HDF5Dataset(path=tworooms_data, keys_to_load=["pixels", "state", "proprio", "action"]),
        episodes_idx=[pair.episode for pair in pairs],
        start_steps=[pair.start for pair in pairs],
        goal_offset=25,
        eval_budget=25,
        callables=[
            {"method": "_set_state", "args": {"state": {"value": "state"}}},
            {"method": "_set_goal_state", "args": {"goal_state": {"value": "goal_state"}}},
        ],
    )
    assert len(found["episode_successes"]) == len(pairs) == 2
