"""The map that `diagnose` writes beside its record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from drifts import diagnose
from exact_model import ExactTwoRooms

from phylatent.diagnostics.diagnose import save
from phylatent.diagnostics.latent_map import read_map
from phylatent.diagnostics.sample import Sample


def test_the_map_of_a_latent_that_is_the_place_is_the_place(sample: Sample, tmp_path: Path) -> None:
    """Turned, perhaps; and every state is a held-out one, with its frame and its own coordinates."""
    path = save(diagnose(ExactTwoRooms(), sample), tmp_path, {})
    found = read_map(path.with_suffix(".npz"), json.loads(path.read_text()), again="")
    assert found is not None
    assert found.coordinates == ("x", "y")
    assert sum(found.explained) == pytest.approx(1)
    apart = [np.linalg.norm(values[:, None] - values[None], axis=-1).ravel() for values in (found.scores, found.states)]
    assert np.corrcoef(*apart)[0, 1] > 0.99
    episodes = sample.held_out.episodes
    assert set(found.episodes.tolist()) == {3, 4, 5, 6, 7}
    rows = episodes.offsets[found.episodes] + found.steps
    assert np.array_equal(episodes.targets[rows], found.states)
    assert found.pictures.shape[1:] == (48, 48, 3)


def test_latents_that_cannot_be_judged_have_no_map(sample: Sample) -> None:
    class Constant(ExactTwoRooms):
        def encode(self, frames):
            return super().encode(frames) * 0

    found = diagnose(Constant(), sample)
    assert "map" not in found.record
    assert not any(name.startswith("map/") for name in found.arrays)
