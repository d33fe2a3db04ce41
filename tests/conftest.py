"""What the tests share: real TwoRooms data collected once, and small graphs."""

from __future__ import annotations

import os
from pathlib import Path

# Some virtual machines announce bf16 instructions that they do not have, and oneDNN dies of believing them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import pytest
import torch

torch.set_num_threads(2)


@pytest.fixture(scope="session")
def tworooms_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve short episodes of the real simulator at 32 px: the smoke preset's data."""
    from phylatent.collection import collect
    from phylatent.composition import compose

    config = compose(preset="smoke", overrides=["collect.workers=1"])
    return collect(config, out=tmp_path_factory.mktemp("data") / "tworooms-smoke.h5")


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
