"""`diagnose`, `plan` and `report` as a user calls them: records, what is not done twice, mistakes in one sentence."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from phylatent import WorldModel
from phylatent.commands.report import report
from phylatent.commands.tables import show_rates, show_success
from phylatent.data.readers import open_episodes
from phylatent.errors import UserError
from phylatent.judging.diagnose import diagnose
from phylatent.judging.plan import plan
from phylatent.judging.subject import judging_overrides, load_subject
from phylatent.tasks.tworooms import TASK

ROOT = Path(__file__).parents[2]
SMALL = ["diagnose.workers=1", "plan.workers=1"]


@pytest.fixture(scope="module")
def run(uninterrupted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(uninterrupted, tmp_path_factory.mktemp("judged") / "a-run"))


@pytest.fixture(scope="module")
def judged(run: Path) -> Path:
    diagnose([run], overrides=["workers=1"])
    plan([run], overrides=["workers=1", "protocol=paper,moderate", "video=1"])
    return run


def test_records_say_which_model_data_and_list_they_are_about(judged, tworooms_data):
    rates = json.loads((judged / "diagnostics" / "paper.json").read_text())
    success = json.loads((judged / "planning" / "paper" / "result.json").read_text())
    fingerprint = open_episodes(tworooms_data, TASK).fingerprint()
    for record in (rates, success):
        assert record["model"]["variant"] == "phylatent"
        assert record["model"]["training_seed"] == 0
        assert record["data"]["fingerprint"] == fingerprint
        assert record["provenance"]["packages"]["phylatent"]
        assert record["split"] == {"name": "test", "episodes": 3, "note": None}
        assert record["key"]["split"] == "test"
    assert set(success["policies"]) == {"model", "random", "nothing", "expert"}
    pairs = json.loads((judged / "planning" / "paper" / "pairs.json").read_text())
    assert pairs["hash"] == success["pairs"]["hash"]


def test_no_judged_episode_was_trained_on(judged):
    split = WorldModel.from_pretrained(judged / "model").config.split
    for protocol in ("paper", "moderate"):
        record = json.loads((judged / "planning" / protocol / "result.json").read_text())
        used = {episode["episode"] for episodes in record["episodes"].values() for episode in episodes}
        assert used
        assert used <= set(split["test"])
        assert not used & {*split["train"], *split["validation"]}


def test_videos_show_start_rollout_and_goal(judged):
    from PIL import Image

    (video,) = (judged / "planning" / "paper" / "videos").glob("*.webp")
    with Image.open(video) as film:
        assert film.n_frames > 2
        assert film.width > 2.5 * film.height


def test_a_second_call_measures_nothing_and_other_settings_overwrite_nothing(judged, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in judged.rglob("*.json")}
    monkeypatch.setattr("phylatent.judging.plan.run_policies", None)
    monkeypatch.setattr("phylatent.judging.diagnose.diagnose_model", None)
    assert plan([judged], overrides=["workers=1", "protocol=paper"])[0]["paper"]["policies"]["model"]["count"] == 3
    assert diagnose([judged], overrides=["workers=2"])[0]["protocol"] == "paper"
    with pytest.raises(UserError, match=r"other settings \(candidates\); nothing was overwritten"):
        plan([judged], overrides=["candidates=17"])
    with pytest.raises(UserError, match=r"other settings \(severity\)"):
        diagnose([judged], overrides=["severity=2"])
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_record_from_before_a_setting_stands(judged, tmp_path, monkeypatch):
    old = Path(shutil.copytree(judged, tmp_path / "older"))
    path = old / "diagnostics" / "paper.json"
    record = json.loads(path.read_text())
    assert record["key"].pop("diagnostics") == ["invariance", "identifiability", "counterfactual"]
    path.write_text(json.dumps(record))
    monkeypatch.setattr("phylatent.judging.diagnose.diagnose_model", None)
    assert diagnose([old])[0]["sample"] == record["sample"]
    with pytest.raises(UserError, match=r"other settings \(diagnostics\)"):
        diagnose([old], overrides=["diagnostics=invariance"])
    with pytest.raises(UserError, match="unknown diagnostic 'reachable'; did you mean 'reachability'"):
        diagnose([old], overrides=["diagnostics=invariance,reachable"])


def test_a_record_says_how_its_model_was_trained(judged):
    trained = json.loads((judged / "result.json").read_text())
    facts = json.loads((judged / "diagnostics" / "paper.json").read_text())["model"]
    assert (facts["predictor_steps"], facts["trials"]) == (trained["predictor_steps"], trained["trials"]) == (0, 1)
    assert facts["commit"] == trained["commit"] == trained["provenance"]["commit"]
    assert facts["training_seconds"] == trained["seconds"] > 0


def test_records_of_validation_and_test_episodes_are_never_confused(judged, tmp_path):
    with pytest.raises(UserError, match=r"other settings \(split, episodes\); nothing was overwritten"):
        diagnose([judged], overrides=["split=validation"])
    with pytest.raises(UserError, match=r"other settings \(split, episodes\); nothing was overwritten"):
        plan([judged], overrides=["split=validation"])
    out = tmp_path / "chosen"
    record = plan([judged], overrides=["workers=1", "policy=nothing", "split=validation"], out=out)[0]["paper"]
    assert record["split"]["name"] == record["key"]["split"] == "validation"
    validation = WorldModel.from_pretrained(judged / "model").config.split["validation"]
    assert {episode["episode"] for episode in record["episodes"]["nothing"]} <= set(validation)
    with pytest.raises(UserError, match=r"different splits.* a-run on test .*; chosen on validation \(planning \(paper\)\)"):
        report([judged, out], out=tmp_path / "page")
    assert not (tmp_path / "page").exists()


@pytest.fixture
def two_way(judged: Path, tmp_path: Path) -> Path:
    """The run as an earlier version left it: split in two, with records that do not name a side."""
    old = Path(shutil.copytree(judged, tmp_path / "old-run"))
    path = old / "model" / "config.json"
    config = json.loads(path.read_text())
    split = config["split"]
    config["split"] = {"train": split["train"] + split["validation"], "held_out": split["test"], "seed": split["seed"]}
    path.write_text(json.dumps(config))
    text = (old / "config.yaml").read_text().replace("validation: 0.25\n  test: 0.25", "held_out: 0.25")
    assert "held_out" in text
    (old / "config.yaml").write_text(text)
    for path in (old / "diagnostics" / "paper.json", *(old / "planning").glob("*/result.json")):
        record = json.loads(path.read_text())
        del record["split"], record["key"]["split"]
        record["key"]["held_out"] = record["key"].pop("episodes")
        path.write_text(json.dumps(record))
    return old


def test_a_run_split_in_two_still_opens_and_says_so(two_way, judged, tmp_path, monkeypatch):
    out = tmp_path / "again"
    record = plan([two_way], overrides=["workers=1", "policy=nothing"], out=out)[0]["paper"]
    note = "two-way split: settings may have been chosen on these episodes"
    assert record["split"] == {"name": "held-out", "episodes": 3, "note": note}
    assert json.loads((out / "planning" / "paper" / "pairs.json").read_text())["split"] == "held-out"
    with pytest.raises(UserError, match="no validation episodes; take split=test"):
        plan([two_way], overrides=["split=validation"], out=tmp_path / "other")
    monkeypatch.setattr("phylatent.judging.plan.run_policies", None)
    monkeypatch.setattr("phylatent.judging.diagnose.diagnose_model", None)
    diagnose([two_way], overrides=["workers=1"])
    plan([two_way], overrides=["workers=1"])
    page = report([two_way, out], out=tmp_path / "page").read_text()
    assert f"Split: held-out ({note})." in page
    with pytest.raises(UserError, match="different splits"):
        report([two_way, judged], out=tmp_path / "mixed")


def test_tables_say_which_split_their_numbers_come_from(judged, capsys):
    console = Console(width=200)
    show_rates(diagnose([judged]), console)
    show_success(plan([judged]), console)
    assert capsys.readouterr().out.count("split: test; 95 %") == 2


def test_a_report_of_it(judged, tmp_path):
    page = report([judged], out=tmp_path)
    assert "Split: test." in page.read_text()
    assert json.loads((tmp_path / "report.json").read_text())["split"] == "test"
    assert page.stat().st_size > 100_000
    assert list((tmp_path / "figures").glob("*.pdf"))


def test_a_model_directory_and_another_place_for_the_records(run, tmp_path, tworooms_data):
    alone = Path(shutil.copytree(run / "model", tmp_path / "published"))
    overrides = ["workers=1", "policy=nothing", f"data={tworooms_data}"]
    record = plan([alone], overrides=overrides, preset="smoke", out=tmp_path / "out")[0]["paper"]
    assert list(record["policies"]) == ["nothing"]
    assert (tmp_path / "out" / "planning" / "paper" / "result.json").is_file()
    assert load_subject(str(run / "model")).directory == run, "a run's own model directory is that run"


def test_models_that_do_not_share_their_held_out_episodes_are_not_compared(run, tmp_path):
    other = Path(shutil.copytree(run, tmp_path / "other"))
    config = json.loads((other / "model" / "config.json").read_text())
    split = config["split"]
    split["test"][0], split["train"][0] = split["train"][0], split["test"][0]
    (other / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="cannot be judged on the same ones"):
        diagnose([run, other])


def test_data_the_model_was_not_trained_on(run, tmp_path):
    from phylatent import collect, compose

    other = collect(compose(preset="smoke", overrides=["collect.seed=5", "collect.workers=1"]), out=tmp_path / "other.h5")
    with pytest.raises(UserError, match="not the data this model was trained on"):
        plan([run], overrides=[f"data={other}"])


def test_mistakes_are_told_in_a_sentence(run, tmp_path):
    with pytest.raises(UserError, match="name what to judge"):
        diagnose([])
    with pytest.raises(UserError, match="not a run directory, not a model directory, and not a Hub id"):
        plan([tmp_path / "nowhere" / "at" / "all"])
    with pytest.raises(UserError, match="neither a run directory"):
        plan([tmp_path])
    with pytest.raises(UserError, match="named twice"):
        plan([run, run])
    with pytest.raises(UserError, match=r"plan.protocol holds 'lenient'"):
        plan([run], overrides=["protocol=lenient"])
    with pytest.raises(UserError, match=r"plan.elites is 200, more than plan.candidates"):
        plan([run], overrides=["elites=200"])
    with pytest.raises(UserError, match=r"unknown key 'severty'; did you mean 'diagnose.severity'"):
        diagnose([run], overrides=["severty=2"])
    unfinished = Path(shutil.copytree(run, tmp_path / "unfinished"))
    shutil.rmtree(unfinished / "model")
    with pytest.raises(UserError, match="no exported model yet; finish its training: phylatent train out="):
        diagnose([unfinished])
    with pytest.raises(UserError, match="there are no records of"):
        report([tmp_path / "nowhere"])


@pytest.mark.parametrize("key", ["train.steps=5", "split.test=0.5", "diagnose.states=3", "plan.every=1"])
def test_a_key_that_would_do_nothing_is_refused(run, key):
    with pytest.raises(UserError, match=r"does nothing here|unknown key"):
        plan([run], overrides=[key])


def test_a_protocol_added_later_leaves_the_others_alone(judged):
    before = (judged / "planning" / "paper" / "result.json").stat().st_mtime_ns
    (judged / "planning" / "moderate").rename(judged / "planning" / "away")
    plan([judged], overrides=["workers=1", "protocol=paper,moderate"])
    assert (judged / "planning" / "paper" / "result.json").stat().st_mtime_ns == before
    assert (judged / "planning" / "moderate" / "result.json").is_file()


def test_what_a_record_lacks_is_told(run, judged, tmp_path):
    plan([run], overrides=["workers=1", "policy=nothing"], out=tmp_path)
    with pytest.raises(UserError, match="measured without policy random; nothing was overwritten"):
        plan([run], overrides=["policy=random,nothing"], out=tmp_path)
    with pytest.raises(UserError, match="measured without videos"):
        plan([run], overrides=["policy=nothing", "video=2"], out=tmp_path)


def test_a_list_can_be_handed_in(run, judged, tmp_path):
    kept = judged / "planning" / "paper" / "pairs.json"
    again = plan([run], overrides=["workers=1", "policy=nothing", f"list={kept}", "seeds=7"], out=tmp_path)[0]["paper"]
    assert again["pairs"]["hash"] == json.loads(kept.read_text())["hash"]
    with pytest.raises(UserError, match="is a list for tworooms, protocol paper"):
        plan([run], overrides=["protocol=moderate", f"list={kept}"], out=tmp_path / "other")


def test_records_elsewhere_bring_what_the_run_says_of_its_training(run, judged, tmp_path):
    plan([run], overrides=["workers=1", "policy=nothing"], out=tmp_path / "records")
    page = report([tmp_path / "records"], out=tmp_path / "page")
    assert "effective rank" in page.read_text().lower()


def test_a_record_says_which_solver_and_one_from_before_there_were_several_stands(run, judged, tmp_path, monkeypatch):
    keys = ["workers=1", "policy=model", "pairs=2", "filmstrips=0", "solver=icem"]
    record = plan([run], overrides=[*keys, "icem.beta=3"], seeds=[0], out=tmp_path)[0]["paper"]
    assert record["settings"]["solver"] == "icem"
    assert record["settings"]["icem"] == {"beta": 3.0, "kept": 0.3}
    with pytest.raises(UserError, match=r"other settings \(icem\.beta\); nothing was overwritten"):
        plan([run], overrides=keys, seeds=[0], out=tmp_path)
    monkeypatch.setattr("phylatent.judging.plan.run_policies", None)
    path, again = tmp_path / "planning" / "paper" / "result.json", [*keys, "icem.beta=3"]
    del record["key"]["icem.kept"]
    path.write_text(json.dumps(record))
    assert plan([run], overrides=again, seeds=[0], out=tmp_path)[0]["paper"] == record, "made as the default is"
    path = judged / "planning" / "paper" / "result.json"
    made = path.read_text()
    old = json.loads(made)
    del old["key"]["solver"], old["settings"]["solver"]
    path.write_text(json.dumps(old))
    assert plan([judged], overrides=["workers=1"])[0]["paper"] == old
    with pytest.raises(UserError, match=r"other settings \(solver"):
        plan([judged], overrides=["workers=1", "solver=mppi"])
    path.write_text(made)


def test_short_keys_belong_to_the_command():
    given = judging_overrides(["protocol=paper,strict", "candidates=7", "data=x.h5", "plan.budget=9"], "plan", (4, 5))
    expected = ["plan.protocol=[paper,strict]", "plan.candidates=7", "data=x.h5", "plan.budget=9", "plan.seeds=[4,5]"]
    assert given == expected
    own = judging_overrides(["solver=icem", "icem.beta=3", "mine.strength=2"], "plan", ())
    assert own == ["plan.solver=icem", "icem.beta=3", "mine.strength=2"]
    with pytest.raises(UserError, match=r"icem\.beta does nothing here"):
        judging_overrides(["icem.beta=3"], "diagnose", ())


def test_the_planning_guide_s_loop_runs(run, tworooms_data, monkeypatch):
    """As it stands there, with a run that exists and frames that were recorded."""
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "planning.md").read_text(), re.DOTALL)
    script = script.replace("runs/tworooms-laptop-phylatent-seed0", str(run))
    frames = open_episodes(tworooms_data, TASK).frames(range(30))
    scope = {"frames": frames}
    exec(script, scope)
    assert scope["action"].shape == (2,)
