"""The Hub, asked once: its own client asks five times, for half a minute, before it believes that nobody answers."""

from __future__ import annotations

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

PATIENCE = 10.0
"""Seconds for the one question."""


def answers(source: str) -> bool:
    """Whether the Hub says anything about a model, be it that there is none. If not, only earlier downloads are there."""
    try:
        HfApi().model_info(source, timeout=PATIENCE)
    except HfHubHTTPError:
        return True
    except Exception:  # whichever library it asks through, and however that says that there is no way
        return False
    return True
