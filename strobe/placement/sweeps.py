"""Loops over the nodes of a snapshot that look for a rank with room, one node after the other."""

from __future__ import annotations

import numpy as np

from strobe.ops.compiled import compiled
from strobe.ops.csr import FloatArray, IntArray


@compiled
def settle(last: IntArray, full: int, change: int, free: IntArray, owner: IntArray) -> int:
    """The base partition (Algorithm 1): nodes stay where they were last while there is room for what changes; then the
    others go in full to the rank with most room, of equals the first. Updates ``free`` and ``owner``, and gives the
    first cell that fits nowhere, -1 if all do.

    It fails only where no other way would do: no rank could have more cells. (With few ranks, looking at all of them
    for the most room is as fast as a heap.)
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


@compiled
def weights_by_rank(row_ptr: IntArray, col: IntArray, weight: IntArray, owner: IntArray, num_ranks: int) -> IntArray:
    """What the neighbours of every cell weigh that each rank has, [n, W]."""
    found = np.zeros((len(owner), num_ranks), np.int64)
    for cell in range(len(owner)):
        for j in range(row_ptr[cell], row_ptr[cell + 1]):
            found[cell, owner[col[j]]] += weight[j]
    return found


@compiled
def together(near: IntArray, owner: IntArray) -> int:
    """The weight of links between cells of one rank, from the weights by rank."""
    twice = 0
    for cell in range(len(owner)):
        twice += near[cell, owner[cell]]
    return twice // 2


@compiled
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
    taken: IntArray,
    owner: IntArray,
) -> int:
    """Every cell in turn moves to the rank that pays most, of those that have room for it; of equals it stays, else
    takes the first. Gives how many moved (Algorithm 2, one turn of its outer loop).

    A rank pays what a cell's neighbours there weigh, and ``when_staying`` where its node was last, else ``when_new``,
    [W]; less ``per_byte`` for all that it has taken of this snapshot. ``bytes_staying`` and ``bytes_new`` are what the
    cell takes there now and in each of the next snapshots, [T], ``free`` what there is, [T, W]: now is the hard limit,
    later there must be room for all to stay. ``near``, the weights by rank, goes along: so a turn in which few move
    reads n W numbers and no edge. Updates it and ``free``, ``taken``, ``owner``.
    """
    moved = 0
    for cell in range(len(owner)):
        mine, home = owner[cell], last[cell]
        at_home = when_staying[mine] if mine == home else when_new[mine]
        best, most = mine, near[cell, mine] + at_home - per_byte[mine] * taken[mine]
        for rank in range(free.shape[1]):
            pays = near[cell, rank] + (when_staying[rank] if rank == home else when_new[rank])
            pays -= per_byte[rank] * taken[rank]
            if pays > most and rank != mine and fits(bytes_staying if rank == home else bytes_new, free, rank):
                best, most = rank, pays
        if best == mine:
            continue
        left = bytes_staying if mine == home else bytes_new
        needed = bytes_staying if best == home else bytes_new
        free[:, mine] += left
        taken[mine] -= left[0]
        free[:, best] -= needed
        taken[best] += needed[0]
        owner[cell] = best
        moved += 1
        for j in range(row_ptr[cell], row_ptr[cell + 1]):
            near[col[j], mine] -= weight[j]
            near[col[j], best] += weight[j]
    return moved


@compiled
def fits(needed: IntArray, free: IntArray, rank: int) -> bool:
    """Whether a rank has so many bytes at all times."""
    for time in range(len(needed)):  # noqa: SIM110  (loops that are compiled know no generators)
        if free[time, rank] < needed[time]:
            return False
    return True
