"""The decoder learns what is in a latent, and nothing else changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from phylatent.models.decoder import Decoder, picture_side, psnr, shrink, train_decoder


def squares(count: int, side: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """A white square on black, somewhere; its place is the latent."""
    places = np.random.default_rng(0).uniform(2, side - 4, size=(count, 2)).round()
    pictures = torch.zeros(count, 3, side, side, dtype=torch.uint8)
    for picture, (x, y) in zip(pictures, places.astype(int), strict=True):
        picture[:, y : y + 3, x : x + 3] = 255
    return torch.from_numpy(places).float(), pictures


def test_it_shows_what_the_latent_holds_and_not_more() -> None:
    latents, pictures = squares(300)
    decoder = train_decoder(latents, pictures, steps=60)
    pixels = pictures.float() / 255
    error = float((decoder.pictures(latents) - pixels).square().mean())
    constant = float((decoder.mean_picture - pixels).square().mean())
    assert error < 0.5 * constant
    blind = train_decoder(torch.randn(300, 2, generator=torch.Generator().manual_seed(0)), pictures, steps=20)
    seen = blind.pictures(torch.zeros(1, 2))
    assert float((seen - decoder.mean_picture).abs().max()) < 0.3, "noise holds nothing: the mean picture is the best answer"


def test_it_begins_as_the_mean_picture_and_is_a_function_of_its_arguments() -> None:
    latents, pictures = squares(40)
    begun = Decoder(latents.mean(0), torch.ones(2), torch.full((3, 16, 16), 0.25))
    assert torch.equal(begun(latents), torch.full((40, 3, 16, 16), 0.25))
    torch.manual_seed(1)
    first = train_decoder(latents, pictures, steps=3)
    torch.manual_seed(2)
    second = train_decoder(latents, pictures, steps=3)
    assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in first.state_dict().items())
    other = train_decoder(latents, pictures, steps=3, seed=1)
    assert not torch.equal(first.pictures(latents), other.pictures(latents))


def test_a_latent_that_is_constant_is_no_division_by_zero() -> None:
    _, pictures = squares(20)
    decoder = train_decoder(torch.ones(20, 4), pictures, steps=2)
    assert decoder.pictures(torch.ones(1, 4)).isfinite().all()


def test_pictures() -> None:
    assert [picture_side(*size) for size in ((224, 224), (64, 64), (48, 64), (32, 32), (8, 8))] == [64, 64, 32, 32, 16]
    frames = np.full((2, 32, 32, 3), 255, np.uint8)
    assert torch.equal(shrink(frames, 32), torch.ones(2, 3, 32, 32))
    assert shrink(frames, 16).shape == (2, 3, 16, 16)
    assert psnr(0.01) == pytest.approx(20)
    assert math.isnan(psnr(0.0))
