"""The terminal: who talks, and how progress is shown. No text is read as markup, and none steers the terminal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from phylatent.texts import printable

console = Console()


def speaks() -> bool:
    """Of several processes of one training, only the first one talks."""
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


def words(text: object, style: str = "") -> Text:
    """A text for a table or a line: its own characters, whatever they are. A style is never part of the text."""
    return Text(printable(text), style)


def line(*parts: str | Text) -> Text:
    """Parts of one line, each as it is."""
    return Text.assemble(*(part if isinstance(part, Text) else words(part) for part in parts))


def titled(title: object, caption: object = None, *, show_header: bool = True) -> Table:
    """An empty table. Its title and caption, its headings and its cells are to be `words`."""
    below = None if caption is None else words(caption, "table.caption")
    return Table(title=words(title, "table.title"), caption=below, show_header=show_header)


def say(text: str) -> None:
    console.print(printable(text), markup=False, emoji=False, soft_wrap=True)


def show_path(what: str, path: object) -> None:
    """`data: runs/…`, the last line of many commands."""
    console.print(line(f"{what}: ", words(path, "bold")), soft_wrap=True)


@contextlib.contextmanager
def bar(title: str, screen: Console, *counts: ProgressColumn, total: int | None = None) -> Iterator[Callable[[int, int], None]]:
    """One line that fills up; yields a function (done, in all)."""
    columns = (_column("task.description"), BarColumn(bar_width=24), *counts, TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task(printable(title), total=total)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextlib.contextmanager
def bars(screen: Console) -> Iterator[Callable[[str, str, int, int], None]]:
    """A line for each title; yields a function (title, what is being done, done, in all)."""
    columns = (_column("task.description"), BarColumn(bar_width=24), _column("task.fields[what]"), TimeRemainingColumn())
    lines: dict[str, TaskID] = {}
    with Progress(*columns, console=screen, transient=True) as progress:

        def tell(title: str, what: str, done: int, total: int) -> None:
            if title not in lines:
                for finished in lines.values():
                    progress.update(finished, visible=False)
                lines[title] = progress.add_task(printable(title), what="")
            progress.update(lines[title], completed=done, total=total, what=printable(what))

        yield tell


def _column(field: str) -> TextColumn:
    """A text of the task as it is, not as markup."""
    return TextColumn(f"{{{field}}}", markup=False)
