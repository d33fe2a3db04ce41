"""Small frames of MuJoCo environments, cheap enough for a CPU."""

from __future__ import annotations

import atexit
from typing import Any


def small_renderer(env: Any, model: Any, edge: int) -> Any:
    """The environment's renderer of `edge` × `edge` frames, without multisampling or shadow maps; made once."""
    import mujoco

    drawn = getattr(env, "_phylatent_renderer", None)
    if drawn is None or drawn[0] is not model or drawn[1].height != edge:
        quality, screen = model.vis.quality, model.vis.global_
        published = quality.offsamples, quality.shadowsize, screen.offwidth, screen.offheight
        quality.offsamples, quality.shadowsize, screen.offwidth, screen.offheight = 0, 0, edge, edge
        drawn = env._phylatent_renderer = model, mujoco.Renderer(model, edge, edge)
        quality.offsamples, quality.shadowsize, screen.offwidth, screen.offheight = published
        # Not sooner, for it would delete textures of whichever other renderer is in use; not later, for its display is gone.
        atexit.register(drawn[1].close)
    return drawn[1]
