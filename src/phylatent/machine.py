"""What a run asks of the machine: a device, cores, memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import sys

import torch

from phylatent.errors import UserError


def resolve_device(name: str) -> str:
    """`auto` takes CUDA, then MPS, then the CPU."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return next(device for device, there in found.items() if there)
    if name not in found:
        raise UserError(f"device is {name!r}; it must be auto, {', '.join(found)}")
    if not found[name]:
        raise UserError(f"device={name} was asked for, but this machine has none; use device=auto")
    return name


def has_compiler() -> bool:
    """Whether torch.compile can work on this machine's CPU."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++", "c++"))


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""glibc's numbers of what `mallopt` sets."""


def keep_freed_memory() -> None:
    """Let the C library keep what is freed for what is asked for next, where it can be told to (glibc).

    Every step frees the same large tensors and asks for them again. Given back to the system in between, they cost a page fault
    for every 4 kB: a tenth of a step at laptop scale.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_THRESHOLD, 1 << 30)
        library.mallopt(TRIM_THRESHOLD, 1 << 30)


def peak_memory_gb(child: bool = False) -> float:
    """Of this process since it started, or of the largest one it started (kilobytes on Linux, bytes on macOS)."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN if child else resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
