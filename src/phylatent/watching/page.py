"""The page itself: the same for every run, filled by its script from what the server says."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from phylatent import reporting
from phylatent.extras import need
from phylatent.reporting.harmless import policy, style_guards

OWN = Path(__file__).parent / "templates"
LOOK = Path(reporting.__file__).parent / "templates"
"""The report's: what is watched looks like what is reported."""


@cache
def page() -> tuple[str, str]:
    """(the page, its Content-Security-Policy): its own scripts and styles only, and it asks nobody but its own server."""
    need("report", "watch", "plotly")

    from plotly.offline import get_plotlyjs

    plotly, theme, script = get_plotlyjs(), _text(LOOK / "theme.js"), _text(OWN / "watch.js")
    style = _text(LOOK / "style.css") + _text(OWN / "watch.css")
    allowed = policy((theme, plotly, script), (style,)) + "; connect-src 'self'; frame-ancestors 'none'"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    html = environment.from_string(_text(OWN / "watch.html")).render(
        theme=Markup(theme),
        style=Markup(style),
        plotly=Markup(plotly),
        script=Markup(script),
        style_guards=style_guards(plotly),
    )
    return html, allowed


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
