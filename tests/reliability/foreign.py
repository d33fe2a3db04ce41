"""Runs, models and records of someone else that name a Python file: it must not run unless the command line names it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from cases import Case
from material import COLLECT, EVIL_YAML
from subjects import AGAIN, DATA, DIAGNOSE, EXPORT, IMPORT, IMPORT_OURS, LINES, PLAN, PLAN_AGAIN, REPORT, RESUME, TRAIN

EVIL_TEXTS = (
    "evil.py",
    "./evil.py",
    "{here}/evil.py",
    "../here/evil.py",
    "~/../here/evil.py",
    "evil",
    "phylatent.own_files.x_6576696c2e7079",
)
CODE_KEYS: Mapping[str, tuple[tuple[list[str], ...], LINES, tuple[str, ...]]] = {
    "done/config.yaml": (
        (["task_file"], ["model", "encoder"], ["plan", "solver"], ["objectives"], ["task"], ["variant"], ["preset"], ["data"]),
        (DIAGNOSE, PLAN, REPORT, EXPORT, AGAIN, PLAN_AGAIN),
        ("done", *DATA),
    ),
    "half/config.yaml": (
        (["task_file"], ["model", "encoder"], ["plan", "solver"], ["objectives"], ["task"], ["variant"], ["preset"], ["data"]),
        (RESUME, ("train", "config=half/config.yaml", "data=data.h5", "out=new")),
        ("half", *DATA),
    ),
    "model/config.json": (
        (
            *(["task"], ["variant"], ["encoder"], ["size", "encoder"], ["model", "encoder"], ["provenance", "config", "task"]),
            *(
                ["provenance", "config", "task_file"],
                ["provenance", "config", "plan", "solver"],
                ["provenance", "config", "preset"],
            ),
            *(
                ["provenance", "config", "variant"],
                ["provenance", "config", "model", "encoder"],
                ["provenance", "config", "objectives"],
            ),
        ),
        (
            ("export", "model", "out=new"),
            ("diagnose", "model", "data=data.h5", "workers=1", "out=new"),
            ("plan", "model", "data=data.h5", "workers=1", "out=new"),
        ),
        ("model", *DATA),
    ),
    "theirs/config.json": (
        (["_target_"], ["encoder", "_target_"], ["predictor", "_target_"], ["task"]),
        (IMPORT, ("import", "theirs", "out=new")),
        ("theirs", *DATA),
    ),
    "lewm/phylatent.json": (
        (["task"], ["config", "task"], ["config", "task_file"], ["variant"]),
        (IMPORT_OURS,),
        ("lewm", *DATA),
    ),
    "done/diagnostics/paper.json": (
        (["model", "task"], ["model", "variant"], ["data", "name"]),
        (REPORT, AGAIN),
        ("done", *DATA),
    ),
    "done/result.json": (
        (["provenance", "config", "task_file"], ["directory"]),
        (REPORT, ("train", "out=done", "resume=true")),
        ("done", *DATA),
    ),
    "begun.h5.parts/plan.json": ((["task"], ["env_id"]), (("collect", *COLLECT, "out=begun.h5"),), ("begun.h5.parts",)),
    "size.yaml": (
        (["extends"], ["task_file"], ["plan"], ["model"]),
        ((*TRAIN[:1], *TRAIN[2:], "preset=size.yaml"),),
        ("size.yaml", *DATA),
    ),
}
"""Files of others that name tasks, encoders, objectives or solvers: the nodes that can hold a path, and who reads them."""


def make(number: str) -> Case:
    """The case of that number."""
    rng = Random(f"foreign {number}")
    file = rng.choice(list(CODE_KEYS))
    nodes, lines, needs = CODE_KEYS[file]
    node, text = rng.choice(nodes), rng.choice((*EVIL_TEXTS, EVIL_YAML))
    value = [["pred", "sigreg", text], text][rng.random() < 0.3] if node[-1] == "objectives" else text
    change = {"file": file, "do": "set", "node": node, "value": value, "force": True}
    line = rng.choice(lines)
    if rng.random() < 0.3 and line[0] in ("diagnose", "plan"):
        line = tuple(argument for argument in line if argument != "data=data.h5")
    return Case("foreign code", line, (*needs, "evil.py"), (change,))
