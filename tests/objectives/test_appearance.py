"""SVIC's broad family of appearances: each change by hand, what is drawn for whom, and what of it the diagnosis asks."""

from __future__ import annotations

import pytest
import torch

from phylatent import build, compose
from phylatent.errors import UserError
from phylatent.objectives.appearance import FAMILY, blur, brighten, mix_channels, shade, stretch, stripe, vary
from phylatent.objectives.svic import seen_in_training, shift_appearance, svic
from phylatent.randomness import Draws
from phylatent.schema import PERTURBATIONS

DRAWS = Draws(0, 1, torch.device("cpu"))
ONE = torch.ones(1, 1)


def frame(*values: float) -> torch.Tensor:
    """A frame of 2 × 2 pixels, each channel with a value of its own."""
    return torch.tensor(values).reshape(1, 1, 3, 1, 1).expand(1, 1, 3, 2, 2)


def test_brightness_contrast_and_hue_by_hand() -> None:
    assert brighten(frame(0.0, 1.0, 2.0), 0.5 * ONE)[0, 0, :, 0, 0].tolist() == [0.5, 1.5, 2.5]
    assert stretch(frame(0.0, 1.0, 2.0), 0.5 * ONE)[0, 0, :, 0, 0].tolist() == [-0.5, 1.0, 2.5]  # about the mean, 1
    matrix = torch.zeros(1, 1, 3, 3)
    matrix[0, 0, 0, 2], matrix[0, 0, 1, 1] = 0.5, -0.25
    assert mix_channels(frame(0.0, 1.0, 2.0), matrix)[0, 0, :, 0, 0].tolist() == [1.0, 0.75, 2.0]


def test_a_blurred_point_is_a_binomial_and_an_even_frame_stays() -> None:
    point = torch.zeros(1, 1, 3, 9, 9)
    point[..., 4, 4] = 1
    taps = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    assert torch.allclose(blur(point, ONE)[0, 0, 0, 2:7, 2:7], torch.outer(taps, taps))
    assert torch.allclose(blur(point, 0.5 * ONE)[0, 0, 0, 4, 4], (1 + taps[2] ** 2) / 2)
    assert torch.allclose(blur(torch.ones(1, 1, 3, 5, 7), ONE), torch.ones(1, 1, 3, 5, 7)), "to the edge"


def test_shading_is_smooth_and_meets_its_corners() -> None:
    grid = torch.tensor([[0.0, 1.0], [0.0, 1.0]]).expand(1, 1, 3, 2, 2)
    assert shade(torch.zeros(1, 1, 3, 5, 5), grid)[0, 0, 0, 0].tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_stripes_by_hand() -> None:
    """One period across four pixels, in the first channel only: 0, 1, 0, −1 in a row; a quarter turn further 1, 0, −1, 0."""
    pixels, across = torch.zeros(1, 2, 3, 4, 4), torch.tensor([0.0, 1.0]).expand(1, 2, 2)
    height = torch.tensor([2.0, 0.0, 0.0]).expand(1, 2, 3)
    striped = stripe(pixels, across, torch.tensor([[0.0, 0.25]]), height)
    assert torch.allclose(striped[0, 0, 0], torch.tensor([0.0, 2.0, 0.0, -2.0]).expand(4, 4), atol=1e-6)
    assert torch.allclose(striped[0, 1, 0], torch.tensor([2.0, 0.0, -2.0, 0.0]).expand(4, 4), atol=1e-6)
    assert not striped[:, :, 1:].any()


@pytest.mark.parametrize("kind", FAMILY)
def test_a_kind_changes_about_half_of_the_frames_each_in_its_own_way(kind: str) -> None:
    one = torch.randn(1, 1, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    pixels = one.expand(64, 4, 3, 16, 16)
    changed = vary(pixels, DRAWS, kinds=[kind], strength=1.0)
    touched = (changed != pixels).flatten(2).any(dim=2)
    assert 0.35 < touched.float().mean() < 0.65
    assert len(changed[touched].flatten(1).unique(dim=0)) == touched.sum()
    assert torch.equal(vary(pixels, DRAWS, kinds=[kind], strength=0.0), pixels)
    little, much = ((vary(pixels, DRAWS, kinds=[kind], strength=s) - pixels).abs().mean() for s in (0.25, 1.0))
    assert little.item() == pytest.approx(much.item() / 4, rel=1e-3)


@pytest.mark.parametrize("kind", sorted(FAMILY))
def test_light_makes_brightness_and_contrast_stronger_and_nothing_else(kind: str) -> None:
    pixels = torch.randn(2, 3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    plain, lit = (vary(pixels, DRAWS, kinds=[kind], strength=1.0, light=light) - pixels for light in (1.0, 3.0))
    assert torch.allclose(lit, 3 * plain if kind in ("brightness", "contrast") else plain, atol=1e-5)


def test_a_kind_that_is_left_out_changes_no_draw_of_the_others() -> None:
    grey = torch.zeros(8, 4, 3, 16, 16)
    bright, shaded, both = (
        vary(grey, DRAWS, kinds=kinds, strength=1.0) for kinds in (["brightness"], ["shading"], ["shading", "brightness"])
    )
    assert torch.equal(bright + shaded, both), "in any order"
    assert not torch.equal(vary(grey, Draws(0, 2, DRAWS.device), kinds=["brightness"], strength=1.0), bright)


def graph_of(*overrides: str, variant: str = "phylatent-robust"):
    return build(compose(preset="smoke", variant=variant, overrides=["model.dropout=0", *overrides])).train()


def data(size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    frames = torch.randint(0, 256, (size, 4, 32, 32, 3), generator=generator, dtype=torch.uint8)
    return frames, torch.randn(size, 3, 10, generator=generator), torch.randn(size, 4, 2, generator=generator)


def test_only_the_augmented_branch_moves() -> None:
    graph = graph_of()
    seq = graph.sequences(*data(6), DRAWS)
    seq.z_BTD.retain_grad()
    loss = graph.terms["svic"](seq, graph.world_model, DRAWS.named("svic"))
    assert loss > 0
    loss.backward()
    assert seq.z_BTD.grad is None
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in graph.world_model.encoder.parameters())


def test_a_drawn_share_of_the_frames() -> None:
    graph, whole = graph_of("svic.frames=2"), graph_of()
    seen: list[int] = []
    graph.world_model.encoder.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    losses = [graph(*data(6), Draws(0, step, DRAWS.device)).terms["svic"].item() for step in (1, 2)]
    assert seen == [24 + 12, 24 + 12], "one pass for the clip and for half of it"
    assert losses[0] != losses[1]
    assert losses[0] != whole(*data(6), Draws(0, 1, DRAWS.device)).terms["svic"].item()
    clip = graph_of("svic.frames=9")(*data(6), DRAWS).terms["svic"].item()
    assert clip == pytest.approx(whole(*data(6), DRAWS).terms["svic"].item(), rel=1e-6), "no more than there are"


def test_a_batch_of_one() -> None:
    graph = graph_of()
    loss = graph(*data(1), DRAWS).terms["svic"]
    assert loss.isfinite()
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in graph.parameters())


def test_the_papers_offsets_are_what_they_were() -> None:
    graph = graph_of(variant="phylatent")
    seq, draws = graph.sequences(*data(4), DRAWS), DRAWS.named("svic")
    settings = graph.terms["svic"].settings
    assert (settings.family, settings.reduction) == ("offsets", "mean")
    ranges = {"brightness": settings.brightness, "channel": settings.channel}
    shifted = shift_appearance(seq.pixels, draws.uniform_rows(4, 4, 4), **ranges)
    expected = svic(graph.world_model.embed_frames(shifted), seq.z_BTD)
    torch.testing.assert_close(graph.terms["svic"](seq, graph.world_model, draws), expected)


def test_the_sum_does_not_shrink_with_the_width() -> None:
    def losses(name: str) -> list[float]:
        return [graph_of(f"{name}.reduction={kind}")(*data(4), DRAWS).terms[name].item() for kind in ("mean", "sum")]

    mean, total = losses("svic")
    assert total == pytest.approx(48 * mean, rel=1e-4)
    mean, total = losses("fra")
    assert total > 10 * mean, "its two views have widths of their own"


@pytest.mark.parametrize(
    "override, sentence",
    [
        ("svic.family=wide", "svic.family is 'wide'; it must be one of offsets, broad"),
        ("svic.kinds=[fog]", "svic.kinds holds 'fog'; it must be among brightness, contrast"),
        ("svic.kinds=[]", "svic.kinds is empty"),
        ("svic.strength=-1", "svic.strength is -1.0; it must be at least 0"),
        ("svic.reduction=max", "svic.reduction is 'max'; it must be one of mean, sum"),
        ("fra.reduction=max", "fra.reduction is 'max'; it must be one of mean, sum"),
    ],
)
def test_settings_that_are_wrong(override: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        compose(overrides=[override])


def test_what_a_training_has_seen() -> None:
    assert seen_in_training({}) is None, "a model that does not say how it was trained"
    assert seen_in_training({"objectives": ["pred", "sigreg"]}) == ()
    offsets = {"terms": ["pred", "svic"], "svic": {"weight": 0.03, "brightness": 0.03}}
    assert seen_in_training(offsets) == ("brightness", "colour"), "also of a run from before there were families"
    kinds = compose(variant="phylatent-robust").objective_settings["svic"].kinds
    robust = {"objectives": ["svic"], "svic": {"family": "broad", "kinds": list(kinds)}}
    assert seen_in_training(robust) == ("brightness", "colour")
    assert seen_in_training({"svic": {"family": "broad", "kinds": ["noise", "blur", "shading"]}}) == ("noise",)
    everything = seen_in_training({"svic": {"family": "broad", "kinds": list(FAMILY)}})
    assert everything is not None
    assert set(PERTURBATIONS) - set(everything) == {"texture"}
