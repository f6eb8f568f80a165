"""Rows of features in segments: where they begin and end, which changed, and how many bytes that is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from strobe.graph.arrays import Array
from strobe.ops.csr import IntArray
from strobe.store.marks import Mask
from strobe.store.sorted_keys import Moves, moves

Cuts = list[tuple[int, int]]
"""Where each segment of a row begins and ends."""


def stretches(width: int, segments: int) -> Cuts:
    """Where the segments of a row begin and end: as even as they can be, none empty."""
    segments = min(segments, width)
    return list(pairwise(segment * width // segments for segment in range(segments + 1))) if segments else []


def changed_segments(how: Moves, before: Array, x: Array, cuts: Cuts) -> Mask:
    """Which segments of which rows must be stored, [S, n]: those with other bits than before. What new nodes had before
    is all zeros."""
    changed = np.zeros((len(cuts), len(x)), np.bool_)
    if cuts:
        old, new = (before, x) if how.nothing else (before[how.stay], x[~how.new])
        changed[:, np.flatnonzero(~how.new)] = _any_in(_bits(old) != _bits(new), cuts)
        if how.new.any():
            changed[:, np.flatnonzero(how.new)] = nonzero_segments(x[how.new], cuts)
    return changed


def nonzero_segments(x: Array, cuts: Cuts) -> Mask:
    """Which segments of which rows are not all zeros, to the bit, [S, n]."""
    return _any_in(_bits(x) != 0, cuts)


def changed_bytes(nodes_before: IntArray, before: Array, nodes: IntArray, x: Array, segments: int = 4) -> IntArray:
    """Bytes that each row takes beside those of the snapshot before, [n]: the segments that changed; where the node was
    not there, those that are not all zeros. Nodes ascend."""
    cuts = stretches(x.shape[1], segments)
    changed = changed_segments(moves(nodes_before, nodes), before, x, cuts)
    return segment_bytes(changed, cuts, x.itemsize)


def segment_bytes(chosen: Mask, cuts: Cuts, itemsize: int) -> IntArray:
    """Bytes of the segments of each row that are chosen, [n]."""
    widths = np.array([b - a for a, b in cuts], np.int64)
    return np.asarray(widths @ chosen.astype(np.int64) * itemsize)


def _any_in(other: Mask, cuts: Cuts) -> Mask:
    """By segment, whether any column of it is marked, [S, n]."""
    if not cuts:
        return np.zeros((0, len(other)), np.bool_)
    return np.asarray(np.logical_or.reduceat(other, [a for a, _ in cuts], axis=1).T)


def _bits(rows: Array) -> Array:
    """Rows as unsigned integers: NaN equals itself, and 0 is not -0."""
    return np.ascontiguousarray(rows).view(f"u{rows.itemsize}")
