"""The terminal: who talks, and how progress is shown."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn

console = Console()


def speaks() -> bool:
    """Of several processes of one training, only the first one talks."""
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


def say(text: str) -> None:
    console.print(escape(text), soft_wrap=True)


def show_path(what: str, path: object) -> None:
    """`data: runs/…`, the last line of many commands."""
    console.print(f"{what}: [bold]{escape(str(path))}[/]", soft_wrap=True)


@contextlib.contextmanager
def bar(title: str, screen: Console, *counts: ProgressColumn, total: int | None = None) -> Iterator[Callable[[int, int], None]]:
    """One line that fills up; yields a function (done, in all)."""
    columns = (TextColumn(title), BarColumn(bar_width=24), *counts, TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        line = progress.add_task(title, total=total)
        yield lambda done, total: progress.update(line, completed=done, total=total)


@contextlib.contextmanager
def bars(screen: Console) -> Iterator[Callable[[str, str, int, int], None]]:
    """A line for each title; yields a function (title, what is being done, done, in all)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[what]}"),
        TimeRemainingColumn(),
    )
    lines: dict[str, TaskID] = {}
    with Progress(*columns, console=screen, transient=True) as progress:

        def tell(title: str, what: str, done: int, total: int) -> None:
            if title not in lines:
                for finished in lines.values():
                    progress.update(finished, visible=False)
                lines[title] = progress.add_task(escape(title), what="")
            progress.update(lines[title], completed=done, total=total, what=what)

        yield tell
