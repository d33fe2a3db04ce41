"""The command line: registers the commands, and turns whatever ends one into an exit code and one sentence."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from phylatent import __version__
from phylatent.commands import collect, demo, diagnose, doctor, exchange, inspect, plan, prepare, report, train
from phylatent.commands.screen import speaks
from phylatent.errors import PhylatentError
from phylatent.files import is_disk_full

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train JEPA world models whose latent space can be planned in, and measure whether it can.",
    epilog="Settings are key=value: task= preset= variant= seed= data= out= train.steps= … `--debug` shows tracebacks.",
)
COMMANDS = {
    "demo": (demo.command, demo.EXAMPLE),
    "collect": (collect.command, collect.EXAMPLE),
    "prepare": (prepare.command, prepare.EXAMPLE),
    "inspect": (inspect.command, inspect.EXAMPLE),
    "train": (train.command, train.EXAMPLE),
    "diagnose": (diagnose.command, diagnose.EXAMPLE),
    "plan": (plan.command, plan.EXAMPLE),
    "report": (report.command, report.EXAMPLE),
    "import": (exchange.import_command, exchange.IMPORT_EXAMPLE),
    "export": (exchange.export_command, exchange.EXPORT_EXAMPLE),
    "doctor": (doctor.command, doctor.EXAMPLE),
}
for name, (command, example) in COMMANDS.items():
    app.command(name, epilog=f"Example: {example}")(command)


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


def main() -> None:
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's "stop" is as orderly as Ctrl-C
    heard = speaks()
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
        if error.shared and not heard:
            sys.exit(0)  # the first process says it; Lightning would kill that one for another's exit code
        heard = True
    except Exception as error:
        if debug:
            raise
        code = 1
        sentence = f"{type(error).__name__}: {error} (this is not your mistake; --debug shows where it happened)"
        if is_disk_full(error):
            sentence = "no space left on the disk; nothing was overwritten. Free some space and run the same command again"
    if heard:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(sentence)}", highlight=False, soft_wrap=True)
    sys.exit(code)
