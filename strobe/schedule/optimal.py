"""The shortest epoch there is, or one that is nearly as short."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from time import monotonic
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.schedule.bins import SAME, Bins, cost_of_bins, lower_bound, solved
from strobe.schedule.costs import Costs, Solved
from strobe.schedule.greedy import greedy_bins
from strobe.schedule.packing import Packing

SHORT, LONG = (24, 100_000), (3, 1_000_000)
"""Goes, and exchanges in each: half a second at first, a few seconds where that was not enough."""

TRIES = 3_000_000
"""Batches that the search puts somewhere, at most: one or two seconds."""

SEARCHED = 200
"""Batches up to which it is worth to search at all."""

STRIDE = 0.005
"""The least part by which the search raises the bound at once."""


@dataclass(frozen=True, kw_only=True)
class Optimal(Packing):
    """A schedule whose epoch is at most ``gap``, as a part of it, above a bound that none stays
    below; or the best that was found when ``seconds`` are over.

    Starts from the greedy schedule and stops as soon as it is good enough: exchanges batches between bins, then
    searches all schedules that waste little enough, which finds one or raises the bound, then asks an integer
    programme. The first two count what they do, so their answer is the same every time; that of the last, or of a
    slow machine, may depend on the clock. A stage that has begun ends: the whole may take a few seconds more.
    """

    name: ClassVar[str] = "optimal"
    gap: float = 0.02
    seconds: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gap < 1:
            raise OptionError(f"gap is a part of the epoch, from 0 to below 1, not {self.gap}")
        if not 0 < self.seconds < float("inf"):
            raise OptionError(f"seconds must be above 0, not {self.seconds}")

    def solve(self, costs: Costs, num_ranks: int) -> Solved:
        state = _State(costs, num_ranks, self.limit, self.gap, np.inf, lower_bound(costs, num_ranks, self.limit))
        state = state.met(greedy_bins(costs, num_ranks, self.limit), "greedy")
        if not state.good:
            _compile()
            state = replace(state, until=monotonic() + self.seconds)
        for stage in (_exchange, _search, _exchange_longer, _ask):
            if state.good or monotonic() >= state.until:
                break
            state = stage(state)
        return solved(state.bins, costs, num_ranks, state.bound, state.told)


@cache
def _compile() -> None:
    """Once on a machine this takes longer than many a schedule, and must not count as time spent on one."""
    from strobe.schedule.improve import improved
    from strobe.schedule.search import search

    few = Costs(np.array([3.0, 2.0, 1.0]))
    list(improved([[0], [1], [2]], few, 2, 2, 0.0, goes=1, exchanges=1))
    search(few, 2, 2, 3.0, 10)


@dataclass(frozen=True)
class _State:
    """What is asked, the best bins so far, and what is known about better ones."""

    costs: Costs
    num_ranks: int
    limit: int
    gap: float
    until: float
    bound: float
    bins: Bins = field(default_factory=list)
    cost: float = np.inf
    by: str = ""

    def met(self, bins: Bins, by: str) -> _State:
        """With these bins, if they are better."""
        loads = np.array([self.costs.seconds[batches].sum() for batches in bins])
        cost = cost_of_bins(loads, self.num_ranks, self.costs.agree_s)
        return replace(self, bins=bins, cost=cost, by=by) if cost < self.cost else self

    def raised(self, bound: float) -> _State:
        return replace(self, bound=max(self.bound, bound))

    @property
    def goal(self) -> float:
        return self.bound * (1 + self.gap)

    @property
    def good(self) -> bool:
        return self.cost <= self.goal * (1 + SAME)

    @property
    def told(self) -> str:
        return f"{self.by}, proven" if self.cost <= self.bound * (1 + SAME) else self.by


def _exchange(state: _State, how: tuple[int, int] = SHORT) -> _State:
    from strobe.schedule.improve import improved  # numba takes its time to load

    goes, exchanges = how
    by = state.by if state.by.endswith("exchanges") else f"{state.by}, then exchanges"
    ways = improved(state.bins, state.costs, state.num_ranks, state.limit, state.goal, goes=goes, exchanges=exchanges)
    for bins in ways:
        state = state.met(bins, by)
        if state.good or monotonic() >= state.until:
            break
    return state


def _exchange_longer(state: _State) -> _State:
    return _exchange(state, LONG)


def _search(state: _State) -> _State:
    """Is there one that is good enough? If not, the bound is higher than we knew, and so is what is good enough. Where
    that takes too many tries, ask for less: to rule out a goal nearer to the bound takes fewer."""
    from strobe.schedule.search import FOUND, UNKNOWN, search

    stride = max(state.gap, STRIDE)
    while len(state.costs) <= SEARCHED and not state.good and monotonic() < state.until:
        better = state.cost * (1 - SAME)
        goal = min(better, state.bound * (1 + stride))
        verdict, bins = search(state.costs, state.num_ranks, state.limit, goal, TRIES)
        if verdict == FOUND:
            state = state.met(bins, "search")
        elif verdict != UNKNOWN:
            state = state.raised(state.cost if goal == better else goal * (1 - SAME))
        elif stride > STRIDE:
            stride = max(stride / 2, STRIDE)
        else:
            break
    return state


def _ask(state: _State) -> _State:
    from strobe.schedule.programme import ask, fits

    if not fits(state.costs, state.limit):
        return state
    left = max(state.until - monotonic(), 0.1)
    answer = ask(state.costs, state.num_ranks, state.limit, state.bound, state.gap, left)
    state = state.raised(answer.bound)
    return state if answer.bins is None else state.met(answer.bins, "integer programme")
