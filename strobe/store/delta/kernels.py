"""Compiled loops over keys and rows."""

from __future__ import annotations

from strobe.graph.arrays import Array
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import IntArray
from strobe.store.delta.codecs import Mask


@cached_njit
def match_keys(before: IntArray, now: IntArray, stay: Mask, new: Mask) -> None:
    """Match ascending keys: set ``stay`` and clear ``new`` for keys in both; the n-th of equal keys matches the
    n-th."""
    old = 0
    for place in range(len(now)):
        while old < len(before) and before[old] < now[place]:
            old += 1
        if old < len(before) and before[old] == now[place]:
            stay[old] = True
            new[place] = False
            old += 1


@cached_njit
def mark_changed_segments(before: Array, now: Array, stay: Mask, new: Mask, ends: IntArray, changed: Mask) -> None:
    """Mark changed segments, [S, n], and of new rows the nonzero ones; ``ends`` [S] are the ends of segments."""
    old = -1
    for row in range(len(now)):
        current = now[row]
        if not new[row]:
            old += 1
            while not stay[old]:
                old += 1
        begin = 0
        for segment in range(len(ends)):
            if new[row]:
                for column in range(begin, ends[segment]):
                    if current[column] != 0:
                        changed[segment, row] = True
                        break
            else:
                last = before[old]
                for column in range(begin, ends[segment]):
                    if current[column] != last[column]:
                        changed[segment, row] = True
                        break
            begin = ends[segment]


@cached_njit
def scatter_segments(rows: Array, values: Array, place: IntArray, begin: int) -> None:
    """Scatter values into rows from column ``begin``; rows with place -1 are skipped."""
    end = begin + values.shape[1]
    for row in range(len(values)):
        if place[row] >= 0:
            target, source = rows[place[row], begin:end], values[row]  # slices, so that the loop vectorizes
            for column in range(len(source)):
                target[column] = source[column]
