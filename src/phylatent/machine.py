"""What a run asks of the machine: a device, cores, memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

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


def total_memory() -> int:
    """Bytes that a process can have at most: the machine's, or what a container or a limit leaves of them."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        with contextlib.suppress(OSError, ValueError):  # no such container, or "max"
            found.append(int(limit.read_text()))
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    return min(found if address_space == resource.RLIM_INFINITY else [*found, address_space])


PROCESS = 150_000_000
"""What a process takes that has imported torch, at least."""


def check_memory(parts: Mapping[str, int], what: str) -> None:
    """An error if what is asked for takes more memory than there is. `parts`: keys that decide a part → its bytes, at least."""
    asked, there = sum(parts.values()), total_memory()
    if asked > there:
        largest = sorted(parts, key=lambda name: parts[name], reverse=True)[:2]
        most = " and ".join(f"{_size(parts[name])} for {name}" for name in largest if parts[name] > there / 10)
        raise UserError(
            f"{what} would take at least {_size(asked)} of memory ({most}), and this machine has {_size(there)}; "
            "give smaller values"
        )


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count < 1e15 else f"{count / 1e9:.0e} GB"


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
