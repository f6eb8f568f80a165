"""All schedules that waste no more than they may, batch by batch, until one is found or there is none.

What all ranks together wait in an epoch is W times its length, less what there is to do. A schedule that is to be short
may waste little; so the bins of a step must be about as long as each other, and not many are.
"""

from __future__ import annotations

import numpy as np

from strobe.ops.compiled import compiled
from strobe.ops.csr import FloatArray, IntArray
from strobe.schedule.bins import Bins, bins_of
from strobe.schedule.costs import Costs
from strobe.schedule.filling import first_within

FOUND, NONE, UNKNOWN = 1, 0, -1


def search(costs: Costs, num_ranks: int, limit: int, goal: float, max_tries: int) -> tuple[int, Bins]:
    """Bins of an epoch no longer than the goal (FOUND); or word that there are none, or that it is UNKNOWN after so
    many batches have been put somewhere."""
    order: IntArray = np.argsort(-costs.seconds, kind="stable")
    seconds = np.ascontiguousarray(costs.seconds[order], np.float64)
    waste = num_ranks * goal - float(seconds.sum())
    agree = num_ranks * float(costs.agree_s)  # every rank waits for it, in every step
    verdict, found = _search(seconds, num_ranks, limit, agree, waste, max_tries)
    numbers = np.empty_like(found)
    numbers[order] = found
    return int(verdict), bins_of(numbers) if verdict == FOUND else []


# Steps are ordered by their longest batch, and so are the bins of a step and the batches of a bin: each schedule is met
# once. Where a batch has been put, the columns of ``real`` and ``whole`` tell where that leaves us:
SPARE = 0  # what may still be wasted, in this step and later
TOP, WORK = 1, 2  # of the bins that this step has had before the one at hand: the longest, and all together
LOAD = 3  # of the bin at hand
CLOSED = 0  # bins that this step has had before
SIZE = 1  # of the bin at hand, in batches
FIRST, LAST = 2, 3  # its batches
BIN = 4  # its number
NEXT = 5  # what to try next, see _put_next


@compiled
def _search(
    seconds: FloatArray, num_ranks: int, limit: int, agree: float, waste: float, max_tries: int
) -> tuple[int, IntArray]:
    num = len(seconds)
    numbers = np.full(num, -1, np.int64)  # the bin of every batch, longest batch first
    real, whole = np.zeros((num + 1, 4)), np.zeros((num + 1, 6), np.int64)
    real[1, SPARE], real[1, LOAD] = waste - agree, seconds[0]
    whole[1, SIZE] = 1
    numbers[0] = 0
    depth = 1  # batches that are somewhere
    for _ in range(max_tries):
        if depth == num and _spare_after(real[depth], num_ranks) >= 0:
            return FOUND, numbers
        batch = -1
        if depth < num:
            batch = _put_next(seconds, num_ranks, limit, agree, numbers, real, whole, depth)
        if batch >= 0:
            depth += 1
            numbers[batch] = whole[depth, BIN]
            continue
        if depth == 1:
            return NONE, numbers
        numbers[whole[depth, LAST]] = -1
        depth -= 1
    return UNKNOWN, numbers


@compiled
def _spare_after(real: FloatArray, num_ranks: int) -> float:
    """What may still be wasted when this step is over."""
    spare: float = real[SPARE] - num_ranks * max(real[TOP], real[LOAD]) + real[WORK] + real[LOAD]
    return spare


@compiled
def _put_next(
    seconds: FloatArray,
    num_ranks: int,
    limit: int,
    agree: float,
    numbers: IntArray,
    real: FloatArray,
    whole: IntArray,
    depth: int,
) -> int:
    """The next batch to try from here; where that leads is written one row further. -1: all have been tried.

    First those that fit into the bin at hand; then those that open another bin of this step; then the longest that is
    left, in a new step; last those that make the bin at hand the longest of its step.
    """
    here, at, num = real[depth], whole[depth], len(seconds)
    after, then = real[depth + 1], whole[depth + 1]
    after[:], then[:] = here, at
    then[NEXT] = 0
    start = at[LAST] + 1
    middle = max(start, first_within(seconds, here[LOAD], here[TOP] if at[CLOSED] > 0 else np.inf))
    fitting = num - middle
    opening = fitting + num - at[FIRST] - 1
    exceeding = opening + 1 + middle - start
    while at[NEXT] < exceeding:
        now = at[NEXT]
        at[NEXT] += 1
        if now < fitting:
            batch = middle + now
            if at[SIZE] == limit or _too_short(here, at, here[LOAD] + (limit - at[SIZE]) * seconds[batch]):
                at[NEXT] = fitting  # nor do the shorter ones after it
            elif _worth(batch, batch - 1, now > 0, seconds, numbers):
                return _join(batch, seconds, after, then)
        elif now < opening:
            batch = at[FIRST] + 1 + now - fitting
            if not _may_open(seconds[batch], num_ranks, limit, here, at):
                at[NEXT] = opening
            elif _worth(batch, batch - 1, now > fitting, seconds, numbers):
                return _open(batch, seconds, after, then)
        elif now == opening:
            spare = _spare_after(here, num_ranks) - agree
            if spare >= 0 and spare >= _least_waste(seconds, num_ranks, limit, numbers):
                return _step(spare, seconds, numbers, after, then)
        else:
            batch = middle - (now - opening)
            if at[SIZE] == limit or at[CLOSED] * (here[LOAD] + seconds[batch]) - here[WORK] > here[SPARE]:
                at[NEXT] = exceeding
            elif _worth(batch, batch + 1, now > opening + 1, seconds, numbers):
                return _join(batch, seconds, after, then)
    return -1


@compiled
def _may_open(seconds: float, num_ranks: int, limit: int, real: FloatArray, whole: IntArray) -> bool:
    """Whether the bin at hand is long enough, and another one of this step, of batches no longer than that, may be."""
    if whole[CLOSED] + 1 == num_ranks or _too_short(real, whole, real[LOAD]):
        return False
    top = max(real[TOP], real[LOAD])
    spare = real[SPARE] - (whole[CLOSED] + 1) * top + real[WORK] + real[LOAD]
    longest: bool = limit * seconds >= top - spare
    return longest


@compiled
def _too_short(real: FloatArray, whole: IntArray, load: float) -> bool:
    """Whether a bin of this step that is no longer wastes too much."""
    short: bool = whole[CLOSED] > 0 and load < real[TOP] - (real[SPARE] - whole[CLOSED] * real[TOP] + real[WORK])
    return short


@compiled
def _worth(batch: int, before: int, any_before: bool, seconds: FloatArray, numbers: IntArray) -> bool:
    """Whether a batch is in no bin yet, and the one that was looked at before it was not just the same."""
    same: bool = any_before and numbers[before] < 0 and seconds[batch] == seconds[before]
    return numbers[batch] < 0 and not same


@compiled
def _join(batch: int, seconds: FloatArray, real: FloatArray, whole: IntArray) -> int:
    """Into the bin at hand."""
    real[LOAD] += seconds[batch]
    whole[SIZE] += 1
    whole[LAST] = batch
    return batch


@compiled
def _open(batch: int, seconds: FloatArray, real: FloatArray, whole: IntArray) -> int:
    """Into another bin of this step."""
    real[TOP] = max(real[TOP], real[LOAD])
    real[WORK] += real[LOAD]
    whole[CLOSED] += 1
    real[LOAD] = seconds[batch]
    whole[SIZE], whole[FIRST], whole[LAST] = 1, batch, batch
    whole[BIN] += 1
    return batch


@compiled
def _step(spare: float, seconds: FloatArray, numbers: IntArray, real: FloatArray, whole: IntArray) -> int:
    """The longest that is left, into a new step."""
    batch = 0
    while numbers[batch] >= 0:
        batch += 1
    _open(batch, seconds, real, whole)
    real[SPARE], real[TOP], real[WORK] = spare, 0.0, 0.0
    whole[CLOSED] = 0
    return batch


@compiled
def _least_waste(seconds: FloatArray, num_ranks: int, limit: int, numbers: IntArray) -> float:
    """What the batches that are in no bin yet waste at least; as lower_bound() has it."""
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
