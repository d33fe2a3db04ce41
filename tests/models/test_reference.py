"""Our world model is the reference LeWM: same tensors in, same latents, predictions and plan costs out."""

from __future__ import annotations

import pytest
import torch
from lewm_checkpoints import as_transformers_4

from phylatent.errors import UserError
from phylatent.models.lewm.weights import from_lewm
from phylatent.objectives.sigreg import sigreg, unit_directions


@pytest.fixture(scope="module")
def scene() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)

    def frames(count: int) -> torch.Tensor:
        """Coarse patches of colour: frames of pixel noise all look the same to an encoder."""
        coarse = torch.randint(0, 256, (1, count, 4, 4, 3), generator=generator, dtype=torch.uint8)
        return coarse.repeat_interleave(56, dim=2).repeat_interleave(56, dim=3)

    return {
        "frames": frames(3),
        "others": frames(3),
        "goal": frames(1),
        "blocks": torch.randn(1, 4, 7, 10, generator=generator),
    }


def reference_cost(reference, ours, scene, history: int) -> torch.Tensor:
    """The cost of four candidates: `history` frames and the blocks taken at them, then the planned blocks."""
    blocks = scene["blocks"][:, :, : history - 1 + 5]
    pixels = ours.normalise_frames(scene["frames"][:, :history])
    info = {
        "pixels": pixels[:, None].expand(1, 4, *pixels.shape[1:]),
        "goal": ours.normalise_frames(scene["goal"])[:, None].expand(1, 4, 1, 3, 224, 224),
        "action": blocks,
    }
    return reference.get_cost(info, blocks)[0]


def our_cost(ours, scene, history: int) -> torch.Tensor:
    blocks = scene["blocks"][0, :, : history - 1 + 5]
    z = ours.encode(scene["frames"][0, :history])
    past = None if history == 1 else z[:-1].expand(4, -1, -1)
    past_blocks = None if history == 1 else blocks[:, : history - 1]
    future = ours.rollout(z[-1:].expand(4, -1), blocks[:, history - 1 :], past_NhD=past, past_blocks_NhA=past_blocks)
    return (future[:, -1] - ours.encode(scene["goal"][0, 0])).square().sum(-1)


def test_reference_has_the_published_size(reference) -> None:
    assert len(reference.state_dict()) == 303
    assert sum(p.numel() for p in reference.parameters()) == 18_034_478


@torch.no_grad()
def test_encode_and_predict_agree(reference, ours, scene) -> None:
    pixels = ours.normalise_frames(scene["frames"])
    info = reference.encode({"pixels": pixels, "action": scene["blocks"][0, :1, :3]})
    z = ours.encode(scene["frames"])
    torch.testing.assert_close(z, info["emb"], rtol=1e-4, atol=1e-4)
    c = ours.embed_actions(scene["blocks"][0, :1, :3])
    torch.testing.assert_close(c, info["act_emb"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.predict(z, c), reference.predict(info["emb"], info["act_emb"]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("history", [1, 2, 3])
@torch.no_grad()
def test_plan_cost_agrees_and_moves(reference, ours, scene, history: int) -> None:
    cost = our_cost(ours, scene, history)
    torch.testing.assert_close(cost, reference_cost(reference, ours, scene, history), rtol=1e-4, atol=1e-4)
    assert (cost[1:] - cost[0]).abs().max() > 1e-2 * cost[0], "other actions must cost something else"
    moved = scene | {"frames": scene["others"]}
    # Five blocks ahead a random predictor has all but forgotten its context: this is still 20 times the tolerance.
    assert (our_cost(ours, moved, history) - cost).abs().max() > 2e-3 * cost[0], "other frames must cost something else"


@pytest.mark.parametrize("prefix", ["", "model.", "_orig_mod.", "model._orig_mod."])
def test_both_namings_of_the_encoder_import(reference, ours, prefix: str) -> None:
    state = {prefix + as_transformers_4(name): tensor for name, tensor in reference.state_dict().items()}
    assert any("attention.attention.query" in name for name in state)
    for name, tensor in from_lewm(state).state_dict().items():
        assert torch.equal(tensor, ours.state_dict()[name]), name


def test_import_is_strict(reference) -> None:
    state = dict(reference.state_dict())
    with pytest.raises(UserError, match="not a LeWM checkpoint"):
        from_lewm(state | {"surplus.weight": torch.zeros(1)})
    del state["pred_proj.net.1.running_var"]
    with pytest.raises(UserError, match="running_var"):
        from_lewm(state)


def test_sigreg_equals_the_reference() -> None:
    from stable_worldmodel.wm.loss import SIGReg

    z_TBD = torch.randn(4, 16, 192, generator=torch.Generator().manual_seed(3))
    with torch.random.fork_rng():
        torch.manual_seed(4)
        expected = SIGReg(knots=17, num_proj=1024)(z_TBD)
        torch.manual_seed(4)
        directions = unit_directions(torch.randn(192, 1024))
    torch.testing.assert_close(sigreg(z_TBD.transpose(0, 1), directions), expected, rtol=1e-5, atol=0)
