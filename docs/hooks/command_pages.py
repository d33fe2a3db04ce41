"""The page of commands, from the command line itself."""

from __future__ import annotations

import inspect
from typing import Any


def commands() -> str:
    """A section for every command, in the order of `phylatent --help`."""
    import typer.main

    from phylatent.cli import app

    group: Any = typer.main.get_command(app)
    return "\n\n".join(_section(name, command) for name, command in group.commands.items() if not command.hidden)


def _section(name: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join([f"phylatent {name}", *(argument.metavar or argument.name.upper() for argument in arguments)])
    parts = [f"## {name}", f"```text\n{usage}\n```", inspect.cleandoc(command.help or "")]
    if options:
        parts.append("\n".join(f"- `{', '.join(option.opts)}`: {option.help}" for option in options))
    if command.epilog:
        said, _, example = command.epilog.partition(": ")
        parts.append(f"{said}: `{example}`" if example else command.epilog)
    return "\n\n".join(parts)
