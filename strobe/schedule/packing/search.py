"""Branch and bound over schedules: place batches one by one, as long as idle time stays within a budget.

The idle time of all ranks in an epoch is W times its length minus the work. A short schedule has little idle time, so
the bins of a step must be about equally long, which prunes most placements.

Ours, because a general solver is worse. An integer program over bins (HiGHS) as the last stage of ``Optimal`` improved
no schedule of 40 random instances (8 to 40 batches of 6 kinds, 2 to 5 ranks): at a gap of 2 % it was never needed, at
a gap of 0 it ran on 5 of 20, the others being too large for it, and once proved a schedule optimal that was already
found. On batches of benchmarks.dygnex (growing), skewed and uniform ones, 4 ranks, 3 s each, the mean gap of 20 to 40
batches was 0.6 % with all stages, 1.2 % without this search, and 2.2 % from greedy with HiGHS alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.schedule.costs import Costs
from strobe.schedule.packing.bins import Bins, group_by_bin
from strobe.schedule.packing.step_filling import first_within

FOUND, NONE, UNKNOWN = 1, 0, -1


def search(costs: Costs, num_ranks: int, limit: int, goal: float, max_tries: int) -> tuple[int, Bins]:
    """Search bins of an epoch no longer than ``goal``.

    Returns:
        FOUND and the bins; NONE if there are none; UNKNOWN after ``max_tries`` placements.
    """
    order: IntArray = np.argsort(-costs.seconds, kind="stable")
    seconds = np.ascontiguousarray(costs.seconds[order], np.float64)
    waste = num_ranks * goal - float(seconds.sum())
    sync = num_ranks * float(costs.sync_s)  # of all ranks, in every step
    outcome, sorted_numbers = _search(seconds, num_ranks, limit, sync, waste, max_tries)
    numbers = np.empty_like(sorted_numbers)
    numbers[order] = sorted_numbers
    return int(outcome), group_by_bin(numbers) if outcome == FOUND else []


# Steps are ordered by their longest batch, and so are the bins of a step and the batches of a bin: each schedule is
# visited once. Row d of ``floats`` and ``ints`` is the state after d placements. Columns of ``floats``:
SPARE = 0  # remaining idle time, of this step and later ones
TOP, WORK = 1, 2  # longest load and sum of loads of this step's closed bins
LOAD = 3  # load of the open bin
# Columns of ``ints``:
CLOSED = 0  # closed bins of this step
SIZE = 1  # batches of the open bin
FIRST, LAST = 2, 3  # its first and last batch
BIN = 4  # its number
NEXT = 5  # next alternative, see _put_next


@cached_njit
def _search(
    seconds: FloatArray, num_ranks: int, limit: int, sync: float, waste: float, max_tries: int
) -> tuple[int, IntArray]:
    num = len(seconds)
    numbers = np.full(num, -1, np.int64)  # the bin of every batch, longest batch first
    floats, ints = np.zeros((num + 1, 4)), np.zeros((num + 1, 6), np.int64)
    floats[1, SPARE], floats[1, LOAD] = waste - sync, seconds[0]
    ints[1, SIZE] = 1
    numbers[0] = 0
    depth = 1  # placed batches
    for _ in range(max_tries):
        if depth == num and _spare_after(floats[depth], num_ranks) >= 0:
            return FOUND, numbers
        batch = -1
        if depth < num:
            batch = _put_next(seconds, num_ranks, limit, sync, numbers, floats, ints, depth)
        if batch >= 0:
            depth += 1
            numbers[batch] = ints[depth, BIN]
            continue
        if depth == 1:
            return NONE, numbers
        numbers[ints[depth, LAST]] = -1
        depth -= 1
    return UNKNOWN, numbers


@cached_njit
def _spare_after(floats: FloatArray, num_ranks: int) -> float:
    """Return the remaining idle time after this step."""
    spare: float = floats[SPARE] - num_ranks * max(floats[TOP], floats[LOAD]) + floats[WORK] + floats[LOAD]
    return spare


@cached_njit
def _put_next(
    seconds: FloatArray,
    num_ranks: int,
    limit: int,
    sync: float,
    numbers: IntArray,
    floats: FloatArray,
    ints: IntArray,
    depth: int,
) -> int:
    """Return the next batch to place, and write the new state to the next row; -1 if all have been tried.

    In this order: batches that fit into the open bin; batches that open another bin of this step; the longest remaining
    batch, in a new step; batches that make the open bin the longest of its step.
    """
    fs, ns, num = floats[depth], ints[depth], len(seconds)
    next_fs, next_ns = floats[depth + 1], ints[depth + 1]
    next_fs[:], next_ns[:] = fs, ns
    next_ns[NEXT] = 0
    start = ns[LAST] + 1
    middle = max(start, first_within(seconds, fs[LOAD], fs[TOP] if ns[CLOSED] > 0 else np.inf))
    fitting = num - middle
    opening = fitting + num - ns[FIRST] - 1
    exceeding = opening + 1 + middle - start
    while ns[NEXT] < exceeding:
        now = ns[NEXT]
        ns[NEXT] += 1
        if now < fitting:
            batch = middle + now
            if ns[SIZE] == limit or _too_short(fs, ns, fs[LOAD] + (limit - ns[SIZE]) * seconds[batch]):
                ns[NEXT] = fitting  # shorter ones do not either
            elif _worth(batch, batch - 1, now > 0, seconds, numbers):
                return _join(batch, seconds, next_fs, next_ns)
        elif now < opening:
            batch = ns[FIRST] + 1 + now - fitting
            if not _may_open(seconds[batch], num_ranks, limit, fs, ns):
                ns[NEXT] = opening
            elif _worth(batch, batch - 1, now > fitting, seconds, numbers):
                return _open(batch, seconds, next_fs, next_ns)
        elif now == opening:
            spare = _spare_after(fs, num_ranks) - sync
            if spare >= 0 and spare >= _least_waste(seconds, num_ranks, limit, numbers):
                return _begin_step(spare, seconds, numbers, next_fs, next_ns)
        else:
            batch = middle - (now - opening)
            if ns[SIZE] == limit or ns[CLOSED] * (fs[LOAD] + seconds[batch]) - fs[WORK] > fs[SPARE]:
                ns[NEXT] = exceeding
            elif _worth(batch, batch + 1, now > opening + 1, seconds, numbers):
                return _join(batch, seconds, next_fs, next_ns)
    return -1


@cached_njit
def _may_open(seconds: float, num_ranks: int, limit: int, floats: FloatArray, ints: IntArray) -> bool:
    """Whether the open bin is long enough, and another bin of batches no longer than this one can be."""
    if ints[CLOSED] + 1 == num_ranks or _too_short(floats, ints, floats[LOAD]):
        return False
    top = max(floats[TOP], floats[LOAD])
    spare = floats[SPARE] - (ints[CLOSED] + 1) * top + floats[WORK] + floats[LOAD]
    longest: bool = limit * seconds >= top - spare
    return longest


@cached_njit
def _too_short(floats: FloatArray, ints: IntArray, load: float) -> bool:
    """Whether a bin of this load leaves too much idle time in this step."""
    short: bool = ints[CLOSED] > 0 and load < floats[TOP] - (floats[SPARE] - ints[CLOSED] * floats[TOP] + floats[WORK])
    return short


@cached_njit
def _worth(batch: int, before: int, any_before: bool, seconds: FloatArray, numbers: IntArray) -> bool:
    """Whether a batch is unplaced and differs from the alternative tried before it."""
    same: bool = any_before and numbers[before] < 0 and seconds[batch] == seconds[before]
    return numbers[batch] < 0 and not same


@cached_njit
def _join(batch: int, seconds: FloatArray, floats: FloatArray, ints: IntArray) -> int:
    """Place a batch into the open bin."""
    floats[LOAD] += seconds[batch]
    ints[SIZE] += 1
    ints[LAST] = batch
    return batch


@cached_njit
def _open(batch: int, seconds: FloatArray, floats: FloatArray, ints: IntArray) -> int:
    """Place a batch into another bin of this step."""
    floats[TOP] = max(floats[TOP], floats[LOAD])
    floats[WORK] += floats[LOAD]
    ints[CLOSED] += 1
    floats[LOAD] = seconds[batch]
    ints[SIZE], ints[FIRST], ints[LAST] = 1, batch, batch
    ints[BIN] += 1
    return batch


@cached_njit
def _begin_step(spare: float, seconds: FloatArray, numbers: IntArray, floats: FloatArray, ints: IntArray) -> int:
    """Place the longest remaining batch into a new step."""
    batch = 0
    while numbers[batch] >= 0:
        batch += 1
    _open(batch, seconds, floats, ints)
    floats[SPARE], floats[TOP], floats[WORK] = spare, 0.0, 0.0
    ints[CLOSED] = 0
    return batch


@cached_njit
def _least_waste(seconds: FloatArray, num_ranks: int, limit: int, numbers: IntArray) -> float:
    """Return a lower bound of the idle time of unplaced batches, as ``bins.lower_bound``."""
    total = 0.0
    for batch in range(len(seconds)):
        if numbers[batch] < 0:
            total += seconds[batch]
    least, firsts, left, held, ahead = total / num_ranks, 0.0, total, 0, 0
    seen, steps = 0, 0
    for batch in range(len(seconds)):
        if numbers[batch] >= 0:
            continue
        if seen % (num_ranks * limit) == 0:
            firsts += seconds[batch]
            steps += 1
            while ahead < len(seconds) and held < steps * (1 + (num_ranks - 1) * limit):
                if numbers[ahead] < 0:
                    left -= seconds[ahead]
                    held += 1
                ahead += 1
            least = max(least, firsts + left / num_ranks)
        seen += 1
    return num_ranks * least - total


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
