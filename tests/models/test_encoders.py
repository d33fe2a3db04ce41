"""Image encoders: what is asked of each, one of the user's own, and every guarantee of training whichever it is."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
from pathlib import Path

import pytest
import torch
import yaml
from timm.models.vision_transformer import VisionTransformer
from training_runs import assert_same_run, finish, start, wait_for_checkpoint

from phylatent import WorldModel, build, compose, export_model
from phylatent.composition import load_config, save_config, without_paths
from phylatent.errors import UserError
from phylatent.models.encoders import ENCODERS, Conv, ConvSettings, find_encoder
from phylatent.models.load import load_model
from phylatent.schema import ModelConfig
from phylatent.trust import allow

NAMES = ("vit", "conv", "hybrid")
OWN = Path(__file__).parents[2] / "docs" / "examples" / "pooled.py"


@pytest.fixture
def own():
    yield OWN
    ENCODERS.pop("pooled", None)


@pytest.mark.parametrize("size", [64, 96, 128, 224])
def test_convolutions_reach_a_small_map_from_every_frame_size(size: int) -> None:
    encoder = Conv(ConvSettings(channels=8), ModelConfig(encoder="conv", image_size=size, width=24, heads=3))
    side = {64: 4, 96: 6, 128: 4, 224: 7}[size]
    assert encoder.out.in_features == 64 * side**2
    assert encoder(torch.zeros(2, 3, size, size)).shape == (2, 24)


def test_the_issues_convolutions_have_the_parameters_counted_by_hand() -> None:
    encoder = Conv(ConvSettings(channels=32), ModelConfig(encoder="conv", image_size=64, width=192))
    widths = [3, 32, 64, 128, 256]
    layers = sum(16 * a * b + b + 2 * b for a, b in itertools.pairwise(widths))
    assert sum(p.numel() for p in encoder.parameters()) == layers + 192 * 256 * 16 + 192 + 2 * 192


@pytest.mark.parametrize("name", NAMES)
def test_a_frame_is_encoded_by_itself_and_its_pixels_matter(name: str) -> None:
    model = build(compose(preset="smoke", overrides=[f"model.encoder={name}"])).world_model.eval()
    frames = torch.randint(0, 256, (3, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        together = model.encode(frames)
        assert torch.allclose(together[1], model.encode(frames[1]), atol=1e-5)
    assert (together[0] - together[1]).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["vit", "hybrid"])
def test_only_what_the_class_token_needs_is_computed_and_nothing_else_comes_out(name: str) -> None:
    config = compose(preset="smoke", overrides=[f"model.encoder={name}", "model.depth=3"])
    encoder = build(config).world_model.encoder.double()
    pixels = torch.randn(5, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows: list[int] = []
    encoder.blocks[-1].mlp.register_forward_hook(lambda _, given, __: rows.append(given[0].shape[1]))
    results = []
    for encode in (encoder.__call__, lambda x: VisionTransformer.forward(encoder, x)):
        encoder.zero_grad()
        features = encode(pixels)
        features.square().sum().backward()
        results.append({"features": features.detach(), **{n: p.grad.clone() for n, p in encoder.named_parameters()}})
    assert rows[0] == 1
    assert rows[1] > 1
    for key, value in results[1].items():
        torch.testing.assert_close(results[0][key], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_knows_its_encoder(name: str, tmp_path: Path) -> None:
    settings = [f"{name}.channels=12"] if name != "vit" else []
    model = build(compose(preset="smoke", overrides=[f"model.encoder={name}", *settings])).world_model.eval()
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model"]["encoder"] == name
    again = WorldModel.from_pretrained(tmp_path).eval()
    frames = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8)
    with torch.no_grad():
        assert torch.equal(model.encode(frames), again.encode(frames))


def test_only_a_vit_is_exported_as_lewm(tmp_path: Path) -> None:
    build(compose(preset="smoke", overrides=["model.encoder=conv"])).world_model.save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match=r"only model\.encoder=vit can be exported"):
        export_model(tmp_path / "model", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("overrides, sentence", [
    (["model.encoder=conf"], "unknown encoder 'conf'; did you mean 'conv'?"),
    (["model.encoder=resnet"], "known: conv, hybrid, vit; one of your own is named by its file: model.encoder=path/to/file.py"),
    (["model.encoder=nowhere.py"], "there is no encoder file nowhere.py"),
    (["model.encoder=conv", "hybrid.channels=4"], "settings of 'hybrid' would do nothing"),
    (["model.encoder=conv", "conv.channels=0"], "conv.channels is 0; it must be at least 1"),
])  # fmt: skip
def test_mistakes_get_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(preset="smoke", overrides=overrides)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_encoder_of_ones_own(own: Path, tmp_path: Path) -> None:
    config = compose(preset="smoke", overrides=[f"model.encoder={own}", "pooled.hidden=6"])
    model = build(config).world_model
    assert model.encoder.net[0].out_features == 6
    assert model.config.model.encoder == "pooled", "a published model does not carry a path"
    model.save_pretrained(tmp_path / "model")
    assert WorldModel.from_pretrained(tmp_path / "model").encoder.net[0].out_features == 6
    save_config(config, tmp_path / "config.yaml")
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["pooled"] == {"hidden": 6}
    ENCODERS.pop("pooled")
    assert load_config(tmp_path / "config.yaml").encoder.hidden == 6
    ENCODERS.pop("pooled")
    with pytest.raises(UserError, match="unknown encoder 'pooled'"):
        WorldModel.from_pretrained(tmp_path / "model")


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("        self.net(self.pool(pixels).flatten(1))", "makes a NoneType of two frames; expected features [2, "),
        ("        return self.pool(pixels).flatten(1)", "makes [2, 192] of two frames; expected features [2, "),
    ],
)
def test_an_encoder_that_makes_no_features(own: Path, tmp_path: Path, line: str, sentence: str) -> None:
    whole = own.read_text()
    (tmp_path / "pooled.py").write_text(whole.replace("        return self.net(self.pool(pixels).flatten(1))", line))
    with pytest.raises(UserError, match=re.escape(sentence)):
        build(compose(preset="smoke", overrides=[f"model.encoder={tmp_path / 'pooled.py'}"]))


def test_a_run_says_where_its_encoder_is_declared(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    config = compose(preset="smoke", overrides=["model.encoder=pooled.py"])
    save_config(config, tmp_path / "config.yaml")
    build(config).world_model.save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    ENCODERS.pop("pooled")
    assert load_model(str(tmp_path)).config.model.encoder == "pooled"
    assert str(own.parent) not in str(without_paths(config))


@pytest.mark.parametrize("text, sentence", [
    ("x = 1", "declares no ENCODER"),
    ("ENCODER = 3", "must be a torch.nn.Module class"),
    ("from torch import nn\nclass A(nn.Module):\n    name = 'a'\nENCODER = A", "must have `Settings`"),
    ("from phylatent.models.encoders import NoSettings\nfrom torch import nn\nclass A(nn.Module):\n"
     "    name, Settings = 'conv', NoSettings\nENCODER = A", "is called 'conv', and so is another one"),
])  # fmt: skip
def test_a_file_that_declares_none(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    allow(path)
    with pytest.raises(UserError, match=sentence):
        find_encoder(str(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conv", "hybrid"])
def test_killed_and_resumed_is_bit_identical(name: str, arguments: list[str], tmp_path: Path) -> None:
    arguments = [*arguments, f"model.encoder={name}"]
    assert finish(*arguments, f"out={tmp_path / 'whole'}").returncode == 0
    process = start(*arguments, f"out={tmp_path / 'killed'}")
    wait_for_checkpoint(tmp_path / "killed", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    resumed = finish(f"out={tmp_path / 'killed'}", "resume=true")
    assert resumed.returncode == 0, resumed.stderr
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
