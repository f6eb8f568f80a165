"""Ways to share out a stretch of time, and which of them is best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray, distinct
from strobe.placement.loads import loads_of_cells

EVEN = 1.05
"""Largest over mean load of ranks up to which a placement counts as even."""


@dataclass(frozen=True, eq=False)
class Way:
    """Owners of all cells of a stretch, how uneven ranks are, and the rows that they send."""

    owners: list[IntArray]
    uneven: float
    rows: int


def way(graph: DynamicGraph, owners: list[IntArray], last: IntArray, num_ranks: int) -> Way:
    """What owners of a stretch's cells amount to; the node's ``last`` cell before the stretch was on this rank, [N],
    or -1."""
    loads = np.zeros((1, num_ranks), np.int64)
    for snapshot, owner in zip(graph, owners, strict=True):
        loads += np.bincount(owner, loads_of_cells(snapshot), num_ranks).astype(np.int64)
    return Way(owners, unevenness(loads), rows_sent(graph, owners, last))


def best(ways: Sequence[Way]) -> Way:
    """Of those that are even enough the one that sends the fewest rows."""
    enough = limit(ways)
    return min((way for way in ways if way.uneven <= enough), key=lambda way: way.rows)


def limit(ways: Sequence[Way]) -> float:
    """How uneven a way may be: even, or where none is, nearly as even as the most even of them."""
    least = min(way.uneven for way in ways)
    return EVEN if least <= EVEN else EVEN * least


def unevenness(loads: IntArray) -> float:
    """What the slowest ranks have, over what all would have if they shared evenly: loads by stretch and rank."""
    mean = float(loads.mean(axis=1).sum())
    return float(loads.max(axis=1).sum()) / mean if mean else 1.0


def rows_sent(graph: DynamicGraph, owners: Sequence[IntArray], last: IntArray) -> int:
    """Rows of one sparse product and of one pass along all sequences: every cell once per other rank that reads it,
    and a state wherever a sequence changes ranks."""
    last, rows = last.copy(), 0
    for snapshot, owner in zip(graph, owners, strict=True):
        before = last[snapshot.nodes]
        rows += int(((before >= 0) & (before != owner)).sum()) + _read_elsewhere(snapshot, owner)
        last[snapshot.nodes] = owner
    return rows


def _read_elsewhere(snapshot: Snapshot, owner: IntArray) -> int:
    if (owner == owner[:1]).all():
        return 0
    read, reader = snapshot.arcs()
    cut = owner[read] != owner[reader]
    return distinct(owner[reader[cut]].astype(np.int64) * snapshot.num_nodes + read[cut]).size
