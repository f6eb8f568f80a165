"""Stretches of time that are shared out one by one, so that all ranks have work in each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from strobe.errors import InputError


def stretches(windows: Sequence[range], num_snapshots: int) -> list[range]:
    """All snapshots in consecutive stretches, cut wherever a window begins or ends.

    What no window holds is a stretch of its own; without windows all snapshots are one.
    """
    cuts = {0, num_snapshots}
    for window in windows:
        if window.step != 1 or window.start < 0 or window.stop > num_snapshots:
            raise InputError(f"a window is a stretch of the graph's {num_snapshots:,} snapshots, not {window}")
        cuts |= {window.start, window.stop} if len(window) else set()
    return [range(first, last) for first, last in pairwise(sorted(cuts))]
