"""All runs of a page together: what their files say, made into what the page's script draws."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from phylatent.errors import UserError
from phylatent.texts import printable, shortened
from phylatent.watching.figures import colour_of, figures
from phylatent.watching.films import Films
from phylatent.watching.state import FINISHED, Snapshot, Watched, check_watchable

HELD = 1.0
"""Seconds that an answer holds: several windows with the page cost no more than one."""
NAME = 72


class Live:
    """The runs that are watched. Its answers are JSON texts, made again only once they are old."""

    def __init__(self, sources: Sequence[str | Path], *, films: bool = True, task: str | None = None) -> None:
        places = [Path(source).expanduser() for source in sources]
        for place in places:
            check_watchable(place)
        if len({place.resolve() for place in places}) < len(places):
            raise UserError("the same run is named twice; each is shown once")
        self.runs = [Watched(place, name) for place, name in zip(places, _names(places), strict=True)]
        self.films = Films(self.runs, task) if films else None
        self.lock = threading.Lock()
        self.made: tuple[float, str] = (-math.inf, "")

    def start(self) -> None:
        if self.films is not None:
            self.films.start()

    def stop(self) -> None:
        if self.films is not None and self.films.is_alive():
            self.films.stop()

    def state(self) -> str:
        """Where every run is, and its curves."""
        with self.lock:
            if time.monotonic() - self.made[0] >= HELD:
                self.made = (time.monotonic(), _json(self._state()))
            return self.made[1]

    def pictures(self) -> str:
        """The newest film of every run that has one, by its place."""
        return _json({str(at): asdict(film) for at, film in (self.films.shown if self.films else {}).copy().items()})

    def finished(self) -> bool:
        return all(run.snapshot().status == FINISHED for run in self.runs)

    def _state(self) -> dict[str, Any]:
        snapshots = [run.snapshot() for run in self.runs]
        shown = {} if self.films is None else self.films.shown
        drawn = figures(snapshots)
        return {
            "runs": [_told(snapshot, colour_of(at)) for at, snapshot in enumerate(snapshots)],
            "figures": drawn,
            "drawn": sha256(_json(drawn).encode()).hexdigest(),
            "films": None if self.films is None else {str(at): film.version for at, film in shown.copy().items()},
        }


def _told(snapshot: Snapshot, colour: str) -> dict[str, Any]:
    return {
        "name": snapshot.name,
        "colour": colour,
        "status": snapshot.status,
        "sentence": printable(snapshot.sentence),
        "facts": [[name, shortened(printable(value), NAME)] for name, value in snapshot.facts],
        "step": snapshot.step,
        "total": snapshot.total,
        **{name: round(value, 1) for name, value in snapshot.figures.items()},
    }


def _names(places: Sequence[Path]) -> list[str]:
    """Directory names; whole paths where those are alike."""
    short = [place.resolve().name for place in places]
    chosen = short if len(set(short)) == len(short) else [str(place) for place in places]
    return [shortened(printable(name), NAME) for name in chosen]


def _json(value: Any) -> str:
    """JSON has no NaN; there is none by now."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
