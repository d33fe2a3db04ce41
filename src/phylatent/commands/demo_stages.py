"""The stages of `phylatent demo`: collect TwoRooms, train `lewm` and `phylatent-plus` with one budget, judge both, show a page.

A stage that is done is not done again when the command is run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from phylatent.commands.collect import collect
from phylatent.commands.report import report
from phylatent.commands.request import Request
from phylatent.commands.screen import bars, say
from phylatent.commands.tables import percent
from phylatent.composition import compose, resumed_config, to_dict
from phylatent.diagnostics import DIAGNOSTICS
from phylatent.errors import UserError
from phylatent.extras import need
from phylatent.judging.diagnose import diagnose
from phylatent.judging.plan import plan
from phylatent.machine import peak_memory_gb
from phylatent.planning.solvers import SOLVERS
from phylatent.reading import check_shape, read_json
from phylatent.reading.shapes import REAL
from phylatent.records import provenance, rated_sections, split_of, split_words, write_json
from phylatent.runs import CONFIG, default_directory, home
from phylatent.schema import Config, DiagnoseConfig, PlanConfig
from phylatent.training.result import TrainResult
from phylatent.training.run import train, with_data_path

TASK = "tworooms"
VARIANTS = ("lewm", "phylatent-plus")
NOT_REAL = "a quick look: too little data and training to compare anything. `phylatent demo` is the real comparison"
SHARES = {"collect": 0.15, "train lewm": 0.22, "train phylatent-plus": 0.40, "diagnose": 0.07, "plan": 0.14, "report": 0.02}
"""How a whole demo spends its time, roughly: for the time left."""
OTHERS = (
    "TwoRooms is the easiest task, and an encoder that sees plans in it with either method. On PushT, after 20 minutes of one "
    "core, phylatent-plus solves 72 % and lewm 22 %; docs/results.md has all four tasks"
)
Done = TypeVar("Done")


@dataclass
class Stages:
    """One line per stage, with what is left."""

    console: Console
    seconds: dict[str, float] = field(default_factory=dict)

    def __call__(self, name: str, work: Callable[[], Done]) -> Done:
        number = f"[bold]{len(self.seconds) + 1}/{len(SHARES)}[/]"
        self.console.print(f"{number} {name}{self._left()}", highlight=False)
        started = time.perf_counter()
        done = work()
        self.seconds[name] = round(time.perf_counter() - started, 1)
        return done

    def _left(self) -> str:
        """Extrapolated from the stages that were really run just now; one that was found done says nothing of the machine."""
        run = {name: spent for name, spent in self.seconds.items() if spent > 5}
        if not run:
            return ""
        rate = sum(run.values()) / sum(SHARES[name] for name in run)
        left = rate * sum(share for name, share in SHARES.items() if name not in self.seconds)
        return f" · about {left / 60:.0f} min left in all" if left >= 90 else f" · about {left:.0f} s left in all"


def run_demo(request: Request, console: Console) -> Path:
    """Run what is missing, print the comparison, and return the report's path."""
    for extra in ("envs", "report"):  # better told before the hour than after it
        need(extra, "demo")
    quick, request = _quick(request)
    preset = request.choices.get("preset", "quick" if quick else "demo")
    overrides = [*request.overrides, *(f"seed={seed}" for seed in request.seeds)]
    trained = [text for text in overrides if text.partition(".")[0] not in ("diagnose", "plan", *SOLVERS)]
    configs = {variant: compose(TASK, preset, variant, trained) for variant in VARIANTS}
    judging = [*_of("diagnose", overrides), *(text for text in _of("plan", overrides) if text.partition(".")[1])]
    _check_judging(compose(TASK, preset, "lewm", judging))
    out = request.out or home() / "runs" / f"demo-{preset}"
    earlier = _earlier(out / "demo.json")  # what is wrong with it is better told before the hour than after it
    if quick:
        console.print(f"[yellow]{NOT_REAL}[/]", soft_wrap=True)

    stages = Stages(console)
    stages("collect", lambda: collect(configs["lewm"], screen=console))
    results = {}
    for variant, config in configs.items():
        results[variant] = stages(f"train {variant}", partial(_train_or_go_on, config))
    runs = [default_directory(config) for config in configs.values()]
    given: dict[str, Any] = {"preset": preset, "quick": quick, "out": out, "say": say}
    with bars(console) as progress:
        rates = stages("diagnose", lambda: diagnose(runs, overrides=_of("diagnose", judging), progress=progress, **given))
        success = stages("plan", lambda: plan(runs, overrides=_of("plan", judging), progress=progress, **given))
    page = stages("report", lambda: report([out / run.name for run in runs], out=out))

    _show(configs["lewm"].spec.title, results, rates, [record["paper"] for record in success], console)
    seconds = earlier | {name: spent for name, spent in stages.seconds.items() if spent > 1}
    write_json(
        out / "demo.json",
        {
            "seconds": seconds,
            "peak_memory_gb": {
                "this process": round(peak_memory_gb(), 2),
                "largest child": round(peak_memory_gb(child=True), 2),
            },
            "quick": quick,
            "config": {name: to_dict(config) for name, config in configs.items()},
            "provenance": provenance(),
        },
    )
    spent = ", ".join(f"{name} {value:.0f} s" for name, value in stages.seconds.items())
    console.print(f"{sum(stages.seconds.values()) / 60:.1f} min: {spent}", highlight=False, soft_wrap=True)
    if quick:
        console.print(f"[yellow]{NOT_REAL}[/]", soft_wrap=True)
    console.print(f"report: [bold]{escape(str(page))}[/]", soft_wrap=True)
    return page


def _quick(request: Request) -> tuple[bool, Request]:
    if request.choices.get("task", TASK) != TASK or "variant" in request.choices or request.resume or request.config:
        raise UserError(
            f"demo runs {' and '.join(VARIANTS)} on {TASK}; it takes preset=, quick=, seed=, out= and settings only"
        )
    if len(request.seeds) > 1:
        raise UserError("demo takes one seed")
    return request.flag("quick")


def _check_judging(config: Config) -> None:
    """The table at the end wants the paper's protocols: better told before the hour than after it."""
    wanted = "paper" in config.plan.protocol and "model" in config.plan.policy and config.diagnose.protocol == "paper"
    if not wanted or config.diagnose.every is not None:
        raise UserError("demo plans and diagnoses by the paper's protocol; for others call diagnose and plan on its runs")
    if config.diagnose.split != config.plan.split:
        raise UserError("demo plans and diagnoses on the same episodes: give diagnose.split and plan.split the same value")


def _of(section: str, overrides: list[str]) -> list[str]:
    """What is told to `diagnose` or `plan`; a solver's own settings belong to `plan`."""
    sections = (section, *(SOLVERS if section == "plan" else ()))
    return [text for text in overrides if text.partition(".")[0] in sections or text.startswith(("data=", "device="))]


def _earlier(path: Path) -> dict[str, float]:
    """What stages took that were done before: a second run finds them done."""
    if not path.is_file():
        return {}
    again = "delete it: it only says how long the demo took"
    found = read_json(path, again=again)
    check_shape(path, found, {"seconds": {"*": REAL}}, again=again)
    return found["seconds"]


def _train_or_go_on(config: Config) -> TrainResult:
    directory = default_directory(config)
    if (directory / CONFIG).exists():
        before = resumed_config(directory, [])
        if _training(before) != _training(with_data_path(config)):
            raise UserError(f"{directory} holds a run with other settings; delete it, or set PHYLATENT_HOME to another place")
        return train(before, out=directory, resume=True)
    return train(config, out=directory)


def _training(config: Config) -> Config:
    """Without the settings of what judges it afterwards."""
    return replace(config, diagnose=DiagnoseConfig(), plan=PlanConfig(), solver=None)


def _show(task: str, results: Mapping[str, TrainResult], rates: list[Any], success: list[Any], console: Console) -> None:
    judged_on = split_words(split_of(rates[0]))
    table = Table(title=f"{task}, split: {judged_on}; one training seed: failure rates and planning success")
    table.add_column("", no_wrap=True)
    for variant in results:
        table.add_column(variant, justify="right", no_wrap=True)
    table.add_column("what it says")
    for name in rated_sections(rates[0]):
        cells = [percent(record[name]["rate"], record[name]["interval"]) for record in rates]
        table.add_row(f"{name} ↓", *cells, DIAGNOSTICS[name].failure)
    found = [record["policies"]["model"] for record in success]
    table.add_row(
        f"success of {found[0]['count']} ↑",
        *(percent(one["rate"], one["interval"]) for one in found),
        "goals 25 steps ahead reached within 50",
    )
    floors = {name: one["rate"] for name, one in success[0]["policies"].items() if name != "model"}
    console.print(table)
    shown = ", ".join(f"{name} {percent(rate)}" for name, rate in floors.items())
    console.print(f"for comparison: {shown}", highlight=False, soft_wrap=True)
    console.print(OTHERS, highlight=False, soft_wrap=True)
