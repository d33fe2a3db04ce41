"""LeWM models of stable-worldmodel's own classes, their files, and an untrained run of ours, for tests to import and export."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from phylatent import build, import_model
from phylatent.composition import compose, save_config
from phylatent.data.readers import open_episodes
from phylatent.data.stats import fit_statistics, split_episodes
from phylatent.models.lewm.weights import from_lewm
from phylatent.tasks.tworooms import TASK


def randomise(module: torch.nn.Module) -> None:
    """Every parameter and buffer at random: AdaLN-zero would hide the action, fresh BatchNorm its statistics."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if not tensor.is_floating_point():
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if name.endswith("running_var"):
            value = 0.5 + noise.abs()
        elif name.endswith(("weight", "bias")) and tensor.ndim == 1:
            value = (1.0 if name.endswith("weight") else 0.0) + 0.2 * noise
        else:
            value = noise * (tensor.numel() / len(tensor)) ** -0.5 if tensor.shape[0] > 1 else 0.5 * noise
        tensor.data.copy_(value)


def their_lewm(vit: dict, predictor: dict, width: int, hidden: int) -> torch.nn.Module:
    """A LeWM of stable-worldmodel's own classes, every tensor at random."""
    transformers = pytest.importorskip("transformers", reason="the reference encoder comes with the test extra")
    from stable_worldmodel.wm.lewm import LeWM
    from stable_worldmodel.wm.lewm.module import MLP, Embedder, Predictor

    def projector() -> torch.nn.Module:
        return MLP(input_dim=width, hidden_dim=hidden, output_dim=width, norm_fn=torch.nn.BatchNorm1d)

    sizes = {"num_frames": 3, "input_dim": width, "hidden_dim": width}
    model = LeWM(
        encoder=transformers.ViTModel(transformers.ViTConfig(**vit), add_pooling_layer=False),
        predictor=Predictor(**(sizes | predictor)),
        action_encoder=Embedder(input_dim=10, emb_dim=width),
        projector=projector(),
        pred_proj=projector(),
    )
    randomise(model)
    return model.eval()


@pytest.fixture(scope="module")
def reference() -> torch.nn.Module:
    """At the paper's size."""
    vit = {"hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768}
    predictor = {"depth": 6, "heads": 16, "mlp_dim": 2048, "dim_head": 64, "dropout": 0.1}
    return their_lewm(vit | {"image_size": 224, "patch_size": 14}, predictor, 192, 2048)


@pytest.fixture(scope="module")
def ours(reference: torch.nn.Module):
    return from_lewm(reference.state_dict())


def as_transformers_4(name: str) -> str:
    for new, old in [
        (r"encoder\.layers\.(\d+)\.", r"encoder.encoder.layer.\1."),
        (r"attention\.q_proj", "attention.attention.query"),
        (r"attention\.k_proj", "attention.attention.key"),
        (r"attention\.v_proj", "attention.attention.value"),
        (r"attention\.o_proj", "attention.output.dense"),
        (r"(layer\.\d+)\.mlp\.fc1", r"\1.intermediate.dense"),
        (r"(layer\.\d+)\.mlp\.fc2", r"\1.output.dense"),
    ]:
        name = re.sub(new, old, name)
    return name


MODULE = "stable_worldmodel.wm.lewm.module"
PROJECTOR = {
    "_target_": f"{MODULE}.MLP",
    "input_dim": 48,
    "output_dim": 48,
    "hidden_dim": 64,
    "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
}
VIT = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 192}
CONFIG = {
    "_target_": "stable_worldmodel.wm.lewm.LeWM",
    "encoder": {
        "_target_": "transformers.ViTModel",
        "config": {"_target_": "transformers.ViTConfig", **VIT, "image_size": 32, "patch_size": 16},
        "add_pooling_layer": False,
    },
    "predictor": {
        "_target_": f"{MODULE}.Predictor",
        "num_frames": 3,
        "input_dim": 48,
        "hidden_dim": 48,
        "output_dim": 48,
        "depth": 2,
        "heads": 2,
        "mlp_dim": 64,
        "dim_head": 16,
        "dropout": 0.2,
        "emb_dropout": 0.0,
    },
    "action_encoder": {"_target_": f"{MODULE}.Embedder", "input_dim": 10, "smoothed_dim": 10, "emb_dim": 48},
    "projector": PROJECTOR,
    "pred_proj": PROJECTOR,
}


def without_targets(part: dict) -> dict:
    return {key: value for key, value in part.items() if key != "_target_"}


@pytest.fixture(scope="module")
def lewm() -> torch.nn.Module:
    """The small one that `CONFIG` describes."""
    return their_lewm(without_targets(CONFIG["encoder"]["config"]), without_targets(CONFIG["predictor"]), 48, 64)


@pytest.fixture(scope="module")
def released(lewm: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved with stable-worldmodel's own `save_pretrained`."""
    from omegaconf import OmegaConf
    from stable_worldmodel.wm.utils import save_pretrained

    home = tmp_path_factory.mktemp("stablewm")
    save_pretrained(lewm, "lewm-tworooms", config=OmegaConf.create(CONFIG), cache_dir=str(home))
    return home / "checkpoints" / "lewm-tworooms"


@pytest.fixture(scope="module")
def imported(released: Path, tworooms_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_model(released, task="tworooms", data=tworooms_data, out=tmp_path_factory.mktemp("in") / "lewm")


@pytest.fixture(scope="module")
def untrained(tworooms_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a training leaves behind, of a model that has all that one takes from its data, at random weights."""
    config, directory = compose(preset="smoke"), tmp_path_factory.mktemp("runs") / "whole"
    episodes = open_episodes(tworooms_data, TASK)
    split = split_episodes(len(episodes.lengths), config.split)
    fitted = fit_statistics(episodes, TASK, split.train)
    model = build(config, fitted.action, fitted.target).world_model
    made = {"data": {"fingerprint": episodes.fingerprint(), "name": "a", "episodes": 12}, "seed": 0, "step": 20}
    model.config = model._hub_mixin_config = replace(model.config, split=split.to_dict(), provenance=made)
    randomise(model)
    save_config(config, directory / "config.yaml")
    model.save_pretrained(directory / "model")
    return directory


@pytest.fixture
def copied(released: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(released, tmp_path / "copied"))


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Replace tensors of a checkpoint by name, with `__` for the dots; None takes one out."""
    state = torch.load(folder / "weights.pt") | {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    torch.save({name: tensor for name, tensor in state.items() if tensor is not None}, folder / "weights.pt")


def edit(folder: Path, **parts: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))


def assert_same_tensors(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert tensor.dtype == theirs[name].dtype, name
        assert torch.equal(tensor, theirs[name]), name
