"""The cells of one snapshot divided among ranks, to each its share."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from strobe.errors import MissingPackageError
from strobe.graph import DynamicGraph
from strobe.ops.csr import FloatArray, IntArray, distinct
from strobe.placement.hash import Hash
from strobe.placement.loads import loads_of_cells
from strobe.placement.partition import bisections
from strobe.placement.union import links

_LOTS = 1 << 15
"""Numbers that a hash draws: as many as owners can be."""


def divided(graph: DynamicGraph, t: int, shares: FloatArray, slack: float, seed: int = 0) -> IntArray:
    """The part of every cell of snapshot t, [n], such that few cells have neighbours in other parts. By METIS; by hash
    where pymetis is not installed.

    Args:
        graph: whose snapshot.
        t: which one.
        shares: the load that each part is to have, in proportion.
        slack: a load by which parts may miss their shares if that cuts fewer neighbours off.
        seed: of METIS or the hash.
    """
    loads = loads_of_cells(graph[t])
    try:
        return _cut(links(graph[t]), loads, shares, slack, seed)
    except MissingPackageError:
        lot = Hash().place(graph, (), _LOTS, seed=seed).of_node[graph[t].nodes]
        return _end_to_end(loads, shares, np.argsort(lot, kind="stable"))


def _cut(among: sp.csr_array, loads: IntArray, shares: FloatArray, slack: float, seed: int) -> IntArray:
    """In two, and these in two again. (METIS could by itself, but stumbles over halves without cells.)"""
    if shares.size == 1 or loads.size <= shares.size:
        return _end_to_end(loads, shares, np.arange(loads.size))
    middle = shares.size // 2
    wanted = float(loads.sum() * (shares[:middle].sum() / shares.sum()))
    found = bisections(among, loads, wanted / float(loads.sum()), seed)
    ways = [_righted(half, among, loads, wanted, slack) for half in found]
    half = min(ways, key=lambda way: (max(abs(_too_much(way, loads, wanted)), slack), _cut_off(among, way)))
    part = np.zeros(loads.size, np.int64)
    for begin, end in ((0, middle), (middle, shares.size)):
        kept = np.flatnonzero((half == 0) == (begin == 0))
        inner = among[kept][:, kept].tocsr() if end - begin > 1 else among
        part[kept] = begin + _cut(inner, loads[kept], shares[begin:end], slack / 2, seed)
    return part


def _righted(half: IntArray, among: sp.csr_array, loads: IntArray, wanted: float, slack: float) -> IntArray:
    """The same halves, or if one has too much, cells of it moved to the other: first those with the fewest neighbours
    to leave. (Around a hub with very many neighbours METIS does not get loads right.)"""
    over = _too_much(half, loads, wanted)
    if abs(over) <= slack:
        return half
    heavier = half == (0 if over > 0 else 1)
    left = among @ np.where(heavier, 1, -1)
    cells = np.flatnonzero(heavier & (loads <= abs(over)))
    cells = cells[np.argsort(left[cells], kind="stable")]
    moved = half.copy()
    moved[cells[np.cumsum(loads[cells]) <= abs(over)]] ^= 1
    return moved


def _too_much(half: IntArray, loads: IntArray, wanted: float) -> float:
    """The load of half 0 beyond what is wanted."""
    return float(loads[half == 0].sum()) - wanted


def _cut_off(among: sp.csr_array, half: IntArray) -> int:
    """How many cells have a neighbour in the other half."""
    row = np.repeat(np.arange(half.size), np.diff(among.indptr))
    return distinct(row[half[row] != half[among.indices]]).size


def _end_to_end(loads: IntArray, shares: FloatArray, order: IntArray) -> IntArray:
    """Cells laid end to end in this order; each is in the part that its middle falls into."""
    ends = np.cumsum(shares) * (float(loads.sum()) / float(shares.sum()))
    middle = np.cumsum(loads[order]) - loads[order] / 2
    part = np.zeros(loads.size, np.int64)
    part[order] = np.minimum(np.searchsorted(ends, middle), shares.size - 1)
    return part
