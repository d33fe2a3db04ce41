"""What the tests of the data room share."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_collection import SMALL, TASK

from phylatent.data.collect import collect


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished small collection."""
    return collect(TASK, SMALL, seed=0, path=tmp_path_factory.mktemp("collected") / "data.h5")
