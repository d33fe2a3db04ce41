"""`phylatent list`: what there is to choose from, a line each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import resources
from itertools import takewhile
from typing import Annotated, Any

import typer
from rich.table import Table

from phylatent.commands.screen import console, words
from phylatent.errors import UserError, unknown

EXAMPLE = "phylatent list variants"
Kind = Annotated[str | None, typer.Argument(metavar="[KIND]", show_default=False)]


def command(kind: Kind = None) -> None:
    """What there is to choose from: tasks, variants, presets, objectives, solvers, encoders, diagnostics."""
    if kind is not None and kind not in KINDS:
        raise UserError(f"{unknown('kind', kind, KINDS)}; phylatent list alone shows all kinds")
    for one in KINDS if kind is None else (kind,):
        table = Table(title=words(f"{one} ({CHOSEN[one]})"), title_justify="left", box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for name, line in entries(one).items():
            table.add_row(words(name, "bold"), words(line))
        console.print(table)
        console.print()


def entries(kind: str) -> dict[str, str]:
    """Name → one line about it, of one of `KINDS`: what is shipped, then what installed packages bring."""
    from phylatent.own_files import installed, origin

    group = installed(f"phylatent.{kind}", kind.removesuffix("s"))
    return KINDS[kind]() | {name: origin(point) for name, point in group.items()}


def _tasks() -> dict[str, str]:
    from phylatent.tasks import all_tasks

    # A task is declared in a module of its own name, whose first words say what it is.
    return {name: _of_module(f"phylatent.tasks.{name}", after=": ") for name in all_tasks()}


def _objectives() -> dict[str, str]:
    from phylatent.objectives import OBJECTIVES, SHIPPED

    return {name: _first(OBJECTIVES[name].__doc__) or _of_module(OBJECTIVES[name].__module__) for name in SHIPPED}


def _solvers() -> dict[str, str]:
    from phylatent.planning.solvers import SHIPPED, SOLVERS

    return {name: _of_module(SOLVERS[name].solve.__module__) for name in SHIPPED}


def _encoders() -> dict[str, str]:
    from phylatent.models.encoders import ENCODERS, SHIPPED

    return {name: _first(ENCODERS[name].__doc__) for name in SHIPPED}


def _diagnostics() -> dict[str, str]:
    from phylatent.diagnostics import DIAGNOSTICS

    return {name: f"{one.title}: {one.failure}" for name, one in DIAGNOSTICS.items()}


def _files(kind: str) -> Callable[[], dict[str, str]]:
    """Of presets and variants: the comment that each file begins with."""

    def read() -> dict[str, str]:
        from phylatent.composition.layers import available

        folder = resources.files("phylatent") / kind
        return {name: _comment((folder / f"{name}.yaml").read_text()) for name in available(kind)}

    return read


def _comment(text: str) -> str:
    lines = takewhile(lambda line: line.startswith("#"), text.split("\n"))
    return _first(" ".join(line.removeprefix("#").strip() for line in lines))


def _of_module(name: str, after: str = "") -> str:
    said = _first(sys.modules[name].__doc__)
    return said.partition(after)[2] if after and after in said else said


def _first(doc: str | None) -> str:
    """The first sentence of a docstring, without its full stop."""
    return " ".join((doc or "").strip().split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "tasks": _tasks,
    "variants": _files("variants"),
    "presets": _files("presets"),
    "objectives": _objectives,
    "solvers": _solvers,
    "encoders": _encoders,
    "diagnostics": _diagnostics,
}
CHOSEN = {
    "tasks": "task=",
    "variants": "variant=",
    "presets": "preset=",
    "objectives": "objectives=[…]",
    "solvers": "plan.solver=",
    "encoders": "model.encoder=",
    "diagnostics": "diagnose.diagnostics=[…]",
}
"""The key that takes each of them."""
