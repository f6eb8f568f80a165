"""Limits of this process (``ulimit``), under which libraries end the process or hang instead of raising."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from strobe.errors import StrobeError
from strobe.format import file_size


def check_address_space(min_bytes: int, purpose: str) -> None:
    """Check that the process may map enough memory (``ulimit -v``).

    Args:
        min_bytes: required bytes.
        purpose: what they are for.

    Raises:
        StrobeError: fewer bytes are left.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    left = limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if left < min_bytes:
        raise StrobeError(
            f"out of memory: this process may map {file_size(max(left, 0))} more, and {purpose} needs "
            f"{file_size(min_bytes)}. Raise the limit (ulimit -v)"
        )


def process_memory_bytes() -> int:
    """Return the memory of this machine, or less if the process may map less (``ulimit -v``)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return physical if limit == resource.RLIM_INFINITY else min(limit, physical)
