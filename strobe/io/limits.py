"""Limits of this process (``ulimit``): libraries that meet them end the process or hang instead of raising."""

from __future__ import annotations

import resource
from pathlib import Path

from strobe.errors import StrobeError
from strobe.numbers import file_size


def check_address_space(least: int, purpose: str) -> None:
    """Refuse to begin where the process may not map enough memory (``ulimit -v``).

    Args:
        least: bytes that must be left.
        purpose: what they are for.

    Raises:
        StrobeError: fewer are left.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    left = limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if left < least:
        raise StrobeError(
            f"out of memory: this process may map {file_size(max(left, 0))} more, and {purpose} needs "
            f"{file_size(least)}. Raise the limit (ulimit -v)"
        )
