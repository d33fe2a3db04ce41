"""The command line. Thin: each command reads its request, calls the room that does the work, and shows what came out."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from phylatent import __version__
from phylatent.errors import PhylatentError, UserError
from phylatent.records import is_disk_full
from phylatent.request import Request, parse, refuse_plain

if TYPE_CHECKING:
    from phylatent.schema import Config

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train JEPA world models whose latent space can be planned in, and measure whether it can.",
    epilog="Settings are key=value: task= preset= variant= seed= data= out= train.steps= … `--debug` shows tracebacks.",
)
Runs = Annotated[list[str] | None, typer.Argument(metavar="RUN... [KEY=VALUE]...", show_default=False)]
Keys = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", show_default=False)]
Sources = Annotated[list[str] | None, typer.Argument(metavar="SOURCE [KEY=VALUE]...", show_default=False)]
console = Console()


def _version(show: bool) -> None:
    if show:
        print(f"phylatent {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: phylatent demo")
def demo(keys: Keys = None) -> None:
    """Collect TwoRooms data, train `lewm` and `phylatent` under one budget, and compare them."""
    from phylatent.demo import run_demo

    request = parse(keys or [])
    refuse_plain(request, "demo")
    run_demo(request, console)


@app.command(epilog="Example: phylatent collect task=tworooms preset=laptop collect.episodes=800")
def collect(keys: Keys = None) -> None:
    """Record episodes of a task's behaviour policy in its simulator. Interrupted, the same command goes on."""
    from phylatent.collection import collect as collect_data

    request = parse(keys or [])
    refuse_plain(request, "collect")
    if len(request.seeds) > 1:
        raise UserError("collect takes one seed; for several data sets call it once for each, with another out=")
    seed = [f"collect.seed={seed}" for seed in request.seeds]
    config = _configs(replace(request, seeds=(), overrides=(*request.overrides, *seed)))[0]
    path = collect_data(config, out=request.out, console=console)
    console.print(f"data: [bold]{escape(str(path))}[/]")


@app.command(epilog="Example: phylatent inspect data/tworooms-laptop.h5 task=tworooms")
def inspect(keys: Keys = None) -> None:
    """Say what a data file holds: size, columns, ranges, NaNs, how actions and objects move; write sample frames."""
    from phylatent.collection import inspect as inspect_file

    request = parse(keys or [])
    if len(request.plain) > 1:
        raise UserError(f"inspect takes one file; found {len(request.plain)}")
    config = _configs(request)[0]
    inspect_file(config, path=Path(request.plain[0]) if request.plain else None, out=request.out, console=console)


@app.command(epilog="Example: phylatent train task=tworooms preset=laptop variant=phylatent seed=0")
def train(keys: Keys = None) -> None:
    """Train a variant and export its world model. `out=DIR resume=true` continues a run."""
    from phylatent.training.run import resumed_config
    from phylatent.training.run import train as train_model

    request = parse(keys or [])
    refuse_plain(request, "train")
    if request.resume:
        if request.config or request.other_choices or request.seeds:
            raise UserError("a resumed run keeps its own configuration: give out=DIR resume=true and nothing else")
        if request.out is None:
            raise UserError("resume=true needs out=DIR, the directory of the run to continue")
        configs = [resumed_config(request.out, request.overrides, request.task_file)]
    else:
        configs = _configs(request)
    for config in configs:
        directory = request.out
        if directory is not None and len(configs) > 1:
            directory = directory / f"seed{config.seed}"
        result = train_model(config, out=directory, resume=request.resume)
        if _speaks():
            shown = "  ".join(f"{name} {value:.4g}" for name, value in result.validation.items())
            console.print(f"validation after {result.steps} steps: {shown}", highlight=False)
            console.print(f"model: [bold]{escape(str(result.directory / 'model'))}[/]")


@app.command(epilog="Example: phylatent diagnose runs/tworooms-laptop-phylatent-seed0")
def diagnose(keys: Runs = None) -> None:
    """Measure the three failure rates of models: invariance, identifiability, counterfactual dynamics."""
    from phylatent.judging import diagnose as diagnose_models

    diagnose_models(**_judging(parse(keys or [])), console=console)


@app.command(epilog="Example: phylatent plan runs/tworooms-laptop-phylatent-seed0 protocol=paper,strict video=4")
def plan(keys: Runs = None) -> None:
    """Plan with models in the real environment, beside random, do-nothing and expert policies."""
    from phylatent.judging import plan as plan_with_models

    plan_with_models(**_judging(parse(keys or [])), console=console)


@app.command(epilog="Example: phylatent report runs/tworooms-laptop-lewm-seed0 runs/tworooms-laptop-phylatent-seed0")
def report(keys: Runs = None) -> None:
    """Write one self-contained page about runs: rates, planning, scatter plots, filmstrips, training curves."""
    from phylatent.judging import report as make_report

    request = parse(keys or [])
    title = [o.partition("=")[2] for o in request.overrides if o.startswith("title=")]
    other = [o for o in request.overrides if not o.startswith("title=")]
    if other or request.choices or request.seeds or request.config or request.resume:
        raise UserError("report takes run directories, out= and title=, nothing else")
    if not request.plain:
        raise UserError("name what to report on: run directories, or those that diagnose and plan wrote")
    make_report(request.plain, out=request.out, title=title[0] if title else None, console=console)


@app.command("import", epilog="Example: phylatent import quentinll/lewm-tworooms task=tworooms data=data/tworoom.h5")
def import_(keys: Sources = None) -> None:
    """Bring in a released LeWM checkpoint (directory, .pt file or Hub id), or unpack published data (.h5.zst, .tar.zst)."""
    from phylatent.exchange import PACKED, import_data, import_model, knows_its_actions

    request = parse(keys or [])
    source = _source(request, "import")
    if source.endswith(PACKED):
        _only(request, "import of packed data", ())
        path = import_data(source, out=request.out, console=console)
        console.print(f"data: [bold]{escape(str(path))}[/]", soft_wrap=True)
        return
    data = _only(request, "import", ("data",), task=True).get("data")
    path = import_model(source, task=request.choices.get("task"), data=data, out=request.out)
    if not knows_its_actions(path):
        console.print("It does not say what its actions are z-scored with; to judge it or plan with it, import it with data=")
    console.print(f"model: [bold]{escape(str(path))}[/]", soft_wrap=True)


@app.command(epilog="Example: phylatent export runs/tworooms-laptop-phylatent-seed0 format=lewm out=exported")
def export(keys: Sources = None) -> None:
    """Write a model as LeWM's config.json and weights.pt, for stable-worldmodel, or as a plain model directory."""
    from phylatent.exchange import export_model

    request = parse(keys or [])
    source = _source(request, "export")
    path = export_model(source, out=request.out, **_only(request, "export", ("format", "keys")))
    console.print(f"model: [bold]{escape(str(path))}[/]", soft_wrap=True)


@app.command(epilog="Example: phylatent doctor   or, for a task of your own: phylatent doctor task=path/to/pendulum.py")
def doctor(keys: Keys = None) -> None:
    """What this machine has, and what to do about what is missing. With task=: whether its declaration does what it says."""
    from phylatent.doctor import run_doctor
    from phylatent.task_check import check_task

    request = parse(keys or [])
    refuse_plain(request, "doctor")
    task = request.choices.get("task")
    if request.choices.keys() - {"task"} or request.overrides or request.seeds or request.config or request.resume:
        raise UserError("doctor takes task= and out= only: it looks at the machine, or at a task, not at a configuration")
    if not (run_doctor(console, request.out) if task is None else check_task(task, console, request.out)):
        raise typer.Exit(1)


def _source(request: Request, command: str) -> str:
    if len(request.plain) != 1:
        raise UserError(f"{command} takes one source; found {len(request.plain)}: phylatent {command} --help shows an example")
    return request.plain[0]


def _only(request: Request, command: str, allowed: tuple[str, ...], *, task: bool = False) -> dict[str, str]:
    """The settings of a command that has few of its own; anything else would do nothing."""
    given = {key: value for key, _, value in (text.partition("=") for text in request.overrides)}
    other = [*(key for key in given if key not in allowed), *(key for key in request.choices if key != "task" or not task)]
    if other or request.seeds or request.config or request.resume:
        takes = ", ".join(f"{key}=" for key in (*(("task",) if task else ()), *allowed, "out"))
        raise UserError(f"{command} takes {takes} and nothing else" + (f"; found {', '.join(other)}" if other else ""))
    return given


def _judging(request: Request) -> dict[str, Any]:
    """What `diagnose` and `plan` take: what to judge, where to write, and settings of the judging."""
    if request.resume or request.config or {"task", "variant"} & set(request.other_choices):
        raise UserError("a model says itself what its task and variant are; name it, and give preset=, data=, out= or settings")
    return {
        "sources": request.plain,
        "overrides": request.overrides,
        "seeds": request.seeds,
        "preset": request.choices.get("preset"),
        "task": request.task_file,
        "out": request.out,
    }


def _configs(request: Request) -> list[Config]:
    from phylatent.composition import compose, load_config

    seeds = [[f"seed={seed}"] for seed in request.seeds] or [[]]
    if request.config is not None:
        return [load_config(request.config, [*request.overrides, *seed], request.task_file) for seed in seeds]
    return [compose(**request.choices, overrides=[*request.overrides, *seed]) for seed in seeds]


def _speaks() -> bool:
    """Of several processes of one training, only the first one talks."""
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


def main() -> None:
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's "stop" is as orderly as Ctrl-C
    speaks = _speaks()
    try:
        app()
    except SystemExit as end:  # typer ends every command with one, also on Ctrl-C
        if end.code != 130:
            raise
        code, sentence = 130, "stopped; nothing that was finished is lost, and the same command goes on"
    except PhylatentError as error:
        if debug:
            raise
        code, sentence = error.exit_code, str(error)
        if error.shared and not speaks:
            sys.exit(0)  # the first process says it; Lightning would kill that one for another's exit code
        speaks = True
    except Exception as error:
        if debug:
            raise
        code = 1
        sentence = f"{type(error).__name__}: {error} (this is not your mistake; --debug shows where it happened)"
        if is_disk_full(error):
            sentence = "no space left on the disk; nothing was overwritten. Free some space and run the same command again"
    if speaks:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(sentence)}", highlight=False, soft_wrap=True)
    sys.exit(code)
