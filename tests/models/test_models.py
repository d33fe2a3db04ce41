"""Sizes to the digit, the model's shapes, and what saving keeps."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from phylatent import WorldModel, build, compose
from phylatent.errors import UserError
from phylatent.models.blocks import GlobalBatchNorm1d, batch_statistics_only
from phylatent.schema import Normaliser


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


STATE_HEAD = {"cube": 113_564, "reacher": 102_278, "pusht": 102_791, "tworooms": 100_226}
ACTION_ENCODER = {"cube": 156_356, "reacher": 156_206, "pusht": 156_206, "tworooms": 156_206}


@pytest.mark.parametrize("task", STATE_HEAD)
def test_parameter_counts_are_the_papers(task: str) -> None:
    graph = build(compose(task=task, preset="paper", variant="phylatent"))
    model = graph.world_model
    assert count(model.encoder) == 5_501_376
    assert count(model.projector) == count(model.pred_proj) == 792_768
    assert count(model.action_encoder) == ACTION_ENCODER[task]
    assert 10.75e6 < count(model.predictor) < 10.85e6
    assert count(graph.terms["psg"]) == STATE_HEAD[task]
    assert count(graph.terms["fra"].projection) == 41_600
    assert count(graph.terms["fra"].action_query) == 259_776
    assert count(graph.terms["ld"]) == 1_183_298
    assert count(model) == pytest.approx(18.03e6, abs=0.01e6)


def test_whole_cube_graph() -> None:
    assert count(build(compose(task="cube", preset="paper"))) == pytest.approx(19.63e6, abs=0.01e6)


@pytest.fixture(scope="module")
def small() -> WorldModel:
    config = compose(preset="smoke")
    action = Normaliser(mean=(0.1, -0.2), std=(0.5, 2.0))
    return build(config, action=action).world_model.eval()


@torch.no_grad()
def test_shapes_and_sizes_of_frames(small: WorldModel) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    z = small.encode(frames)
    assert z.shape == (5, 48)
    assert torch.allclose(small.encode(frames[0]), z[0], atol=1e-5)
    assert small.encode(frames.reshape(5, 1, 32, 32, 3)).shape == (5, 1, 48)
    assert small.encode(np.zeros((2, 224, 224, 3), np.uint8)).shape == (2, 48)
    assert small.rollout(z, torch.zeros(5, 4, 10)).shape == (5, 4, 48)


@torch.no_grad()
def test_rollout_z_scores_raw_actions(small: WorldModel) -> None:
    raw = torch.randn(3, 2, 10)
    expected = (raw.unflatten(-1, (5, 2)) - torch.tensor([0.1, -0.2])) / torch.tensor([0.5, 2.0])
    assert torch.allclose(small.normalise_actions(raw), expected.flatten(-2), atol=1e-6)


@pytest.fixture
def random_model() -> WorldModel:
    model = build(compose(preset="smoke")).world_model.eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.copy_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(parameter))))
    return model


@pytest.mark.parametrize("before", [0, 1, 2, 4])
@pytest.mark.parametrize("shared", [False, True])
@torch.no_grad()
def test_rollout_is_prediction_of_one_window_after_the_other(random_model: WorldModel, before: int, shared: bool) -> None:
    """Whatever it keeps from step to step, three frames are all that a prediction sees; rows may share their past."""
    z, blocks = torch.randn(4, before + 1, 48), torch.randn(4, before + 5, 10)
    if shared:  # rows 0 and 1 have one past, rows 2 and 3 another
        z[1::2, :before], blocks[1::2, :before] = z[::2, :before], blocks[::2, :before]
    past = {"past_NhD": z[:, :before], "past_blocks_NhA": blocks[:, :before]} if before else {}
    found = random_model.rollout(z[:, -1], blocks[:, before:], **past)
    c = random_model.embed_actions(random_model.normalise_actions(blocks))
    for end in range(before + 1, before + 6):
        seen = slice(max(0, end - 3), end)
        z = torch.cat([z, random_model.predict(z[:, seen], c[:, seen])[:, -1:]], dim=1)
    torch.testing.assert_close(found, z[:, before + 1 :], rtol=1e-4, atol=1e-5)
    assert (found.diff(dim=1).abs().amax((0, 2)) > 1e-2).all(), "every step must move"


@torch.no_grad()
def test_rollout_is_causal(random_model: WorldModel) -> None:
    model, z, blocks = random_model, torch.randn(2, 48), torch.randn(2, 3, 10)
    whole = model.rollout(z, blocks)
    assert torch.allclose(model.rollout(z, blocks[:, :2]), whole[:, :2], atol=1e-5)
    changed = blocks.clone()
    changed[:, 2] += 1
    other = model.rollout(z, changed)
    assert torch.allclose(other[:, :2], whole[:, :2], atol=1e-5)
    assert (other[:, 2] - whole[:, 2]).abs().max() > 1e-3


@pytest.mark.parametrize(
    "frames", [np.zeros((2, 32, 32, 3), np.float32), np.full((2, 32, 32, 3), np.nan), np.zeros((2, 3, 32, 32), np.uint8)]
)
def test_frames_must_be_bytes(small: WorldModel, frames: np.ndarray) -> None:
    with pytest.raises(UserError, match="expected uint8"):
        small.encode(frames)


def test_blocks_must_fit(small: WorldModel) -> None:
    with pytest.raises(UserError, match="takes 10"):
        small.rollout(torch.zeros(1, 48), torch.zeros(1, 2, 2))


def test_save_and_load(tmp_path) -> None:
    graph = build(compose(preset="smoke"), action=Normaliser((0.5, 0.25), (1.5, 0.0)))
    model = graph.world_model.eval()
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert saved.keys() == model.state_dict().keys()
    assert {name.split(".")[0] for name in saved} == {"encoder", "projector", "action_encoder", "predictor", "pred_proj"}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["action"] == {"mean": [0.5, 0.25], "std": [1.5, 0.0]}
    card = (tmp_path / "README.md").read_text()
    assert "library_name: phylatent" in card
    assert "tworooms" in card

    loaded = WorldModel.from_pretrained(tmp_path)
    assert loaded.config == model.config
    assert not loaded.training
    frames = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    with torch.no_grad():
        assert torch.equal(loaded.encode(frames), model.encode(frames))
        assert torch.equal(loaded.normalise_actions(torch.ones(1, 10)), model.normalise_actions(torch.ones(1, 10)))


def test_loading_says_what_is_wrong(tmp_path) -> None:
    with pytest.raises(UserError, match=r"has no config\.json"):
        WorldModel.from_pretrained(tmp_path)
    build(compose(preset="smoke")).world_model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"]["width"] = 96
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="does not fit its config"):
        WorldModel.from_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match="does not hold a phylatent world model"):
        WorldModel.from_pretrained(tmp_path)


def test_batch_norm_is_torchs_in_value_gradient_and_running_statistics(generator) -> None:
    ours, theirs = GlobalBatchNorm1d(6), torch.nn.BatchNorm1d(6)
    x = torch.randn(8, 6, generator=generator) * 3 + 1
    mine, yours = x.clone().requires_grad_(), x.clone().requires_grad_()
    a, b = ours(mine), theirs(yours)
    a.square().sum().backward()
    b.square().sum().backward()
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(mine.grad, yours.grad, atol=1e-4, rtol=1e-4)
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor)


def test_extra_passes_leave_running_statistics_alone() -> None:
    norm = GlobalBatchNorm1d(4)
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    with batch_statistics_only(norm):
        norm(torch.randn(8, 4))
    assert all(torch.equal(before[name], tensor) for name, tensor in norm.state_dict().items())
    norm(torch.randn(8, 4))
    assert not torch.equal(before["running_mean"], norm.running_mean)
