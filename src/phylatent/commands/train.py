"""`phylatent train`: a variant trained, and its world model exported."""

from __future__ import annotations

import math

from phylatent.commands.request import Keys, configurations, parse, refuse_plain
from phylatent.commands.screen import console, show_path, speaks
from phylatent.errors import UserError

EXAMPLE = "phylatent train task=tworooms preset=laptop variant=phylatent seed=0"


def command(keys: Keys = None) -> None:
    """Train a variant and export its world model. `out=DIR resume=true` continues a run."""
    request = parse(keys or [])
    refuse_plain(request, "train")
    if request.resume:
        if request.config or request.other_choices or request.seeds:
            raise UserError("a resumed run keeps its own configuration: give out=DIR resume=true, and at most device= or data=")
        if request.out is None:
            raise UserError("resume=true needs out=DIR, the directory of the run to continue")
        from phylatent.composition import resumed_config

        configs = [resumed_config(request.out, request.overrides, request.task_file)]
    else:
        configs = configurations(request)

    from phylatent.training.run import train

    for config in configs:
        directory = request.out
        if directory is not None and len(configs) > 1:
            directory = directory / f"seed{config.seed}"
        result = train(config, out=directory, resume=request.resume)
        if speaks():
            seconds = "" if math.isnan(result.seconds) else f" in {result.seconds:.0f} s"
            console.print(f"trained {result.steps} steps{seconds}", highlight=False)
            show_path("model", result.directory / "model")
