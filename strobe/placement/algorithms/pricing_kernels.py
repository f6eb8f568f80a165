"""Compiled loops of the price-based partitioner."""

from __future__ import annotations

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import FloatArray, IntArray


@cached_njit
def assign_base_partition(last: IntArray, full: int, change: int, free: IntArray, owner: IntArray) -> int:
    """Base partition (Algorithm 1): nodes stay while there is room for their changes; others go with full rows to the
    rank with most free memory, ties to the first. Updates ``free`` and ``owner``.

    Returns:
        The first cell that does not fit, or -1. It fails only if no rank could store more cells.
    """
    for cell in range(len(last)):
        rank = last[cell]
        owner[cell] = -1
        if rank >= 0 and free[rank] >= change:
            owner[cell] = rank
            free[rank] -= change
    for cell in range(len(last)):
        if owner[cell] < 0:
            rank = np.argmax(free)
            if free[rank] < full:
                return cell
            owner[cell] = rank
            free[rank] -= full
    return -1


@cached_njit
def weights_by_rank(row_ptr: IntArray, col: IntArray, weight: IntArray, owner: IntArray, num_ranks: int) -> IntArray:
    """Weight of the neighbors of every cell on each rank, [n, W]."""
    total = np.zeros((len(owner), num_ranks), np.int64)
    for cell in range(len(owner)):
        for j in range(row_ptr[cell], row_ptr[cell + 1]):
            total[cell, owner[col[j]]] += weight[j]
    return total


@cached_njit
def internal_weight(near: IntArray, owner: IntArray) -> int:
    """Weight of links within ranks, from the weights by rank."""
    twice = 0
    for cell in range(len(owner)):
        twice += near[cell, owner[cell]]
    return twice // 2


@cached_njit
def sweep(
    row_ptr: IntArray,
    col: IntArray,
    weight: IntArray,
    last: IntArray,
    bytes_new: IntArray,
    bytes_staying: IntArray,
    when_new: FloatArray,
    when_staying: FloatArray,
    per_byte: FloatArray,
    near: IntArray,
    free: IntArray,
    used: IntArray,
    owner: IntArray,
) -> int:
    """Move every cell to the rank with room and the highest payoff; ties stay, else go to the first (Algorithm 2, one
    iteration of its outer loop). Returns the number of moves; updates ``near``, ``free``, ``used`` and ``owner``.

    Payoff of a rank: the weight of the cell's neighbors there (``near``, [n, W]), plus ``when_staying`` if its node was
    there last, else ``when_new``, [W], minus ``per_byte`` times the bytes used of this snapshot. ``bytes_staying`` and
    ``bytes_new`` [T] are the bytes of the cell now and at each of the next snapshots, ``free`` [T, W] the free bytes.
    Because ``near`` is updated, a sweep with few moves reads n W numbers and no edges.
    """
    moved = 0
    for cell in range(len(owner)):
        current, home = owner[cell], last[cell]
        bonus = when_staying[current] if current == home else when_new[current]
        best, most = current, near[cell, current] + bonus - per_byte[current] * used[current]
        for rank in range(free.shape[1]):
            pays = near[cell, rank] + (when_staying[rank] if rank == home else when_new[rank])
            pays -= per_byte[rank] * used[rank]
            if pays > most and rank != current and fits(bytes_staying if rank == home else bytes_new, free, rank):
                best, most = rank, pays
        if best == current:
            continue
        left = bytes_staying if current == home else bytes_new
        needed = bytes_staying if best == home else bytes_new
        free[:, current] += left
        used[current] -= left[0]
        free[:, best] -= needed
        used[best] += needed[0]
        owner[cell] = best
        moved += 1
        for j in range(row_ptr[cell], row_ptr[cell + 1]):
            near[col[j], current] -= weight[j]
            near[col[j], best] += weight[j]
    return moved


@cached_njit
def fits(needed: IntArray, free: IntArray, rank: int) -> bool:
    """Whether a rank has the needed bytes at all times."""
    for time in range(len(needed)):  # noqa: SIM110  (numba has no generator expressions)
        if free[time, rank] < needed[time]:
            return False
    return True
