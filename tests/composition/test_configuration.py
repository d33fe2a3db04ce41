"""Configurations: layers, types, names, and a saved file that gives the same run."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
import yaml

from phylatent import compose
from phylatent.composition import load_config, save_config, to_dict
from phylatent.composition.layers import available
from phylatent.errors import UserError
from phylatent.schema import SplitConfig
from phylatent.tasks import all_tasks

# tab:loss_weights and tab:auxiliary_hyperparameters, typed in from the paper a second time
WEIGHTS = {
    "cube": (0.25, 0.10, 0.05, 0.02, 0.01),
    "tworooms": (0.20, 0.08, 0.03, 0.02, 0.01),
    "reacher": (0.045, 0.025, 0.030, 0.015, 0.005),
    "pusht": (0.090, 0.035, 0.060, 0.010, 0.005),
}
HYPER = {
    "cube": (0.040, 0.030, 0.100, 0.080, 1.00, 0.03, 0.35),
    "tworooms": (0.030, 0.020, 0.100, 0.080, 1.00, 0.05, 0.35),
    "reacher": (0.012, 0.008, 0.025, 0.025, 0.35, 0.05, 0.10),
    "pusht": (0.012, 0.008, 0.015, 0.018, 0.25, 0.05, 0.10),
}
TARGET_DIMS = {"cube": 28, "tworooms": 2, "reacher": 6, "pusht": 7}
ACTION_DIMS = {"cube": 5, "tworooms": 2, "reacher": 2, "pusht": 2}


@pytest.mark.parametrize("task", WEIGHTS)
def test_the_papers_tables(task: str) -> None:
    config = compose(task=task, preset="paper", variant="phylatent")
    terms = config.objective_settings
    assert tuple(terms[name].weight for name in ("psg", "fra", "svic", "casc", "ld")) == WEIGHTS[task]
    assert (terms["pred"].weight, terms["sigreg"].weight) == (1.0, 0.09)
    assert (
        *(terms["svic"].brightness, terms["svic"].channel),
        *(terms["casc"].action_noise, terms["casc"].margin_scale, terms["casc"].max_margin),
        *(terms["ld"].sigma_min, terms["ld"].sigma_max),
    ) == HYPER[task]
    spec = all_tasks()[task]
    assert spec.target.dim == TARGET_DIMS[task]
    assert spec.action_dim == ACTION_DIMS[task]
    assert config.train.max_steps_per_epoch == (None if task == "cube" else 10_000)


def test_the_paper_preset() -> None:
    config = compose(preset="paper")
    train = config.train
    assert (train.batch_size, train.lr, train.weight_decay, train.epochs, train.steps) == (32, 5e-5, 1e-3, 10, None)
    assert (train.schedule, train.clip_norm, train.precision) == ("constant", 1.0, "auto")
    assert (config.model.image_size, config.model.patch_size, config.model.width) == (224, 14, 192)
    assert (config.model.predictor_depth, config.model.predictor_heads, config.model.predictor_mlp) == (6, 16, 2048)
    assert (config.clip.frames, config.clip.stride, config.clip.context, config.clip.offset) == (4, 5, 3, 1)
    assert config.objective_settings["pred"].stop_gradient, "the paper's equation"
    assert not compose(preset="laptop").objective_settings["pred"].stop_gradient, "what was measured (docs/choices.md)"


VARIANTS = {
    "lewm": "pred sigreg",
    "phylatent": "pred sigreg svic psg fra casc ld",
    "phylatent-circular": "pred sigreg svic psg fra casc ld",
    "phylatent-robust": "pred sigreg svic psg fra casc ld",
    "phylatent-plus": "pred sigreg svic psg fra casc ld",
    "subjepa": "pred subspaces",
    "smwm": "pred inverse",
    "sdjepa": "pred sigreg contrast",
    "pldm": "pred covariance smoothness variance variance_time",
    "no-psg-fra": "pred sigreg svic casc ld",
    "no-svic": "pred sigreg psg fra casc ld",
    "no-casc-ld": "pred sigreg svic psg fra",
    "no-psg": "pred sigreg svic fra casc ld",
    "no-fra": "pred sigreg svic psg casc ld",
    "no-casc": "pred sigreg svic psg fra ld",
    "no-ld": "pred sigreg svic psg fra casc",
}


def test_variants() -> None:
    assert set(available("variants")) == set(VARIANTS)
    for name, terms in VARIANTS.items():
        assert " ".join(compose(variant=name).objectives) == terms


# Per task: K of Sub-JEPA, λ of SMWM.
SIBLINGS = {"cube": (32, 1.0), "tworooms": (32, 0.1), "reacher": (32, 5.0), "pusht": (16, 30.0)}


@pytest.mark.parametrize("preset", ["paper", "laptop"])
@pytest.mark.parametrize("task", SIBLINGS)
def test_the_sibling_methods(task: str, preset: str) -> None:
    subjepa, smwm, sdjepa, pldm = (compose(task, preset, variant) for variant in ("subjepa", "smwm", "sdjepa", "pldm"))
    assert not any(config.objective_settings["pred"].stop_gradient for config in (subjepa, smwm, sdjepa, pldm))
    subspaces, count = subjepa.objective_settings["subspaces"], SIBLINGS[task][0]
    assert (subspaces.weight, subspaces.count, subspaces.directions) == (0.09, count, 1024 if preset == "paper" else 32)
    assert smwm.objective_settings["inverse"].weight == SIBLINGS[task][1]
    assert (smwm.clip.context, smwm.clip.frames) == (1, 2)
    assert (sdjepa.objective_settings["sigreg"].weight, sdjepa.objective_settings["sigreg"].skip) == (0.09, 2)
    contrast = sdjepa.objective_settings["contrast"]
    assert (contrast.weight, contrast.dims, contrast.margin) == (0.1, 2, 0.2)
    weights = [pldm.objective_settings[name].weight for name in ("variance", "variance_time", "covariance", "smoothness")]
    assert weights == [18, 0.7, 12, 0.2]


def test_a_variant_has_its_say_in_a_preset() -> None:
    """SMWM's batch and rate are its own under `paper`; elsewhere the preset's budget holds for every variant alike."""
    ours = compose(preset="paper", variant="smwm").train
    assert (ours.batch_size, ours.lr) == (256, 1e-4)
    smwm, lewm = (compose(preset="laptop", variant=variant).train for variant in ("smwm", "lewm"))
    assert smwm == replace(lewm, trials=smwm.trials)
    assert compose(preset="paper", variant="smwm", overrides=["train.lr=1e-3"]).train.lr == 1e-3


def test_the_search_behind_the_comparison_on_pusht_was_as_long_for_both() -> None:
    assert [compose("pusht", "laptop", variant).train.trials for variant in ("lewm", "phylatent-plus")] == [6, 6]


def test_a_preset_may_extend_another() -> None:
    """The other one's sizes, what the task and the variant say in it, and then its own."""
    laptop, demo = (compose("pusht", preset, "lewm") for preset in ("laptop", "demo"))
    assert demo.model == laptop.model
    assert demo.objective_settings == laptop.objective_settings
    assert (laptop.plan.seeds, demo.plan.seeds) == ((0, 1, 2), (0,))
    assert demo.train == laptop.train
    stopped = {task: compose(task, "demo", "lewm").objective_settings["pred"].stop_gradient for task in ("cube", "reacher")}
    assert stopped == {"cube": False, "reacher": True}, "what the variant says of a task there"
    with pytest.raises(UserError, match="unknown key 'extends'"):
        compose(overrides=["extends=laptop"])


def test_the_command_line_wins_and_types_are_checked() -> None:
    config = compose(overrides=["train.lr=2e-3", "train.steps=null", "pred.stop_gradient=true", "data=a=b.h5"])
    assert config.train.lr == 2e-3
    assert config.train.steps is None
    assert config.objective_settings["pred"].stop_gradient is True
    assert config.data == "a=b.h5"
    assert compose(overrides=["data=007"]).data == "007"
    with pytest.raises(FrozenInstanceError):
        config.seed = 3


@pytest.mark.parametrize(
    "override, sentence",
    [
        ("train.lrr=1", "unknown key 'train.lrr'; did you mean 'train.lr'?"),
        ("batch_size=3", "unknown key 'batch_size'; did you mean 'train.batch_size'?"),
        ("casc.weigth=1", "did you mean 'casc.weight'?"),
        ("train.lr=fast", "wrong value for train.lr"),
        ("train.batch_size=2.5", "wrong value for train.batch_size"),
        ("train=3", "unknown key 'train'"),
        ("train.batch_size=0", "train.batch_size is 0; it must be at least 1"),
        ("train.schedule=linear", "must be one of constant, cosine"),
        ("model.heads=7", "model.heads 7 does not divide model.width 192"),
        ("clip.context=2", "must equal clip.frames"),
        ("svic.weight=-1", "not negative"),
        ("casc.weight=nan", "casc.weight is nan"),
        ("psg.angles=sine", "psg.angles is 'sine'; it must be one of raw, circular"),
        ("sigreg.skip=-1", "sigreg.skip is -1; it must be at least 0"),
        ("subspaces.count=0", "subspaces takes a count of at least 1"),
        ("contrast.dims=0", "contrast.dims is 0; it must be at least 1"),
        ("sigreg.knots=1", "at least 1 direction and 2 knots"),
        ("train.lr=inf", "train.lr is inf"),
        ("train.weight_decay=-1", "train.weight_decay is -1.0; it must be at least 0"),
        ("model.patch_size=0", "model.patch_size is 0"),
        ("model.heads=0", "model.heads is 0"),
        ("split.seed=-1", "split.seed is -1"),
        (
            "split.held_out=0.1",
            "unknown key 'split.held_out'; the episodes are split in three now: split.validation=",
        ),
        ("split.test=0", "split.test is 0.0; it must lie between 0 and 1"),
        ("split.validation=0.9", "split.validation + split.test is 0.9 + 0.1, which leaves nothing to train on"),
        ("diagnose.split=train", "diagnose.split is 'train'; it must be one of test, validation"),
        ("plan.split=held-out", "plan.split is 'held-out'; it must be one of test, validation"),
        ("train.trials=0", "train.trials is 0; it must be at least 1"),
        ("collect.episodes=${x}", "a value cannot be resolved"),
        ("variant=lewm", "variant is chosen by itself"),
        ("objectives=[pred,nothing]", "unknown objective 'nothing'"),
        ("devices=0", "devices is 0"),
        ("train.lr", "not of the form key=value"),
        ("train.lr={", "cannot be read"),
    ],
)
def test_mistakes_get_one_sentence(override: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(overrides=[override])
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind, near", [("task", "tworoom"), ("preset", "laptopp"), ("variant", "phylatnet")])
def test_unknown_names_suggest_the_nearest(kind: str, near: str) -> None:
    with pytest.raises(UserError, match=f"unknown {kind} '{near}'; did you mean"):
        compose(**{kind: near})


def test_a_vits_patches_must_divide_the_frame() -> None:
    with pytest.raises(UserError, match="does not divide"):
        compose(overrides=["model.encoder=vit", "model.patch_size=7"])


def test_every_method_has_its_better_stop_gradient_at_laptop_scale_and_the_papers_under_paper() -> None:
    for task, preset, lewm, phylatent in (
        ("tworooms", "laptop", False, False),
        ("reacher", "laptop", True, False),
        ("tworooms", "paper", True, True),
    ):
        found = [compose(task, preset, name).objective_settings["pred"].stop_gradient for name in ("lewm", "phylatent")]
        assert found == [lewm, phylatent]


def test_short_steps_are_for_laptops_and_the_papers_planning_for_paper() -> None:
    plan = compose("pusht", "paper", "phylatent").plan
    assert (plan.receding, plan.shrink, plan.warm, plan.noise, plan.cost) == (5, False, False, "white", "latent")
    assert (plan.candidates, plan.elites, plan.iterations) == (100, 10, 30)
    assert compose("pusht", "laptop", "lewm").plan == compose("pusht", "laptop", "phylatent").plan, "every method plans alike"


def test_settings_of_a_term_the_variant_does_not_use_are_refused() -> None:
    with pytest.raises(UserError, match="variant 'lewm' does not use 'casc'"):
        compose(variant="lewm", overrides=["casc.weight=0.1"])
    config = compose(variant="lewm", overrides=["objectives=[pred,sigreg,casc]", "casc.weight=0.1"])
    assert config.objective_settings["casc"].weight == 0.1


def test_a_term_without_a_weight_is_refused_and_not_left_out_without_a_word() -> None:
    for overrides in (["svic.weight=0"], ["objectives=[pred,svic]", "svic.weight=0.0"], ["objectives=[pred,variance]"]):
        with pytest.raises(UserError, match=r"among the objectives, but \w+\.weight is 0, .*leave it out: objectives=\[pred"):
            compose(overrides=overrides)
    with pytest.raises(UserError, match="the list is empty; name some"):
        compose(overrides=["objectives=[]"])


def test_later_names_are_aliases() -> None:
    config = compose(overrides=["svip.weight=0.5", "casp.weight=0.25"])
    assert config.objective_settings["svic"].weight == 0.5
    assert config.objective_settings["casc"].weight == 0.25


@pytest.mark.parametrize("task", all_tasks())
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_saved_configuration_is_the_same_one(task: str, variant: str, tmp_path: Path) -> None:
    config = compose(task=task, preset="laptop", variant=variant, overrides=["train.lr=3e-4", "seed=7"])
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == config
    assert load_config(tmp_path / "config.yaml", ["seed=8"]).seed == 8


def test_a_configuration_carries_its_task(tmp_path: Path) -> None:
    """Found once and handed on, also to other processes; it is not part of what is saved or compared."""
    config = compose(task="pusht")
    assert config.spec is all_tasks()["pusht"]
    assert pickle.loads(pickle.dumps(config)).spec == config.spec
    assert replace(config, spec=all_tasks()["cube"]) == config
    assert "TaskSpec" not in repr(config)
    assert "spec" not in to_dict(config)
    save_config(config, tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml").spec is config.spec


def test_a_configuration_that_an_earlier_version_saved_keeps_its_two_way_split(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    save_config(compose(), path)
    saved = yaml.safe_load(path.read_text())
    saved["split"] = {"held_out": 0.25, "seed": 3}
    for section in ("diagnose", "plan"):
        del saved[section]["split"]
    del saved["train"]["trials"]
    path.write_text(yaml.safe_dump(saved))
    config = load_config(path)
    assert (config.split, config.split.two_way) == (SplitConfig(validation=0, test=0.25, seed=3), True)
    save_config(config, path)
    assert load_config(path) == config


@pytest.mark.parametrize("text", ["", "task: tworooms", "a: [", "task: moon\npreset: laptop\nvariant: lewm", "- 1"])
def test_a_file_that_is_no_configuration(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with pytest.raises(UserError, match="no configuration file"):
        load_config(path)
    path.write_text(text)
    with pytest.raises(UserError):
        load_config(path)
