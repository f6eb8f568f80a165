"""Blocks of whole snapshots whose nodes are cut into parts."""

from __future__ import annotations

import numpy as np

from strobe.errors import MissingPackageError
from strobe.graph import DynamicGraph
from strobe.ops.csr import IntArray
from strobe.placement.hash import Hash
from strobe.placement.loads import loads_of_nodes
from strobe.placement.metis import Metis
from strobe.placement.staying import renamed


def in_parts(graph: DynamicGraph, block: IntArray, parts: int, last: IntArray, seed: int = 0) -> list[IntArray]:
    """The owner of every cell of every snapshot: rank block * parts + part.

    Args:
        graph: whose cells.
        block: of each snapshot, ascending, [T].
        parts: of each block, by METIS; by hash where pymetis is not installed.
        last: the rank that had each node's last cell before, [N], -1 for none.
        seed: of METIS or the hash.
    """
    owners: list[IntArray] = []
    part = np.where(last < 0, -1, last % parts).astype(np.int16)
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    for first, end in zip(starts, [*starts[1:], len(graph)], strict=True):
        piece = graph[first:end]
        there = np.flatnonzero(loads_of_nodes(piece))
        # States change ranks between blocks whatever the parts are: so every block may have its own, even ones.
        part[there] = renamed(_vertex_parts(piece, parts, seed)[there], part[there], parts)
        owners += [int(block[first]) * parts + part[snapshot.nodes] for snapshot in piece]
    return owners


def _vertex_parts(graph: DynamicGraph, num_parts: int, seed: int) -> IntArray:
    """The part of every node, [N]."""
    try:
        return Metis().place(graph, (), num_parts, seed=seed).of_node
    except MissingPackageError:
        return Hash().place(graph, (), num_parts, seed=seed).of_node
