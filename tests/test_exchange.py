"""Models in and out: LeWM's files to ours and back, bit for bit, and judged and planned with on either side."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from phylatent import WorldModel, build, export_model, import_model
from phylatent.composition import compose, save_config
from phylatent.data.readers import open_episodes
from phylatent.data.stats import Split, fit_statistics, split_episodes
from phylatent.errors import UserError
from phylatent.models.lewm_config import describe
from phylatent.models.world_model import WorldModelConfig
from phylatent.planning.pairs import draw_pairs
from phylatent.planning.peer import ActionScaler, CostModel
from phylatent.schema import PlanConfig
from phylatent.tasks.tworooms import TASK
from phylatent.training.directory import export
from test_cli import assert_user_mistake, here  # noqa: F401  a fixture among them
from test_reference import as_transformers_4, randomise

transformers = pytest.importorskip("transformers", reason="the reference encoder comes with the test extra")

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
    """A small LeWM of stable-worldmodel's own classes, every tensor at random."""
    from stable_worldmodel.wm.lewm import LeWM
    from stable_worldmodel.wm.lewm.module import MLP, Embedder, Predictor

    def projector() -> torch.nn.Module:
        return MLP(input_dim=48, hidden_dim=64, output_dim=48, norm_fn=torch.nn.BatchNorm1d)

    vit = transformers.ViTConfig(**without_targets(CONFIG["encoder"]["config"]))
    model = LeWM(
        encoder=transformers.ViTModel(vit, add_pooling_layer=False),
        predictor=Predictor(**without_targets(CONFIG["predictor"])),
        action_encoder=Embedder(**without_targets(CONFIG["action_encoder"])),
        projector=projector(),
        pred_proj=projector(),
    )
    randomise(model)
    return model.eval()


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
def run(tworooms_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    export(model, directory)
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


def test_an_imported_lewm_costs_plans_as_its_own_code_does(lewm, imported: Path, tworooms_data: Path) -> None:
    ours = WorldModel.from_pretrained(imported).eval()
    frames = torch.from_numpy(open_episodes(tworooms_data, TASK).frames([3, 25]))
    low, high = CostModel(ours).actions.bounds()
    tried = low + (high - low) * torch.rand(1, 30, 5, 10, generator=torch.Generator().manual_seed(0))
    shown = frames[:, None, None, None].expand(2, 1, 30, 1, -1, -1, -1)
    mine = CostModel(ours).get_cost({"pixels": shown[0], "goal": shown[1]}, tried)
    pixels = ours.normalise_frames(frames)[:, None, None, None].expand(2, 1, 30, 1, -1, -1, -1)
    with torch.no_grad():
        theirs = lewm.get_cost({"pixels": pixels[0], "goal": pixels[1], "action": torch.zeros(1, 30, 1, 10)}, tried)
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert mine.std() > 1e-2 * mine.mean(), "other actions must cost something else"


def test_statistics_are_over_all_episodes_as_lewm_has_them(imported: Path, released: Path, tworooms_data: Path) -> None:
    config, record = WorldModel.from_pretrained(imported).config, json.loads((imported / "import.json").read_text())
    episodes = open_episodes(tworooms_data, TASK)
    fitted = fit_statistics(episodes, TASK, range(len(episodes.lengths)))
    assert (config.action, config.target, config.split) == (fitted.action, fitted.target, None)
    assert (config.task, config.variant, config.action_low) == ("tworooms", "lewm", TASK.action_low)
    assert (config.model.heads, config.model.predictor_head_dim, config.model.dropout) == (3, 16, 0.2)
    assert record["sha256"] == hashlib.sha256((released / "weights.pt").read_bytes()).hexdigest()
    assert record["source_config"] == CONFIG


def test_imported_models_are_diagnosed_and_planned_with(imported: Path, tworooms_data: Path, tmp_path: Path, here) -> None:  # noqa: F811
    for command, less in (("diagnose", "states=8"), ("plan", "policy=model")):
        arguments = [f"data={tworooms_data}", "preset=smoke", f"out={tmp_path / 'judged'}", less]
        done = here(command, str(imported), *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    for record in ("diagnostics/paper.json", "planning/paper/result.json"):
        facts = json.loads((tmp_path / "judged" / record).read_text())["model"]
        assert facts["variant"] == "lewm"
        assert facts["split"].startswith("drawn anew")


def test_without_data_a_model_comes_in_but_is_not_judged(released: Path, tworooms_data: Path, tmp_path: Path, here) -> None:  # noqa: F811
    done = here("import", str(released / "weights.pt"), "task=tworooms", cwd=tmp_path)
    model = Path("runs") / "imported-lewm-tworooms"
    assert done.returncode == 0, done.stderr
    assert f"model: {model}" in done.stdout
    done = here("plan", str(model), f"data={tworooms_data}", cwd=tmp_path)
    assert_user_mistake(done, "does not say what its actions are z-scored with; import it again with data=")


@pytest.mark.parametrize("keys", [4, 5])
def test_lewm_to_ours_and_back(lewm, imported: Path, keys: int, tmp_path: Path) -> None:
    back = export_model(imported, keys=keys, out=tmp_path / "back")
    state = lewm.state_dict()
    expected = {as_transformers_4(name): tensor for name, tensor in state.items()} if keys == 4 else dict(state)
    assert_same_tensors(torch.load(back / "weights.pt"), expected)
    assert json.loads((back / "config.json").read_text()) == CONFIG


@pytest.mark.parametrize("keys", [4, 5])
def test_ours_to_lewm_and_back(run: Path, keys: int, tmp_path: Path) -> None:
    """Action statistics, split and provenance come along: no task= and no data= is needed."""
    out = export_model(run, keys=keys, out=tmp_path / "out")
    back = import_model(out, out=tmp_path / "back")
    for name in ("model.safetensors", "config.json"):
        assert (back / name).read_bytes() == (run / "model" / name).read_bytes()
    assert {path.name for path in out.iterdir()} == {"config.json", "weights.pt", "phylatent.json"}


def test_a_run_s_model_alone(run: Path, tmp_path: Path, here) -> None:  # noqa: F811
    done = here("export", str(run), "format=phylatent", f"out={tmp_path / 'model'}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "model" / name).read_bytes() == (run / "model" / name).read_bytes()


@pytest.mark.parametrize("prefix", ["model.", "_orig_mod.", "model._orig_mod."])
def test_names_of_either_transformers_with_any_prefix(imported: Path, copied: Path, prefix: str, tmp_path: Path) -> None:
    state = {prefix + as_transformers_4(name): tensor for name, tensor in torch.load(copied / "weights.pt").items()}
    torch.save({"state_dict": state}, copied / "weights.pt")
    again = import_model(copied, task="tworooms", out=tmp_path / "again")
    assert (again / "model.safetensors").read_bytes() == (imported / "model.safetensors").read_bytes()


def test_pldm_is_the_same_graph(copied: Path, tmp_path: Path) -> None:
    edit(copied, _target_="stable_worldmodel.wm.pldm.PLDM")
    assert WorldModel.from_pretrained(import_model(copied, task="tworooms", out=tmp_path / "out")).config.variant == "pldm"


ROW = torch.zeros(1)
MISTAKES = {
    "missing": ({"pred_proj__net__1__running_var": None}, {}, "it lacks pred_proj.net.1.running_var"),
    "query": ({"encoder__layers__1__attention__q_proj__bias": None}, {}, "it lacks encoder.layers.1.attention.q_proj.bias"),
    "block": ({"encoder__layers__0__mlp__fc1__weight": None}, {}, "it lacks encoder.layers.0.mlp.fc1.weight"),
    "surplus": ({"encoder__embeddings__mask_token": ROW}, {}, "it has encoder.embeddings.mask_token, which LeWM has not"),
    "misshapen": ({"projector__net__3__bias": ROW}, {}, "projector.net.3.bias is float32 [1], expected float32 [48]"),
    "half": ({"projector__net__3__bias": torch.zeros(48).half()}, {}, "is float16 [48], expected float32 [48]"),
    "flat": ({"predictor__pos_embedding": ROW}, {}, "predictor.pos_embedding is [1], expected 3 dimensions"),
    "twice": ({"model__projector__net__3__bias": torch.zeros(48)}, {}, "is in it twice"),
    "no tensors": ({"epoch": 3}, {}, "holds no state dict"),
    "depth": ({}, {"predictor": CONFIG["predictor"] | {"depth": 6}}, "says predictor depth 6, the weights say 2"),
    "heads": ({}, {"predictor": CONFIG["predictor"] | {"heads": 4}}, "says predictor heads 4, the weights say 2"),
    "text": ({}, {"predictor": CONFIG["predictor"] | {"depth": "two"}}, "says predictor_depth 'two'; expected whole numbers"),
    "kind": ({}, {"_target_": "stable_worldmodel.wm.tdmpc2.TDMPC2"}, "describes a TDMPC2; import reads LeWM"),
    "parts": ({}, {"encoder": 1}, "needs the parts encoder, predictor and action_encoder"),
    "activation": ({}, {"encoder": {"config": {"hidden_act": "relu"}}}, "an encoder with hidden_act relu; ours has gelu"),
}


@pytest.mark.parametrize("tensors, parts, sentence", MISTAKES.values(), ids=MISTAKES.keys())
def test_import_is_strict(copied: Path, tensors: dict, parts: dict, sentence: str, tmp_path: Path, here) -> None:  # noqa: F811
    if tensors:
        change(copied, **tensors)
    edit(copied, **parts)
    assert_user_mistake(here("import", str(copied), "task=tworooms", cwd=tmp_path), sentence)
    assert list(tmp_path.iterdir()) == [copied], "a mistake leaves nothing behind"


def test_files_that_are_no_checkpoint(copied: Path, tmp_path: Path) -> None:
    def refused(sentence: str, source: Path = copied) -> None:
        with pytest.raises(UserError, match=sentence):
            import_model(source, task="tworooms", out=tmp_path / "out")
        assert not (tmp_path / "out").exists()

    whole = (copied / "weights.pt").read_bytes()
    (copied / "weights.pt").write_bytes(whole[: len(whole) // 2])
    refused("not a whole file of tensors")
    torch.save(WorldModel(WorldModelConfig(action_dim=2)).projector, copied / "weights.pt")
    refused("not a whole file of tensors")  # a pickled object would run code
    (copied / "weights.pt").write_bytes(whole)
    (copied / "more.pt").write_bytes(whole)
    refused("several: more.pt, weights.pt; name one of them")
    (copied / "config.json").write_text("{")
    refused("config.json is not JSON", copied / "weights.pt")
    (copied / "config.json").unlink()
    refused("has no config.json beside it", copied / "weights.pt")
    refused("it has none", tmp_path)


def test_what_does_not_fit(released: Path, run: Path, tworooms_data: Path, tmp_path: Path, here) -> None:  # noqa: F811
    exported = export_model(run, out=tmp_path / "exported")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for arguments, sentence in [
        (["import"], "import takes one source; found 0"),
        (["import", str(released)], "does not say which task it is for; give task="),
        (["import", str(released), "task=cube"], "takes blocks of 10 action values, but a block of cube has 5 × 5"),
        (["import", str(released), "task=tworoms"], "did you mean 'tworooms'?"),
        (["import", str(released), "task=tworooms", "data=nowhere.h5"], "nowhere.h5"),
        (["import", str(released), "task=tworooms", "out=taken"], "taken is not empty and will not be overwritten"),
        (["import", str(released), "task=tworooms", "out=/dev/null/x"], "cannot write to /dev/null/x"),
        (["import", str(released), "variant=lewm"], "import takes task=, data=, out= and nothing else; found variant"),
        (["import", str(run)], "is a phylatent model already"),
        (["import", str(tworooms_data)], "is nothing that import reads; expected a LeWM checkpoint"),
        (["import", "nowhere.h5.zst"], "there is no archive nowhere.h5.zst"),
        (["import", str(exported), "task=cube"], "is a model of tworooms, not of cube"),
        (["import", str(exported), f"data={tworooms_data}"], "says itself what its actions are z-scored with"),
        (["export", str(run), "format=onnx"], "format=onnx: expected one of lewm, phylatent"),
        (["export", str(run), "keys=3"], "keys=3: expected 4 or 5"),
        (["export", str(run), "out=taken"], "taken is not empty and will not be overwritten"),
        (["export", str(run), "task=cube"], "export takes format=, keys=, out= and nothing else; found task"),
        (["export", str(released)], "is a LeWM checkpoint; import it first: phylatent import"),
        (["diagnose", str(released)], "is a LeWM checkpoint; import it first: phylatent import"),
    ]:
        assert_user_mistake(here(*arguments, cwd=tmp_path), sentence)
        assert sorted(tmp_path.rglob("*")) == before, arguments
    change(exported, projector__net__3__bias=torch.ones(48))
    assert_user_mistake(here("import", str(exported), cwd=tmp_path), "phylatent.json in exported is about other weights")


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


def test_hub_ids_from_a_cache_without_a_network(released: Path, tmp_path: Path, monkeypatch, here) -> None:  # noqa: F811
    kept = tmp_path / "hub" / "models--someone--lewm-tworooms"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    shutil.copytree(released, kept / "snapshots" / ("0" * 40))
    # What HF_HUB_CACHE and HF_HUB_OFFLINE set, read from the environment before any test begins.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    done = here("import", "someone/lewm-tworooms", "task=tworooms", "out=model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model" / "model.safetensors").is_file()
    done = here("diagnose", "someone/lewm-tworooms", cwd=tmp_path)
    assert_user_mistake(done, "is a LeWM checkpoint; import it first: phylatent import someone/lewm-tworooms")
    done = here("import", "someone/else", "task=tworooms", cwd=tmp_path)
    assert_user_mistake(done, "there is no someone/else here, and as a Hub id it could not be loaded")


def test_packed_data_is_unpacked(tworooms_data: Path, tmp_path: Path, here) -> None:  # noqa: F811
    zstandard = pytest.importorskip("zstandard")
    packed = tmp_path / "tworoom.h5.zst"
    packed.write_bytes(zstandard.compress(tworooms_data.read_bytes()))
    done = here("import", str(packed), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data" / "tworoom.h5").read_bytes() == tworooms_data.read_bytes()
    assert json.loads((tmp_path / "data" / "tworoom.h5.json").read_text())["unpacked_from"] == "tworoom.h5.zst"
    assert_user_mistake(here("import", str(packed), cwd=tmp_path), "nothing was overwritten")
    assert_user_mistake(
        here("import", str(packed), "task=tworooms", cwd=tmp_path), "import of packed data takes out= and nothing"
    )


@pytest.mark.parametrize("size", ["smoke", "laptop", "paper"])
def test_stable_worldmodel_loads_our_export(size: str, tmp_path: Path) -> None:
    """Its own `load_pretrained`: same graph, same tensors, same latents."""
    pytest.importorskip("hydra", reason="stable-worldmodel's load_pretrained needs hydra-core")
    if size == "paper":
        pytest.importorskip("stable_pretraining", reason="released configurations name an encoder of stable-pretraining's")
    from stable_worldmodel.wm.utils import load_pretrained

    ours = WorldModel(WorldModelConfig(action_dim=2, model=compose(preset=size).model))
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


def test_our_export_plans_in_stable_worldmodel_s_world(run: Path, tworooms_data: Path, tmp_path: Path) -> None:
    """Its loader, solver, policy and evaluation; ours are the pairs and the action scaler."""
    pytest.importorskip("hydra", reason="stable-worldmodel's load_pretrained needs hydra-core")
    import stable_worldmodel as swm
    from stable_worldmodel.data.formats.hdf5 import HDF5Dataset
    from stable_worldmodel.policy import PlanConfig as PeerConfig
    from stable_worldmodel.policy import WorldModelPolicy
    from stable_worldmodel.solver import CEMSolver
    from stable_worldmodel.wm.utils import load_pretrained

    theirs = load_pretrained(str(export_model(run, out=tmp_path / "mine"))).eval()
    ours = WorldModel.from_pretrained(run / "model")
    episodes = open_episodes(tworooms_data, TASK)
    held_out = Split.from_dict(ours.config.split)
    pairs = draw_pairs(TASK, episodes, held_out, "paper", PlanConfig(pairs=2, seeds=(0,))).pairs
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
