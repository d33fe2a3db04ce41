"""Texts that others wrote, one function for each place that shows them; and what the page may run: its own scripts only.

Names, units, notes and columns come from files, and files come from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from phylatent.texts import printable, shortened

LONGEST, MOST_LINES = 300, 4
"""Characters and lines of a text in a figure; the page's tables and its record hold all of it."""
PLOTLY = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;", "%": "&#37;", "$": "&#36;"}
"""plotly reads tags, `%{…}` in hover texts and, where it finds MathJax, `$…$`; it turns entities back into characters last."""
SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
EMPTY = ""
"""plotly adds an empty style element and fills it by script, which is allowed once its empty text is."""
GUARDED = re.compile(r'getElementById\("([0-9a-f]{64})"\)')


def in_html(value: Any) -> Any:
    """What a template prints, before it is escaped as usual; line breaks stay, for blocks of text."""
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def in_plotly(text: str, width: int = 0) -> str:
    """A text of a plotly figure; with a `width`, lines of at most so many characters."""
    return "<br>".join(_replaced(line, PLOTLY) for line in _lines(text, width))


def in_script(data: Any) -> Markup:
    """JSON inside a script element, which nothing in it can end."""
    return Markup(_replaced(json.dumps(data, allow_nan=False, separators=(",", ":")), SCRIPT))


def in_figure(text: str, width: int = 0) -> str:
    """A text of a matplotlib figure; dollars are dollars, not mathematics."""
    return "\n".join(_replaced(line, {"$": r"\$"}) for line in _lines(text, width))


def pieces(name: str) -> list[str]:
    """A long name breaks where it is joined, so that neighbours do not overlap."""
    return re.split(r" · |(?<=,) ", name)


def _lines(text: str, width: int) -> list[str]:
    whole = shortened(printable(text), min(LONGEST, MOST_LINES * width) if width else LONGEST)
    return [whole[at : at + width] for at in range(0, len(whole), width)] or [""] if width else [whole]


def _replaced(text: str, by: Mapping[str, str]) -> str:
    return text.translate({ord(letter): other for letter, other in by.items()})


def slug(text: str) -> str:
    """Of a text, what may stand in a file's name anywhere."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:100] or "run"


def policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """The page's Content-Security-Policy: these scripts and styles run, no other, and nothing is loaded from anywhere."""
    run, drawn = (" ".join(f"'sha256-{_digest(text)}'" for text in texts) for texts in (scripts, (*styles, EMPTY)))
    return f"default-src 'none'; script-src {run}; style-src {drawn}; img-src data: blob:; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def style_guards(bundle: str) -> list[str]:
    """Ids of the style elements that plotly's bundle adds unless they are there: of maps, which the page does not draw."""
    return list(dict.fromkeys(GUARDED.findall(bundle)))
