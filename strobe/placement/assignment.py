"""Which rank gets which chunk: ranks of even load, with few bytes between them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from strobe.ops.compiled import compiled
from strobe.ops.csr import FloatArray
from strobe.ops.labels import Labels, Links, Sums, Weights
from strobe.placement.partition import partition


def by_score(links: Links, load: Sums, num_ranks: int) -> Labels:
    """Chunks from the heaviest to the lightest, each to the rank with the largest (mean load - its load) * (bytes
    shared with what it has), [K].

    A rank that has its share is out, or its sign could make it win; without shared bytes, and of equals, the rank with
    the least wins. Chunks have no rows: ``links.before`` and ``links.after`` do not count.
    """
    order = np.argsort(-load, kind="stable")
    owner = np.full(len(load), -1, np.int32)
    mean = float(load.sum() / num_ranks)
    _give(order, links.row_ptr, links.col, links.weight, load.astype(np.float64), mean, num_ranks, owner)
    return owner


def by_metis(links: Links, load: Sums, num_ranks: int, seed: int = 0) -> Labels:
    """METIS on a graph of chunks, or of cells. Links that weigh nothing do not count: METIS would take 1 for 0."""
    weight = np.broadcast_to(links.weight, links.col.shape) if len(links.weight) == 1 else links.weight
    kept = weight > 0
    entries = [np.maximum(np.rint(weight[kept]), 1).astype(np.int64)]
    rows = np.repeat(np.arange(links.num_vertices, dtype=np.int32), np.diff(links.row_ptr))
    ends = [rows[kept]], [links.col[kept]]
    later = np.flatnonzero(links.before >= 0).astype(np.int32)
    if len(later) and links.chain > 0:
        chain = np.full(len(later), max(round(links.chain), 1), np.int64)
        entries += [chain, chain]
        ends[0].extend([later, links.before[later]])
        ends[1].extend([links.before[later], later])
    size = (links.num_vertices, links.num_vertices)
    joined = sp.coo_array(
        (np.concatenate(entries), (np.concatenate(ends[0]), np.concatenate(ends[1]))), shape=size
    ).tocsr()
    return partition(joined, load, num_ranks, seed).astype(np.int32)


def whole_numbers(load: FloatArray) -> Sums:
    """Loads in proportion, as numbers that add up without rounding."""
    total = float(load.sum())
    return (
        np.maximum(np.rint(load * ((1 << 40) / total)), 1).astype(np.int64) if total else np.ones(len(load), np.int64)
    )


@compiled
def _give(
    order: Sums,
    row_ptr: Sums,
    col: Labels,
    weight: Weights,
    load: FloatArray,
    mean: float,
    num_ranks: int,
    owner: Labels,
) -> None:
    has = np.zeros(num_ranks)
    shared = np.zeros(num_ranks)
    single = len(weight) == 1
    for chunk in order:
        shared[:] = 0
        for j in range(row_ptr[chunk], row_ptr[chunk + 1]):
            if owner[col[j]] >= 0:
                shared[owner[col[j]]] += weight[0] if single else weight[j]
        best, most = int(np.argmin(has)), 0.0
        for rank in range(num_ranks):
            score = (mean - has[rank]) * shared[rank]
            better = score > most or (score == most and has[rank] < has[best])
            if has[rank] < mean and better:
                best, most = rank, score
        owner[chunk] = best
        has[best] += load[chunk]
