"""Model directories and LeWM checkpoints that are cut, forged or not finite: one sentence each, and nothing is built."""

from __future__ import annotations

import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import assert_user_mistake
from lewm_checkpoints import CONFIG, edit
from safetensors.torch import load_file, save_file

from phylatent import WorldModel, export_model
from phylatent.errors import UserError

DEEP = '{"a":' * 100_000
AGAIN = "train or import it again, or fetch it from where it came"


@pytest.fixture
def model(untrained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untrained, tmp_path / "run")) / "model"


def changed(found: dict[str, Any], name: str, value: Any) -> str:
    inner = found
    *path, last = name.split(".")
    for part in path:
        inner = inner[part]
    inner[last] = value
    return json.dumps(found)


CONFIGS = [
    ("action_dim", "2", "action_dim is '2', expected a whole number above 0"),
    ("action_dim", 0, "action_dim is 0, expected a whole number above 0"),
    ("action_dim", 3, "action.mean has 2 entries, and action_dim is 3"),
    ("model", [1], "model is a list, expected an object"),
    ("model", None, "model is null, expected an object"),
    ("model.width", "48", "model.width is '48', expected a whole number above 0"),
    ("model.width", -48, "model.width is -48, expected a whole number above 0"),
    ("model.width", 48.0, "model.width is 48.0, expected a whole number above 0"),
    ("model.width", True, "model.width is true, expected a whole number above 0"),
    ("model.width", 3 * 10**9, "does not fit its config.json: projector.net.0.weight is [64, 48], not [64, 3000000000]"),
    ("model.predictor_depth", 10**9, "it has 1 of predictor.transformer.layers.*, not 1000000000"),
    ("model.depth", 10**9, "it has 1 of encoder.blocks.*, not 1000000000"),
    ("model.predictor_mlp", 10**9, "is [64, 48], not [1000000000, 48]"),
    ("model.heads", 5, "model.heads 5 does not divide model.width 48"),
    ("model.dropout", math.nan, "model.dropout is nan, expected a finite number"),
    ("model.dropout", 2, "model.dropout is 2; it must lie in [0, 1)"),
    ("model.depths", 3, "it has model.depths, which this version does not know"),
    ("model.encoder", 7, "model.encoder is 7, expected a text"),
    ("colour", 3, "it has colour, which this version does not know"),
    ("clip", [], "clip is a list, expected an object"),
    ("clip.stride", 0, "clip.stride is 0, expected a whole number above 0"),
    ("clip.stride", 10**9, "action_encoder.patch_embed.weight is"),
    ("clip.context", 7, "clip.context + clip.offset must equal clip.frames"),
    ("task", 3, "task is 3, expected a text"),
    ("variant", [], "variant is a list, expected a text"),
    ("encoder", "x", "encoder is 'x', expected an object"),
    ("action", {"mean": [0, 0]}, "action has no std"),
    ("action.mean", "ab", "action.mean is 'ab', expected a list"),
    ("action.std", [1, "x"], "action.std[1] is 'x', expected a finite number"),
    ("action.std", [1, math.nan], "action.std[1] is nan, expected a finite number"),
    ("action.std", [1, -1], "action.std holds a negative number"),
    ("action.std", [1], "action.std has 1 entries, and action_dim is 2"),
    ("action_low", 3, "action_low is 3, expected a list"),
    ("action_low", [0], "action_low has 1 entries, and action_dim is 2"),
    ("action_correlations", [1], "action_correlations[0] is 1, expected a list"),
    ("target", {"mean": [0], "std": []}, "target.mean and target.std have not the same length"),
    ("split", [1], "split is a list, expected an object"),
    ("split", {"train": [0], "seed": 0}, "split has no validation"),
    ("split.test", None, "split.test is null, expected a list"),
    ("split.test", [-1], "split.test[0] is -1, expected a whole number from 0 on"),
    ("split.test", ["1"], "split.test[0] is '1', expected a whole number from 0 on"),
    ("split.train", [0, 1, 0], "episode 0 is in split.train and in split.train"),
    ("split.seed", "x", "split.seed is 'x', expected a whole number from 0 on"),
    ("provenance", [], "provenance is a list, expected an object"),
    ("provenance.data", 3, "provenance.data is 3, expected an object"),
    ("provenance.config", [3], "provenance.config is a list, expected an object"),
    ("provenance.config", {"svic": 3}, "provenance.config.svic is 3, expected an object"),
    ("provenance.config", {"train": [1]}, "provenance.config.train is a list, expected an object"),
]


@pytest.mark.parametrize("name, value, sentence", CONFIGS, ids=[f"{name} {value!r}"[:40] for name, value, _ in CONFIGS])
def test_a_config_with_wrong_types(name: str, value: Any, sentence: str, model: Path, here) -> None:
    path = model / "config.json"
    path.write_text(changed(json.loads(path.read_text()), name, value))
    started = time.monotonic()
    done = here("export", str(model), "out=out", cwd=model.parent)
    assert_user_mistake(done, sentence)
    assert str(model) in done.stderr
    assert AGAIN in done.stderr
    assert time.monotonic() - started < 10
    assert not (model.parent / "out").exists()


def test_an_episode_on_two_sides(model: Path) -> None:
    path = model / "config.json"
    config = json.loads(path.read_text())
    config["split"]["test"][0] = config["split"]["train"][0]
    path.write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"episode \d+ is in split.train and in split.test"):
        WorldModel.from_pretrained(model)


@pytest.mark.parametrize(
    "content, sentence",
    [
        ("", "config.json is damaged: it is not JSON"),
        ("{", "config.json is damaged: it is not JSON"),
        ("null", "it holds a NoneType, not a JSON object"),
        ("[1]", "it holds a list, not a JSON object"),
        ("{}", "it has no action_dim"),
        (DEEP, "config.json is damaged: it is nested too deeply"),
    ],
)
def test_a_config_that_is_none(content: str, sentence: str, model: Path, here) -> None:
    (model / "config.json").write_text(content)
    done = here("diagnose", str(model.parent), cwd=model.parent)
    assert_user_mistake(done, sentence)


def test_weights_that_are_damaged(model: Path, here) -> None:
    path = model / "model.safetensors"
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    lies = whole[8 : 8 + header].replace(b'"shape":[64,48]', b'"shape":[48,64]', 1).replace(b'"shape":[64]', b'"shape":[65]', 1)
    assert lies != whole[8 : 8 + header]
    for content in (
        b"",
        b"x",
        whole[:4],
        whole[:100],
        whole[:-100],
        whole[: len(whole) // 2],
        (2**60).to_bytes(8, "little") + whole[8:],
        whole[:8] + lies + whole[8 + header :],
        whole[:8] + b"[" * header + whole[8 + header :],
        whole + bytes(100),
    ):
        path.write_bytes(content)
        done = here("export", str(model), "out=out", cwd=model.parent)
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1
        assert str(model) in done.stderr
    assert not (model.parent / "out").exists()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_not_judged(value: float, model: Path, tworooms_data: Path, here) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors["projector.net.0.weight"][0, 0] = value
    save_file(tensors, model / "model.safetensors")
    for command in ("diagnose", "plan", "export"):
        done = here(command, str(model.parent), *([f"data={tworooms_data}"] if command != "export" else []), cwd=model.parent)
        assert_user_mistake(done, "holds weights that are not finite ('projector.net.0.weight')")


def test_weights_with_a_tensor_too_few_or_too_many(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    for other in (tensors | {"more": torch.zeros(1)}, {name: one for name, one in tensors.items() if "norm" not in name}):
        save_file(other, model / "model.safetensors")
        with pytest.raises(UserError, match="does not hold a phylatent world model that can be loaded"):
            WorldModel.from_pretrained(model)
    save_file({"a": torch.zeros(1)}, model / "model.safetensors")
    with pytest.raises(UserError, match=r"it has no projector\.net\.0\.weight"):
        WorldModel.from_pretrained(model)


ENCODER, PREDICTOR = CONFIG["encoder"], CONFIG["predictor"]
DESCRIPTIONS = [
    ({"encoder": {"config": [1]}}, "says that the encoder's config is a list; expected an object"),
    ({"encoder": {"size": [1]}}, ""),
    ({"encoder": {"config": {"hidden_size": "48"}}}, "config.json says width '48'; expected whole numbers above 0"),
    ({"encoder": {"config": {"hidden_size": -48}}}, "config.json says width -48; expected whole numbers above 0"),
    ({"encoder": {"config": {"image_size": {"a": 1}}}}, "says image_size an object; expected whole numbers above 0"),
    ({"encoder": {"config": {"num_attention_heads": 5}}}, "model.heads 5 does not divide model.width 48"),
    ({"predictor": PREDICTOR | {"dropout": math.nan}}, "says dropout nan; expected a number in [0, 1)"),
    ({"predictor": PREDICTOR | {"dropout": [1]}}, "says dropout a list; expected a number in [0, 1)"),
    ({"predictor": PREDICTOR | {"dim_head": 10**30}}, "says predictor_head_dim a huge number"),
    ({"predictor": {"dim_head": 10**9}}, "says predictor head dim 1000000000, which does not divide the 32 that the weights"),
    ({"predictor": None}, "needs the parts encoder, predictor and action_encoder"),
    ({"action_encoder": [1]}, "needs the parts encoder, predictor and action_encoder"),
    ({"_target_": [1]}, "import reads LeWM"),
]


@pytest.mark.parametrize("parts, sentence", DESCRIPTIONS, ids=[str(parts)[:60] for parts, _ in DESCRIPTIONS])
def test_a_description_with_wrong_types(parts: dict, sentence: str, copied: Path, tmp_path: Path, here) -> None:
    edit(copied, **parts)
    done = here("import", str(copied), "task=tworooms", cwd=tmp_path)
    if sentence:
        assert_user_mistake(done, sentence)
        assert list(tmp_path.iterdir()) == [copied]
    else:
        assert done.returncode == 0, done.stderr


def test_weights_of_a_lewm_that_are_damaged(copied: Path, tmp_path: Path, here) -> None:
    path = copied / "weights.pt"
    state, whole = torch.load(path), path.read_bytes()
    name = "projector.net.3.bias"
    cases: list[tuple[Any, str]] = [
        (whole[: len(whole) // 2], "weights.pt is damaged: it is not a whole file of tensors"),
        (whole[:3000], "weights.pt is damaged: it is not a whole file of tensors"),
        (b"", "weights.pt is damaged"),
        (state | {5: torch.zeros(1)}, "holds no state dict: 5 is no name"),
        (state | {"epoch": "x"}, "holds no state dict: 'epoch' is 'x'; expected names with a tensor each"),
        (state | {"epoch": [torch.zeros(1)]}, "holds no state dict: 'epoch' is a list"),
        ({"state_dict": [1]}, "holds no state dict"),
        ({"state_dict": None}, "holds no state dict"),
        ([1], "holds no state dict"),
        ({}, "holds no state dict"),
        (state | {name: torch.full((48,), math.nan)}, f"holds weights that are not finite ('{name}')"),
        (state | {name: torch.zeros(48).to_sparse()}, f"'{name}' is no plain tensor"),
        (state | {name: torch.zeros(1).expand(10**12)}, f"'{name}' is no plain tensor"),
        (state | {"encoder.layers.999999999.layernorm_before.bias": torch.zeros(48)}, "one has the number 999999999"),
        (state | {f"encoder.layers.{'9' * 5000}.layernorm_before.bias": torch.zeros(48)}, "one has the number 999999999999"),
    ]
    for content, sentence in cases:
        path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
        assert_user_mistake(here("import", str(copied), "task=tworooms", cwd=tmp_path), sentence)
        assert list(tmp_path.iterdir()) == [copied]


@pytest.mark.parametrize("content", ["{", DEEP, "[]", "\x00"])
def test_json_beside_lewm_weights_that_is_none(content: str, copied: Path, tmp_path: Path, here) -> None:
    (copied / "phylatent.json").write_text(content)
    done = here("import", str(copied), "task=tworooms", cwd=tmp_path)
    assert_user_mistake(done, "phylatent.json is damaged")
    (copied / "config.json").write_text(content)
    assert_user_mistake(here("import", str(copied), "task=tworooms", cwd=tmp_path), "config.json is damaged")


BESIDE = [
    ("config", None, "it is null, expected an object"),
    ("config", [1], "it is a list, expected an object"),
    ("config.model", [1], "model is a list, expected an object"),
    ("config.model.width", "48", "model.width is '48'"),
    ("config.model.width", 96, "says other sizes than the weights beside it have"),
    ("config.model.predictor_depth", 10**9, "says other sizes than the weights beside it have"),
    ("config.clip.stride", 3, "is not a block of 3 raw actions"),
    ("config.clip.stride", "5", "clip.stride is '5'"),
    ("config.action.std", [0], "action.std has 1 entries"),
    ("config.split", 3, "split is 3, expected an object"),
    ("config.more", 3, "it has more, which this version does not know"),
    ("sha256", 3, "is about other weights than the ones beside it"),
]


@pytest.mark.parametrize("name, value, sentence", BESIDE, ids=[f"{name} {value!r}" for name, value, _ in BESIDE])
def test_what_an_export_kept_with_wrong_types(name: str, value: Any, sentence: str, untrained, tmp_path: Path, here) -> None:
    exported = export_model(untrained, out=tmp_path / "exported")
    path = exported / "phylatent.json"
    path.write_text(changed(json.loads(path.read_text()), name, value))
    done = here("import", str(exported), "out=out", cwd=tmp_path)
    assert_user_mistake(done, sentence)
    assert "move phylatent.json away" in done.stderr or "raw actions" in done.stderr
    assert not (tmp_path / "out").exists()
