"""Packing to within a gap of the optimum, of all batches or of few only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from time import monotonic
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.schedule.costs import Costs, Solution
from strobe.schedule.greedy import Greedy, greedy_bins
from strobe.schedule.packing.base import BinPacking
from strobe.schedule.packing.bins import TOLERANCE, Bins, cost_of_bins, lower_bound, make_solution
from strobe.schedule.packing.search import FOUND, UNKNOWN, improve_bins, search

SHORT, LONG = (24, 100_000), (3, 1_000_000)
"""Restarts of the local search, and exchanges in each: half a second at first, a few seconds later."""

TRIES = 3_000_000
"""Most placements of batches in one branch-and-bound search: one or two seconds."""

MAX_SEARCHED = 200
"""Most batches for branch and bound."""

STRIDE = 0.005
"""Smallest relative step by which the search raises the bound."""


@dataclass(frozen=True, kw_only=True)
class Optimal(BinPacking):
    """A schedule within ``gap`` of a lower bound of all schedules, or the best one found within ``time_limit_s``.

    Starts from the greedy schedule and stops as soon as it is within the gap: local search, then branch and bound,
    which finds a better schedule or raises the bound, then a longer local search. All stages are bounded by counts and
    so deterministic, unless the machine is so slow that the time limit ends them. A stage that has begun is completed,
    which may exceed the limit by a few seconds.

    Args:
        gap: largest accepted relative distance to the lower bound.
        time_limit_s: seconds after which no further stage begins.
    """

    name: ClassVar[str] = "optimal"
    gap: float = 0.02
    time_limit_s: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gap < 1:
            raise OptionError(f"gap must be from 0 to below 1, not {self.gap}")
        if not 0 < self.time_limit_s < float("inf"):
            raise OptionError(f"time_limit_s must be above 0, not {self.time_limit_s}")

    def solve(self, costs: Costs, num_ranks: int) -> Solution:
        state = _State(
            costs, num_ranks, self.max_per_step, self.gap, np.inf, lower_bound(costs, num_ranks, self.max_per_step)
        )
        state = state.with_bins(greedy_bins(costs, num_ranks, self.max_per_step), "greedy")
        if not state.is_good:
            _compile()
            state = replace(state, until=monotonic() + self.time_limit_s)
        for stage in (_try_exchanges, _try_search, _try_more_exchanges):
            if state.is_good or monotonic() >= state.until:
                break
            state = stage(state)
        return make_solution(state.bins, costs, num_ranks, state.bound, state.description)


@cache
def _compile() -> None:
    """Compile the kernels, so that compilation does not count towards the time limit."""
    few = Costs(np.array([3.0, 2.0, 1.0]))
    list(improve_bins([[0], [1], [2]], few, 2, 2, 0.0, restarts=1, exchanges=1))
    search(few, 2, 2, 3.0, 10)


@dataclass(frozen=True)
class _State:
    """The problem, the best bins so far, and the lower bound."""

    costs: Costs
    num_ranks: int
    limit: int
    gap: float
    until: float
    bound: float
    bins: Bins = field(default_factory=list)
    cost: float = np.inf
    method: str = ""

    def with_bins(self, bins: Bins, method: str) -> _State:
        """Replace the bins if these are better."""
        loads = np.array([self.costs.seconds[batches].sum() for batches in bins])
        cost = cost_of_bins(loads, self.num_ranks, self.costs.sync_s)
        return replace(self, bins=bins, cost=cost, method=method) if cost < self.cost else self

    def with_bound(self, bound: float) -> _State:
        return replace(self, bound=max(self.bound, bound))

    @property
    def goal(self) -> float:
        return self.bound * (1 + self.gap)

    @property
    def is_good(self) -> bool:
        return self.cost <= self.goal * (1 + TOLERANCE)

    @property
    def description(self) -> str:
        return f"{self.method}, proven" if self.cost <= self.bound * (1 + TOLERANCE) else self.method


def _try_exchanges(state: _State, effort: tuple[int, int] = SHORT) -> _State:
    restarts, exchanges = effort
    method = state.method if state.method.endswith("exchanges") else f"{state.method}, then exchanges"
    for bins in improve_bins(
        state.bins, state.costs, state.num_ranks, state.limit, state.goal, restarts=restarts, exchanges=exchanges
    ):
        state = state.with_bins(bins, method)
        if state.is_good or monotonic() >= state.until:
            break
    return state


def _try_more_exchanges(state: _State) -> _State:
    return _try_exchanges(state, LONG)


def _try_search(state: _State) -> _State:
    """Search for a schedule at the goal. If there is none, raise the bound and with it the goal. If the search runs out
    of tries, halve the step: a goal closer to the bound is easier to rule out."""
    stride = max(state.gap, STRIDE)
    while len(state.costs) <= MAX_SEARCHED and not state.is_good and monotonic() < state.until:
        better = state.cost * (1 - TOLERANCE)
        goal = min(better, state.bound * (1 + stride))
        outcome, bins = search(state.costs, state.num_ranks, state.limit, goal, TRIES)
        if outcome == FOUND:
            state = state.with_bins(bins, "search")
        elif outcome != UNKNOWN:
            state = state.with_bound(state.cost if goal == better else goal * (1 - TOLERANCE))
        elif stride > STRIDE:
            stride = max(stride / 2, STRIDE)
        else:
            break
    return state


@dataclass(frozen=True, kw_only=True)
class Balanced(BinPacking):
    """``optimal`` for up to ``max_batches`` batches, ``greedy`` above: with many batches both are equally good.

    Args:
        max_batches: the largest number of batches for ``optimal``.
        gap: passed to ``optimal``.
    """

    name: ClassVar[str] = "balanced"
    max_batches: int = 100
    gap: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_batches < 0:
            raise OptionError(f"max_batches must be 0 or more, not {self.max_batches}")
        Optimal(gap=self.gap)  # checks gap

    def solve(self, costs: Costs, num_ranks: int) -> Solution:
        if len(costs) <= self.max_batches:
            return Optimal(max_per_step=self.max_per_step, gap=self.gap).solve(costs, num_ranks)
        return Greedy(max_per_step=self.max_per_step).solve(costs, num_ranks)
