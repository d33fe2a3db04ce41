"""All four tasks with the same commands: data of the real simulators, every variant, from `collect` to the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from phylatent.commands.collect import collect
from phylatent.commands.inspect import inspect
from phylatent.commands.report import report
from phylatent.composition import compose
from phylatent.composition.layers import available
from phylatent.data.readers import open_episodes
from phylatent.data.stats import fit_statistics, split_episodes
from phylatent.data.windows import Windows
from phylatent.judging.diagnose import diagnose
from phylatent.judging.plan import plan
from phylatent.randomness import Draws
from phylatent.schema import Config
from phylatent.tasks import get_task
from phylatent.training.graph import build, target_periods
from phylatent.training.run import train

TASKS = ("tworooms", "pusht", "reacher", "cube")
Collected = Callable[[str], Path]


def workers(task: str) -> str:
    """MuJoCo's renderers live to the end of their process: in processes of their own they do not add up in this one."""
    return "workers=2" if task in ("reacher", "cube") else "workers=1"


@pytest.fixture(scope="module")
def collected(tworooms_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """The smoke preset's data of a task, collected when it is first asked for."""
    folder = tmp_path_factory.mktemp("tasks")

    @cache
    def data(task: str) -> Path:
        if task == "tworooms":
            return tworooms_data
        return collect(compose(task=task, preset="smoke", overrides=[f"collect.{workers(task)}"]), out=folder / f"{task}.h5")

    return data


def configured(task: str, data: Path, variant: str = "phylatent") -> Config:
    return compose(task=task, preset="smoke", variant=variant, overrides=[f"data={data}", "train.steps=2", "device=cpu"])


@pytest.mark.parametrize("variant", available("variants"))
@pytest.mark.parametrize("task", TASKS)
def test_every_variant_takes_two_training_steps(task: str, variant: str, collected: Collected) -> None:
    config = configured(task, collected(task), variant)
    episodes = open_episodes(collected(task), get_task(task))
    split = split_episodes(len(episodes.lengths), config.split)
    windows = Windows(episodes, split.train, config.clip)
    statistics = fit_statistics(episodes, get_task(task), split.train, periods=target_periods(config))
    graph = build(config, statistics.action, statistics.target).train()
    before = {name: value.clone() for name, value in graph.named_parameters()}
    optimiser = torch.optim.AdamW(graph.parameters(), lr=1e-3)
    order = np.random.default_rng(0).permutation(len(windows))
    for step in range(2):
        chosen = order[step * config.train.batch_size :][: config.train.batch_size].tolist()
        losses = graph(*windows.__getitems__(chosen), draws=Draws(0, step, torch.device("cpu")))
        assert set(losses.terms) == set(config.objectives)
        assert losses.total.isfinite()
        losses.total.backward()
        optimiser.step()
        optimiser.zero_grad()
    moved = {name.split(".")[0] for name, value in graph.named_parameters() if not torch.equal(value, before[name])}
    assert "world_model" in moved


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS[1:])
def test_from_data_to_the_page_with_the_same_commands(task: str, collected: Collected, tmp_path: Path) -> None:
    data = collected(task)
    facts = inspect(configured(task, data), path=data, out=tmp_path / "inspect")
    assert facts["task"] == task
    assert 0 < facts["moving_windows"] <= 1
    run = tmp_path / "run"
    train(configured(task, data, "phylatent-circular"), out=run)
    protocols = sorted(get_task(task).rules)
    diagnose([run], overrides=["branches=4", workers(task)])
    plan([run], overrides=[f"protocol={','.join(protocols)}", "pairs=2", workers(task)])
    for protocol in protocols:
        planned = json.loads((run / "planning" / protocol / "result.json").read_text())
        assert {"model", "random", "nothing"} <= set(planned["policies"])
        assert planned["pairs"]["count"] == 2
    rates = json.loads((run / "diagnostics" / "paper.json").read_text())
    assert rates["counterfactual"]["eligible"] >= 0
    page = report([run], out=tmp_path / "page")
    assert f"on {task}" in page.read_text()
