"""What can be done to an array: another type, another shape, other numbers."""

from __future__ import annotations

import numpy as np

HOW = (
    *("nan", "inf", "half", "integers", "complex", "booleans", "longer", "shorter", "flat", "scalar", "empty"),
    *("tiny", "huge"),
)
"""What can be done to an array or tensor."""


def shaped(array: np.ndarray, how: str) -> np.ndarray:
    """An array of another type, shape or content."""
    array = np.asarray(array)
    if how in ("nan", "inf"):
        return np.full(array.shape, float(how), np.float32)
    if how in ("tiny", "huge"):
        return np.full(array.shape, 1e-30 if how == "tiny" else 1e30, np.float64)
    kinds = {"half": np.float16, "integers": np.int64, "complex": np.complex64, "booleans": np.bool_}
    if how in kinds:
        numbers = array.astype(np.float64) if array.dtype.kind in "fiub" else np.zeros(array.shape)
        return np.nan_to_num(numbers).astype(kinds[how])
    if how == "longer":
        return np.concatenate([array, array]) if array.ndim else np.stack([array, array])
    if how == "shorter":
        return array[:-1] if array.ndim else array[None][:0]
    if how == "flat":
        return array.reshape(-1)
    return np.zeros((), np.float32) if how == "scalar" else np.zeros((0,), np.float32)
