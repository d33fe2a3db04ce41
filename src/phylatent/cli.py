"""The command line: registers the commands, and turns whatever ends one into an exit code and one sentence."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from phylatent import __version__
from phylatent.commands import (
    catalogue,
    collect,
    completion,
    decode,
    demo,
    diagnose,
    doctor,
    exchange,
    inspect,
    plan,
    prepare,
    report,
    settings,
    train,
    watch,
)
from phylatent.commands.screen import speaks
from phylatent.errors import PhylatentError, of_the_system
from phylatent.files import is_disk_full
from phylatent.own_files import blamed
from phylatent.texts import printable
from phylatent.trust import forget_named

HELP = {"help_option_names": ["--help", "-h"]}
app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Train JEPA world models whose latent space can be planned in, and measure whether it can.",
    context_settings=HELP,
    epilog="Settings are key=value: task= preset= variant= seed= data= out= train.steps= … `phylatent settings` shows them "
    "all, `phylatent list` what there is to choose from; `--debug` shows tracebacks.",
)
COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "demo": (demo.command, demo.EXAMPLE),
    "collect": (collect.command, collect.EXAMPLE),
    "prepare": (prepare.command, prepare.EXAMPLE),
    "inspect": (inspect.command, inspect.EXAMPLE),
    "train": (train.command, train.EXAMPLE),
    "watch": (watch.command, watch.EXAMPLE),
    "diagnose": (diagnose.command, diagnose.EXAMPLE),
    "plan": (plan.command, plan.EXAMPLE),
    "decode": (decode.command, decode.EXAMPLE),
    "report": (report.command, report.EXAMPLE),
    "import": (exchange.import_command, exchange.IMPORT_EXAMPLE),
    "export": (exchange.export_command, exchange.EXPORT_EXAMPLE),
    "list": (catalogue.command, catalogue.EXAMPLE),
    "settings": (settings.command, settings.EXAMPLE),
    "config": (settings.config_command, settings.CONFIG_EXAMPLE),
    "doctor": (doctor.command, doctor.EXAMPLE),
    "completion": (completion.command, completion.EXAMPLE),
}
CONFIGURED = ("demo", "collect", "prepare", "train", "diagnose", "plan")
ALL_KEYS = "   `phylatent settings` lists every key with its meaning."
for name, (command, example) in COMMANDS.items():
    app.command(name, epilog=f"Example: {example}{ALL_KEYS if name in CONFIGURED else ''}", context_settings=HELP)(command)
app.command("complete", hidden=True, context_settings=HELP | {"ignore_unknown_options": True})(completion.complete)


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
    forget_named()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may not have every letter of a name
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's "stop" is as orderly as Ctrl-C
    heard = speaks()
    try:
        code = app(standalone_mode=False) or 0
        if code != 130:  # Ctrl-C
            sys.exit(code)
        sentence = "stopped; nothing that was finished is lost, and the same command goes on"
    except PhylatentError as error:
        if debug:
            raise
        code, sentence = error.exit_code, str(error)
        if error.shared and not heard:
            sys.exit(0)  # the first process says it; Lightning would kill that one for another's exit code
        heard = True
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            sys.exit(2)
        if debug:
            raise
        code, sentence = (2, _usage(error)) if hasattr(error, "format_message") else (1, _sentence(error))
    if heard:
        said = Text.assemble(("error:", "bold red"), f" {printable(sentence)}")
        Console(stderr=True).print(said, highlight=False, soft_wrap=True)
    sys.exit(code)


def _usage(error: Any) -> str:
    """What typer says of arguments that it cannot use; its exceptions have no public names."""
    command = error.ctx.command_path if getattr(error, "ctx", None) else "phylatent"
    return f"{error.format_message().rstrip('.')}; {command} --help shows how it is called"


def _sentence(error: Exception) -> str:
    """For what nobody foresaw: the system's word where it is the system's, and else an apology."""
    if is_disk_full(error):
        return "no space left on the disk; nothing was overwritten. Free some space and run the same command again"
    unforeseen = f"{type(error).__name__}: {error} (this is not your mistake; --debug shows where it happened)"
    return of_the_system(error) or blamed(error) or unforeseen
