"""Small frames of MuJoCo environments, cheap enough for a CPU."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

DETAIL = 0.005
"""What is smaller in a mesh is not drawn, m: half a pixel or less of a small frame, and nine in ten triangles of an arm."""


def small_renderer(env: Any, model: Any, edge: int) -> Any:
    """The environment's renderer of `edge` × `edge` frames, without multisampling, shadow maps or fine detail; made once."""
    import mujoco

    drawn = getattr(env, "_phylatent_renderer", None)
    if drawn is None or drawn[0] is not model or drawn[1].height != edge:
        with _cheap(model, edge), _coarse(model):
            drawn = env._phylatent_renderer = model, mujoco.Renderer(model, edge, edge)
        # Not sooner, for it would delete textures of whichever other renderer is in use; not later, for its display is gone.
        atexit.register(drawn[1].close)
    return drawn[1]


@contextlib.contextmanager
def _cheap(model: Any, edge: int) -> Iterator[None]:
    quality, screen = model.vis.quality, model.vis.global_
    published = quality.offsamples, quality.shadowsize, screen.offwidth, screen.offheight
    quality.offsamples, quality.shadowsize, screen.offwidth, screen.offheight = 0, 0, edge, edge
    yield
    quality.offsamples, quality.shadowsize, screen.offwidth, screen.offheight = published


@contextlib.contextmanager
def _coarse(model: Any) -> Iterator[None]:
    """Fewer triangles while a renderer takes its copy of them; physics never looks at triangles, only at vertices and hulls."""
    published = model.mesh_face.copy(), model.mesh_facenormal.copy(), model.mesh_facenum.copy()
    for mesh in range(model.nmesh):
        vertices = slice(model.mesh_vertadr[mesh], model.mesh_vertadr[mesh] + model.mesh_vertnum[mesh])
        first, count = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
        faces = model.mesh_face[first : first + count]
        kept, coarse = _coarse_once(model.mesh_vert[vertices], faces)
        model.mesh_facenormal[first : first + len(kept)] = model.mesh_facenormal[first : first + count][kept]
        model.mesh_face[first : first + len(kept)] = coarse
        model.mesh_facenum[mesh] = len(kept)
    yield
    model.mesh_face[:], model.mesh_facenormal[:], model.mesh_facenum[:] = published


_COARSE: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}


def _coarse_once(vertices_V3: np.ndarray, faces_F3: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A process draws several environments with the same meshes, and a third of a second each is worth remembering."""
    mesh = hashlib.sha256(vertices_V3.tobytes() + faces_F3.tobytes()).digest()
    if mesh not in _COARSE:
        _COARSE[mesh] = coarse_faces(vertices_V3, faces_F3, DETAIL)
    return _COARSE[mesh]


def coarse_faces(vertices_V3: np.ndarray, faces_F3: np.ndarray, detail: float) -> tuple[np.ndarray, np.ndarray]:
    """Which triangles are left, and their corners, when all vertices in a cube of side `detail` become one of them.

    That one is the nearest to their mean. A triangle that loses a corner goes, and so does the second of two alike.
    """
    cell_V = np.unique(np.floor(vertices_V3 / detail).astype(np.int64), axis=0, return_inverse=True)[1].ravel()
    size = np.bincount(cell_V)
    means = np.stack([np.bincount(cell_V, axis) / size for axis in vertices_V3.T], axis=1)
    by_cell = np.lexsort((np.square(vertices_V3 - means[cell_V]).sum(1), cell_V))
    chosen = by_cell[np.searchsorted(cell_V[by_cell], np.arange(len(size)))]
    corners = np.sort(chosen[cell_V[faces_F3]], axis=1)
    whole = np.flatnonzero((np.diff(corners, axis=1) > 0).all(1))
    kept = whole[np.sort(np.unique(corners[whole], axis=0, return_index=True)[1])]
    return kept, chosen[cell_V[faces_F3[kept]]]
