"""Rows of features in segments: where they begin and end, which changed, and how many bytes that is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from strobe.graph.arrays import Array
from strobe.ops.csr import IntArray
from strobe.store.marks import Mask
from strobe.store.sorted_keys import Moves, moves


def stretches(width: int, segments: int) -> list[tuple[int, int]]:
    """Where the segments of a row begin and end: as even as they can be, none empty."""
    segments = min(segments, width)
    return list(pairwise(segment * width // segments for segment in range(segments + 1))) if segments else []


def changed_segments(how: Moves, before: Array, x: Array, cuts: list[tuple[int, int]]) -> Mask:
    """Which segments of which rows must be stored, [S, n]: those of new nodes, those with other bits than before."""
    changed = np.ones((len(cuts), len(x)), np.bool_)
    if cuts:
        old, new = (before, x) if how.nothing else (before[how.stay], x[~how.new])
        other = np.logical_or.reduceat(_bits(old) != _bits(new), [a for a, _ in cuts], axis=1)
        changed[:, np.flatnonzero(~how.new)] = other.T
    return changed


def changed_bytes(nodes_before: IntArray, before: Array, nodes: IntArray, x: Array, segments: int = 4) -> IntArray:
    """Bytes that each row takes beside those of the snapshot before, [n]: the segments that changed; all of it where
    the node was not there. Nodes ascend."""
    cuts = stretches(x.shape[1], segments)
    changed = changed_segments(moves(nodes_before, nodes), before, x, cuts)
    widths = np.array([b - a for a, b in cuts], np.int64)
    return np.asarray(widths @ changed.astype(np.int64) * x.itemsize)


def _bits(rows: Array) -> Array:
    """Rows as unsigned integers: NaN equals itself, and 0 is not -0."""
    return np.ascontiguousarray(rows).view(f"u{rows.itemsize}")
