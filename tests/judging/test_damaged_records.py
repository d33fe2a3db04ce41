"""Records of `diagnose` and `plan` that are cut or forged: one sentence, and nothing is overwritten."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import assert_user_mistake

from phylatent.judging.diagnose import diagnose
from phylatent.judging.plan import plan

ANEW = "move it away, and the same command measures it again"
DEEP = '{"a":' * 100_000
GONE = object()
PLAN = "planning/paper/result.json"


@pytest.fixture(scope="module")
def judged(uninterrupted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = Path(shutil.copytree(uninterrupted, tmp_path_factory.mktemp("judged") / "a-run"))
    diagnose([run], overrides=["workers=1"])
    plan([run], overrides=["workers=1"])
    return run


def changed(text: str, name: str, value: Any) -> str:
    record = json.loads(text)
    inner = record
    *path, last = [int(part) if part.isdigit() else part for part in name.split(".")]
    for part in path:
        inner = inner[part]
    if value is GONE:
        del inner[last]
    else:
        inner[last] = value
    return json.dumps(record)


def assert_refused(judged: Path, name: str, content: str | bytes, sentence: str, here) -> None:
    path = judged / name
    whole = path.read_bytes()
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(content)
    done = here("plan" if "planning" in name else "diagnose", str(judged), cwd=judged.parent)
    after = path.read_bytes()
    path.write_bytes(whole)
    assert_user_mistake(done, sentence)
    assert ANEW in done.stderr
    assert after == content


@pytest.mark.parametrize("name", ["diagnostics/paper.json", PLAN])
@pytest.mark.parametrize(
    "content, sentence",
    [
        ("", "it is not JSON"),
        ('{"protocol": "pap', "it is not JSON"),
        ("null", "it holds a NoneType, not a JSON object"),
        ("[1]", "it holds a list, not a JSON object"),
        (DEEP, "it is nested too deeply"),
        ('{"key":' * 200 + "1" + "}" * 200, "it is nested too deeply"),
        (b"\xff\xfe{}", "it is not text"),
        ('{"key": [1]}', "key is a list, expected an object"),
    ],
)
def test_a_record_that_is_none(name: str, content: str | bytes, sentence: str, judged: Path, here) -> None:
    assert_refused(judged, name, content, sentence, here)


DIAGNOSES = [
    ("invariance", None, "invariance is null, expected an object"),
    ("invariance", GONE, "it has no invariance"),
    ("invariance", [1], "invariance is a list, expected an object"),
    ("invariance.rate", "x", "invariance.rate is 'x', expected a finite number"),
    ("invariance.rate", math.nan, "invariance.rate is nan, expected a finite number"),
    ("invariance.rate", GONE, "invariance has no rate"),
    ("invariance.interval", [0.1], "invariance.interval is a list, expected two finite numbers"),
    ("invariance.interval", "ab", "invariance.interval is 'ab', expected two finite numbers"),
    ("invariance.failures", -1, "invariance.failures is -1, expected a whole number from 0 on"),
    ("invariance.by_kind", [1], "invariance.by_kind is a list, expected an object"),
    ("invariance.by_kind.colour", None, "invariance.by_kind.colour is null, expected an object"),
    ("invariance.by_kind.colour.rate", "x", "invariance.by_kind.colour.rate is 'x'"),
    ("invariance.seen", 3, "invariance.seen is 3, expected an object"),
    ("identifiability.thresholds", {}, "identifiability.thresholds is an object, expected a list"),
    ("identifiability.per_seed", [1], "identifiability.per_seed[0] is 1, expected an object"),
    ("model", GONE, "it has no model"),
    ("model", None, "model is null, expected an object"),
    ("model.name", 3, "model.name is 3, expected a text"),
    ("health", None, "health is null, expected an object"),
    ("health.status", GONE, "health has no status"),
    ("seeds", 3, "seeds is 3, expected a list"),
    ("split", [1], "split is a list, expected an object"),
    ("split.name", None, "split.name is null, expected a text"),
]


@pytest.mark.parametrize("name, value, sentence", DIAGNOSES, ids=[sentence for *_, sentence in DIAGNOSES])
def test_a_diagnosis_with_wrong_types(name: str, value: Any, sentence: str, judged: Path, here) -> None:
    text = (judged / "diagnostics/paper.json").read_text()
    assert_refused(judged, "diagnostics/paper.json", changed(text, name, value), sentence, here)


PLANS = [
    ("policies", None, "policies is null, expected an object"),
    ("policies", [1], "policies is a list, expected an object"),
    ("policies.model", None, "policies.model is null, expected an object"),
    ("policies.model.rate", "x", "policies.model.rate is 'x', expected a finite number"),
    ("policies.model.rate", None, "policies.model.rate is null, expected a finite number"),
    ("policies.model.median_steps", [1], "policies.model.median_steps is a list"),
    ("pairs", GONE, "it has no pairs"),
    ("pairs.hash", 3, "pairs.hash is 3, expected a text"),
    ("episodes", GONE, "it has no episodes"),
    ("episodes.model", {}, "episodes.model is an object, expected a list"),
    ("episodes.model", [], "episodes.model is a list, expected one for each pair"),
    ("episodes.model.0", None, "episodes.model[0] is null, expected an object"),
    ("episodes.model.0.success", 1, "episodes.model[0].success is 1, expected true or false"),
    ("episodes.model.0.pair", GONE, "episodes.model[0] has no pair"),
    ("imagination", 3, "imagination is 3, expected an object"),
    ("imagination.failures.model", "x", "imagination.failures.model is 'x'"),
    ("imagination.agreed", None, "imagination.agreed is null, expected a finite number"),
    ("unit", None, "unit is null, expected a text"),
    ("already_solved", "0", "already_solved is '0', expected a whole number from 0 on"),
    ("model.name", None, "model.name is null, expected a text"),
]


@pytest.mark.parametrize("name, value, sentence", PLANS, ids=[sentence for *_, sentence in PLANS])
def test_an_evaluation_with_wrong_types(name: str, value: Any, sentence: str, judged: Path, here) -> None:
    assert_refused(judged, PLAN, changed((judged / PLAN).read_text(), name, value), sentence, here)


def test_whole_records_stand(judged: Path, here) -> None:
    for command in ("diagnose", "plan"):
        done = here(command, str(judged), cwd=judged.parent)
        assert done.returncode == 0, done.stderr
