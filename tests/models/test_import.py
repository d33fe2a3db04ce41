"""LeWM's files in: strictly, under any of their names, then judged and planned with."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from command_line import assert_user_mistake
from lewm_checkpoints import CONFIG, as_transformers_4, change, edit

from phylatent import WorldModel, export_model, import_model
from phylatent.data.readers import open_episodes
from phylatent.data.stats import fit_statistics
from phylatent.errors import UserError
from phylatent.models.world_model import WorldModelConfig
from phylatent.planning.stable_worldmodel import CostModel
from phylatent.tasks.tworooms import TASK


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


def test_imported_models_are_diagnosed_and_planned_with(imported: Path, tworooms_data: Path, tmp_path: Path, here) -> None:
    for command, less in (("diagnose", "states=8"), ("plan", "policy=model")):
        arguments = [f"data={tworooms_data}", "preset=smoke", f"out={tmp_path / 'judged'}", less]
        done = here(command, str(imported), *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    for record in ("diagnostics/paper.json", "planning/paper/result.json"):
        facts = json.loads((tmp_path / "judged" / record).read_text())["model"]
        assert facts["variant"] == "lewm"
        assert facts["split"].startswith("drawn anew")


def test_without_data_a_model_comes_in_but_is_not_judged(released: Path, tworooms_data: Path, tmp_path: Path, here) -> None:
    done = here("import", str(released / "weights.pt"), "task=tworooms", cwd=tmp_path)
    model = Path("runs") / "imported-lewm-tworooms"
    assert done.returncode == 0, done.stderr
    assert f"model: {model}" in done.stdout
    assert "import it with data=" in " ".join(done.stdout.split())
    done = here("plan", str(model), f"data={tworooms_data}", cwd=tmp_path)
    assert_user_mistake(done, "does not say what its actions are z-scored with; import it again with data=")


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
def test_import_is_strict(copied: Path, tensors: dict, parts: dict, sentence: str, tmp_path: Path, here) -> None:
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
    refused("config.json is damaged: it is not JSON", copied / "weights.pt")
    (copied / "config.json").unlink()
    refused("has no config.json beside it", copied / "weights.pt")
    refused("it has none", tmp_path)


def test_what_does_not_fit(released: Path, untrained: Path, tworooms_data: Path, tmp_path: Path, here) -> None:
    exported = export_model(untrained, out=tmp_path / "exported")
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
        (["import", str(released), "task=tworooms", "out=/dev/null/x"], "/dev/null/x cannot be used: a part of it is a file"),
        (["import", str(released), "variant=lewm"], "import takes task=, data=, out= and nothing else; found variant"),
        (["import", str(untrained)], "is a phylatent model already"),
        (["import", str(tworooms_data)], "is nothing that import reads; expected a LeWM checkpoint"),
        (["import", "nowhere.h5.zst"], "there is no archive nowhere.h5.zst"),
        (["import", str(exported), "task=cube"], "is a model of tworooms, not of cube"),
        (["import", str(exported), f"data={tworooms_data}"], "says itself what its actions are z-scored with"),
        (["export", str(untrained), "format=onnx"], "format=onnx: expected one of lewm, phylatent"),
        (["export", str(untrained), "keys=3"], "keys=3: expected 4 or 5"),
        (["export", str(untrained), "out=taken"], "taken is not empty and will not be overwritten"),
        (["export", str(untrained), "task=cube"], "export takes format=, keys=, out= and nothing else; found task"),
        (["export", str(released)], "is a LeWM checkpoint; import it first: phylatent import"),
        (["diagnose", str(released)], "is a LeWM checkpoint; import it first: phylatent import"),
    ]:
        assert_user_mistake(here(*arguments, cwd=tmp_path), sentence)
        assert sorted(tmp_path.rglob("*")) == before, arguments
    change(exported, projector__net__3__bias=torch.ones(48))
    assert_user_mistake(here("import", str(exported), cwd=tmp_path), "phylatent.json in exported is about other weights")


def test_hub_ids_from_a_cache_without_a_network(released: Path, tmp_path: Path, monkeypatch, here) -> None:
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


def test_packed_data_is_unpacked(tworooms_data: Path, tmp_path: Path, here) -> None:
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
