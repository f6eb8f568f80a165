"""Loops over keys and rows: each reads what it compares or moves once, and copies nothing on the way."""

from __future__ import annotations

from strobe.graph.arrays import Array
from strobe.ops.compiled import compiled
from strobe.ops.csr import IntArray
from strobe.store.marks import Mask


@compiled
def match(before: IntArray, now: IntArray, stay: Mask, new: Mask) -> None:
    """Ascending numbers of now that were there before: sets those in ``stay``, and clears them in ``new``. The n-th of
    some equal ones is the n-th of before."""
    old = 0
    for place in range(len(now)):
        while old < len(before) and before[old] < now[place]:
            old += 1
        if old < len(before) and before[old] == now[place]:
            stay[old] = True
            new[place] = False
            old += 1


@compiled
def differing(before: Array, now: Array, stay: Mask, new: Mask, ends: IntArray, changed: Mask) -> None:
    """Marks segments whose bits are others than before, [S, n]; of new rows those that are not all zeros.

    ``ends`` has where segments end, [S]. Rows of before that stay are those of now that are not new, in order.
    """
    old = -1
    for row in range(len(now)):
        mine = now[row]
        if not new[row]:
            old += 1
            while not stay[old]:
                old += 1
        begin = 0
        for segment in range(len(ends)):
            if new[row]:
                for column in range(begin, ends[segment]):
                    if mine[column] != 0:
                        changed[segment, row] = True
                        break
            else:
                last = before[old]
                for column in range(begin, ends[segment]):
                    if mine[column] != last[column]:
                        changed[segment, row] = True
                        break
            begin = ends[segment]


@compiled
def scatter(rows: Array, given: Array, place: IntArray, begin: int) -> None:
    """Puts given rows where they belong, from column ``begin`` on; those with -1 nowhere."""
    end = begin + given.shape[1]
    for row in range(len(given)):
        if place[row] >= 0:
            target, source = rows[place[row], begin:end], given[row]  # of slices numbers are moved several at a time
            for column in range(len(source)):
                target[column] = source[column]
