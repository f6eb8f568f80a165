"""Rows of features in segments: where they begin and end, which changed, and how many bytes that is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from strobe.graph.arrays import Array, read_only
from strobe.ops.csr import IntArray
from strobe.store.marks import Mask
from strobe.store.sorted_keys import Moves

Cuts = list[tuple[int, int]]
"""Where each segment of a row begins and ends."""


def stretches(width: int, segments: int) -> Cuts:
    """Where the segments of a row begin and end: as even as they can be, none empty."""
    segments = min(segments, width)
    return list(pairwise(segment * width // segments for segment in range(segments + 1))) if segments else []


def changed_segments(how: Moves, before: Array, x: Array, cuts: Cuts) -> Mask:
    """Which segments of which rows must be stored, [S, n]: those with other bits than before. What new nodes had before
    is all zeros."""
    from strobe.store.loops import differing  # numba takes its time to load

    changed = np.zeros((len(cuts), len(x)), np.bool_)
    ends = np.array([b for _, b in cuts], np.int64)
    differing(bits(before), bits(x), how.stay, how.new, ends, changed)
    return changed


def nonzero_segments(x: Array, cuts: Cuts) -> Mask:
    """Which segments of which rows are not all zeros, to the bit, [S, n]."""
    return changed_segments(Moves.all_new(len(x)), x[:0], x, cuts)


def segment_bytes(chosen: Mask, cuts: Cuts, itemsize: int) -> IntArray:
    """Bytes of the segments of each row that are chosen, [n]."""
    widths = np.array([b - a for a, b in cuts], np.int64)
    return np.asarray(widths @ chosen.astype(np.int64) * itemsize)


def bits(rows: Array) -> Array:
    """Rows as unsigned integers, in order and read-only: NaN equals itself, and 0 is not -0."""
    return read_only(np.ascontiguousarray(rows).view(f"u{rows.itemsize}"))
