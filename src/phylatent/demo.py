"""The main job in one command: collect TwoRooms, train `lewm` and `phylatent` under one budget, compare them.

A stage that is done is not done again when the command is run again.
"""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from phylatent.collection import collect
from phylatent.composition import compose, to_dict
from phylatent.errors import UserError
from phylatent.records import home, provenance, write_json
from phylatent.request import Request
from phylatent.schema import Config
from phylatent.training.directory import CONFIG, default_directory
from phylatent.training.run import TrainResult, resumed_config, train, with_data_path

VARIANTS = ("lewm", "phylatent")
MEANING = {
    "loss": "held-out weighted sum of the method's own terms (not comparable between methods)",
    "pred": "held-out prediction loss",
    "sigreg": "held-out distance of the latent cloud from a Gaussian",
    "effective_rank": "how many directions the latents use; near 1 is collapse",
    "r2": "linear read-out of the agent's position on held-out episodes; 1 is perfect",
}


def run_demo(request: Request, console: Console) -> Path:
    """Run what is missing, print the comparison, and return the record's path."""
    if (
        request.choices.get("task", "tworooms") != "tworooms"
        or "variant" in request.choices
        or request.resume
        or request.config
    ):
        raise UserError("demo runs lewm and phylatent on tworooms; it takes preset=, seed=, out= and settings, nothing else")
    if len(request.seeds) > 1:
        raise UserError("demo takes one seed")
    overrides = [*request.overrides, *(f"seed={seed}" for seed in request.seeds)]
    preset = request.choices.get("preset", "laptop")
    configs = {variant: compose("tworooms", preset, variant, overrides) for variant in VARIANTS}
    stages = 1 + len(VARIANTS)

    started = time.perf_counter()
    console.print(f"[bold]1/{stages}[/] collect")
    collect(configs["lewm"], console=console)
    results = {}
    for index, (variant, config) in enumerate(configs.items(), start=2):
        console.print(f"[bold]{index}/{stages}[/] train {variant}")
        results[variant] = _train_or_go_on(config)
        console.print(f"{variant}: {results[variant].steps} steps in {results[variant].seconds:.0f} s")
    seconds = round(time.perf_counter() - started, 1)

    _show(results, console)
    record = (request.out or home() / "runs" / f"demo-{preset}") / "comparison.json"
    write_json(
        record,
        {
            "seconds": seconds,
            "results": {
                name: {"validation": r.validation, "seconds": r.seconds, "steps": r.steps} for name, r in results.items()
            },
            "config": {name: to_dict(config) for name, config in configs.items()},
            "provenance": provenance(),
        },
    )
    console.print(f"comparison: [bold]{escape(str(record))}[/]")
    return record


def _train_or_go_on(config: Config) -> TrainResult:
    directory = default_directory(config)
    if (directory / CONFIG).exists():
        before = resumed_config(directory, [])
        if before != with_data_path(config):
            raise UserError(f"{directory} holds a run with other settings; delete it, or set PHYLATENT_HOME to another place")
        return train(before, out=directory, resume=True)
    return train(config, out=directory)


def _show(results: dict[str, TrainResult], console: Console) -> None:
    table = Table(title="held-out comparison", caption="The full comparison, with planning, comes with the report page.")
    table.add_column("")
    for variant in results:
        table.add_column(variant, justify="right")
    table.add_column("what it says")
    names = list(dict.fromkeys(name for result in results.values() for name in result.validation))
    for name in names:
        cells = [result.validation.get(name) for result in results.values()]
        if None not in cells:
            meaning = MEANING.get(name.partition("/")[0], "")
            table.add_row(name, *(f"{cell:.4f}" for cell in cells), meaning)
    console.print(table)
