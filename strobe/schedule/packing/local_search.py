"""Simulated annealing over exchanges of batches between bins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.schedule.costs import Costs
from strobe.schedule.packing.bins import Bins

START_TEMPERATURES = (0.3, 0.1, 0.03)
"""Initial temperatures of the restarts, in turn, relative to the mean seconds of batches. Similar batches need a higher
one than dissimilar ones."""

END_TEMPERATURE = 0.001
"""Final temperature."""


def improve_bins(
    bins: Bins, costs: Costs, num_ranks: int, limit: int, goal: float, *, restarts: int, exchanges: int
) -> Iterator[Bins]:
    """Yield the best bins of each restart, all from the same start. Deterministic.

    Args:
        bins: the start.
        costs: seconds of batches.
        num_ranks: the number of ranks.
        limit: most batches per bin.
        goal: a restart ends early when its bins cost no more than this.
        restarts: the number of restarts.
        exchanges: the number of exchanges in each.
    """
    mean = float(costs.seconds.mean())
    if mean == 0:
        return
    slots = _slots(bins, len(costs), limit)
    seconds = np.ascontiguousarray(costs.seconds, np.float64)
    for restart in range(restarts):
        start = START_TEMPERATURES[restart % len(START_TEMPERATURES)]
        temperature = start * mean, (END_TEMPERATURE / start) ** (1 / exchanges)
        random = np.random.default_rng(restart)
        sync_s = float(costs.sync_s)  # an int would compile the kernel again
        yield _bins(_exchange(seconds, slots.copy(), num_ranks, sync_s, exchanges, temperature, goal, random))


def _slots(bins: Bins, num: int, limit: int) -> IntArray:
    """Return the batches of every bin, -1 in free slots; as many bins as batches, [B, L]."""
    slots = np.full((num, limit), -1, np.int64)
    for at, batches in enumerate(bins):
        slots[at, : len(batches)] = batches
    return slots


def _bins(slots: IntArray) -> Bins:
    return [sorted(batch for batch in batches if batch >= 0) for batches in slots.tolist() if max(batches) >= 0]


@cached_njit
def _exchange(
    seconds: FloatArray,
    slots: IntArray,
    num_ranks: int,
    sync_s: float,
    num_exchanges: int,
    temperature: tuple[float, float],
    goal: float,
    random: np.random.Generator,
) -> IntArray:
    """Return the best slots found. ``temperature``: initial value, and factor per exchange."""
    num_bins, limit = slots.shape
    load = np.empty(num_bins)
    for b in range(num_bins):
        _update_load(b, seconds, slots, load)
    order = np.argsort(-load)
    place = np.empty(num_bins, np.int64)
    place[order] = np.arange(num_bins)
    cost = _cost(load, order, num_ranks, sync_s)
    best, best_slots, now = cost, slots.copy(), temperature[0]
    for _ in range(num_exchanges):
        if best <= goal:
            break
        now *= temperature[1]
        a, b = int(random.random() * num_bins), int(random.random() * num_bins)
        i, j = int(random.random() * limit), int(random.random() * limit)
        if a == b or slots[a, i] == slots[b, j]:  # both are free
            continue
        _swap(a, i, b, j, seconds, slots, load, order, place)
        changed = _cost(load, order, num_ranks, sync_s)
        if changed > cost and random.random() >= np.exp((cost - changed) / now):
            _swap(a, i, b, j, seconds, slots, load, order, place)
            continue
        cost = changed
        if cost < best:
            best = cost
            best_slots[:] = slots
    return best_slots


@cached_njit
def _swap(
    a: int,
    i: int,
    b: int,
    j: int,
    seconds: FloatArray,
    slots: IntArray,
    load: FloatArray,
    order: IntArray,
    place: IntArray,
) -> None:
    slots[a, i], slots[b, j] = slots[b, j], slots[a, i]
    for changed in (a, b):
        _update_load(changed, seconds, slots, load)
        _restore_order(changed, load, order, place)


@cached_njit
def _update_load(b: int, seconds: FloatArray, slots: IntArray, load: FloatArray) -> None:
    """An empty bin has load -1, less than a bin of batches that take no time: it needs no step."""
    load[b] = -1.0
    for batch in slots[b]:
        if batch >= 0:
            load[b] = max(load[b], 0.0) + seconds[batch]


@cached_njit
def _restore_order(b: int, load: FloatArray, order: IntArray, place: IntArray) -> None:
    """Move a bin to its place in the order, longest first."""
    at = place[b]
    while at > 0 and load[order[at - 1]] < load[b]:
        order[at] = order[at - 1]
        place[order[at]] = at
        at -= 1
    while at + 1 < len(order) and load[order[at + 1]] > load[b]:
        order[at] = order[at + 1]
        place[order[at]] = at
        at += 1
    order[at], place[b] = b, at


@cached_njit
def _cost(load: FloatArray, order: IntArray, num_ranks: int, sync_s: float) -> float:
    cost = 0.0
    for at in range(0, len(order), num_ranks):
        if load[order[at]] < 0:
            break
        cost += load[order[at]] + sync_s
    return cost
