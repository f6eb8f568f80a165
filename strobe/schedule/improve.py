"""Exchanges of batches between bins: better ones always, worse ones less and less often."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from strobe.ops.compiled import compiled
from strobe.ops.csr import FloatArray, IntArray
from strobe.schedule.bins import Bins
from strobe.schedule.costs import Costs

HEATS = (0.3, 0.1, 0.03)
"""What an exchange may cost, about, when a go begins: as a part of the mean seconds of batches. Many like alternatives
want more, few unlike ones less; so goes take turns."""

COLD = 0.001
"""And when it ends."""


def improved(
    bins: Bins, costs: Costs, num_ranks: int, limit: int, goal: float, *, goes: int, exchanges: int
) -> Iterator[Bins]:
    """The best bins of so many goes, each of so many exchanges from the same start, or fewer if they cost no more than
    the goal. Deterministic."""
    mean = float(costs.seconds.mean())
    if mean == 0:
        return
    slots = _slots(bins, len(costs), limit)
    seconds = np.ascontiguousarray(costs.seconds, np.float64)
    for go in range(goes):
        hot = HEATS[go % len(HEATS)]
        heat = hot * mean, (COLD / hot) ** (1 / exchanges)
        random = np.random.default_rng(go)
        agree_s = float(costs.agree_s)  # whole numbers would be compiled for once more
        yield _bins(_exchange(seconds, slots.copy(), num_ranks, agree_s, exchanges, heat, goal, random))


def _slots(bins: Bins, num: int, limit: int) -> IntArray:
    """The batches of every bin, -1 where there is room; as many bins as there are batches, [B, L]."""
    slots = np.full((num, limit), -1, np.int64)
    for at, batches in enumerate(bins):
        slots[at, : len(batches)] = batches
    return slots


def _bins(slots: IntArray) -> Bins:
    return [sorted(batch for batch in batches if batch >= 0) for batches in slots.tolist() if max(batches) >= 0]


@compiled
def _exchange(
    seconds: FloatArray,
    slots: IntArray,
    num_ranks: int,
    agree_s: float,
    num_exchanges: int,
    heat: tuple[float, float],
    goal: float,
    random: np.random.Generator,
) -> IntArray:
    """The best slots that were met. ``heat``: in the beginning, and how much of it every exchange leaves."""
    num_bins, limit = slots.shape
    load = np.empty(num_bins)
    for b in range(num_bins):
        _weigh(b, seconds, slots, load)
    order = np.argsort(-load)
    place = np.empty(num_bins, np.int64)
    place[order] = np.arange(num_bins)
    cost = _cost(load, order, num_ranks, agree_s)
    best, kept, now = cost, slots.copy(), heat[0]
    for _ in range(num_exchanges):
        if best <= goal:
            break
        now *= heat[1]
        a, b = int(random.random() * num_bins), int(random.random() * num_bins)
        i, j = int(random.random() * limit), int(random.random() * limit)
        if a == b or slots[a, i] == slots[b, j]:  # both have room there
            continue
        _swap(a, i, b, j, seconds, slots, load, order, place)
        changed = _cost(load, order, num_ranks, agree_s)
        if changed > cost and random.random() >= np.exp((cost - changed) / now):
            _swap(a, i, b, j, seconds, slots, load, order, place)
            continue
        cost = changed
        if cost < best:
            best = cost
            kept[:] = slots
    return kept


@compiled
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
        _weigh(changed, seconds, slots, load)
        _settle(changed, load, order, place)


@compiled
def _weigh(b: int, seconds: FloatArray, slots: IntArray, load: FloatArray) -> None:
    """An empty bin weighs less than one of batches that take no time: it needs no step."""
    load[b] = -1.0
    for batch in slots[b]:
        if batch >= 0:
            load[b] = max(load[b], 0.0) + seconds[batch]


@compiled
def _settle(b: int, load: FloatArray, order: IntArray, place: IntArray) -> None:
    """Brings a bin to its place in the order, longest first."""
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


@compiled
def _cost(load: FloatArray, order: IntArray, num_ranks: int, agree_s: float) -> float:
    cost = 0.0
    for at in range(0, len(order), num_ranks):
        if load[order[at]] < 0:
            break
        cost += load[order[at]] + agree_s
    return cost
