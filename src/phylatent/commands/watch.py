"""`phylatent watch`: a page about runs while they train."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from phylatent.commands.request import Request, Runs, parse
from phylatent.commands.screen import console as screen
from phylatent.commands.screen import line, say, words
from phylatent.errors import UserError

if TYPE_CHECKING:
    from phylatent.watching.server import Server

EXAMPLE = "phylatent watch runs/tworooms-laptop-phylatent-seed0"
FINISHED = "finished"
LOOK = 1.0


def command(keys: Runs = None) -> None:
    """Show runs while they train, on a page that only this machine can open: curves, collapse, shares, what they imagine."""
    request = parse(keys or [])
    films, rest = _flag(request, "films", otherwise=True)
    opened, rest = _flag(rest, "open", otherwise=False)
    port, until = _port_and_end(rest)
    if not request.plain:
        raise UserError("name what to watch: the directories that train writes to")
    watch(request.plain, port=port, films=films, task=request.task_file, open_browser=opened, until_finished=until)


def watch(
    sources: Sequence[str | Path],
    *,
    port: int = 0,
    films: bool = True,
    task: str | None = None,
    open_browser: bool = False,
    until_finished: bool = False,
) -> None:
    """Serve a page about runs on 127.0.0.1 until Ctrl-C; `until_finished` ends it with the last training.

    `port` 0 takes a free one. `films` draws what the newest weights imagine. `task` is where the file that declares their task
    is now, if it is a user's own and was moved.
    """
    from phylatent.watching.live import Live
    from phylatent.watching.server import Server

    live = Live(sources, films=films, task=task)
    with Server(live, port) as server:
        live.start()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
        thread.start()
        try:
            _tell(server, open_browser)
            while thread.is_alive() and not (until_finished and live.finished()):
                thread.join(LOOK)
            say("every run is finished")
        except KeyboardInterrupt:
            say("stopped watching; a training that goes on is not touched by it")
        finally:
            server.shutdown()
            live.stop()


def _tell(server: Server, open_browser: bool) -> None:
    screen.print(line("watch: ", words(server.address, "bold")), soft_wrap=True)
    say("open that address in a browser on this machine; Ctrl-C ends it")
    if open_browser:
        webbrowser.open(server.address)


def _flag(request: Request, key: str, *, otherwise: bool) -> tuple[bool, Request]:
    given = any(text.startswith(f"{key}=") for text in request.overrides)
    value, rest = request.flag(key)
    return (value if given else otherwise), rest


def _port_and_end(request: Request) -> tuple[int, bool]:
    given = {key: value for key, _, value in (text.partition("=") for text in request.overrides)}
    other = [*(key for key in given if key not in ("port", "until")), *request.other_choices]
    if other or request.out or request.seeds or request.config or request.resume:
        found = f"; found {', '.join(other)}" if other else ""
        raise UserError(f"watch takes runs, port=, open=, films=, until= and a task= of one's own, nothing else{found}")
    text = given.get("port", "0")
    if not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise UserError(f"port={text}: expected a whole number up to 65535; 0 takes a free one")
    if given.get("until", FINISHED) != FINISHED:
        raise UserError(f"until={given['until']}: expected finished, or nothing: then Ctrl-C ends it")
    return int(text), "until" in given
