"""The schedule as an integer programme, for an open solver (HiGHS, which comes with SciPy).

The programme usually written for this has a variable for every batch, step and rank, and each schedule many times over:
steps and ranks can be renamed. Here there are bins, but no steps and no ranks. With N(s) the number of bins that take
at least s seconds, ceil(N(s) / W) steps do, and an epoch takes the integral of this over s. N changes only at the
loads that bins can have, v_1 < v_2 < ...:

    minimise    sum_j (v_j - v_(j-1)) c_j + agree c_1
    where       every batch is in one of the bins that are chosen,
                W c_j >= the number of chosen bins whose load is at least v_j,    c_j whole numbers

Without "whole" it gives the bound sum(t) / W. Batches that take exactly as long are one kind, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np

from strobe.ops.csr import FloatArray, IntArray
from strobe.schedule.bins import SAME, Bins
from strobe.schedule.costs import Costs

BINS = 860
"""Bins that can be chosen, at most: 40 batches, two on a rank. With more the solver rarely ends in time, and is late to
look at the clock."""


@dataclass(frozen=True)
class Answer:
    """Bins, if the solver found any; and seconds that no schedule stays below."""

    bins: Bins | None
    bound: float


def fits(costs: Costs, limit: int) -> bool:
    """Whether the programme is small enough to be worth a try."""
    kinds = len(np.unique(costs.seconds))
    return sum(comb(kinds + size - 1, size) for size in range(1, limit + 1)) <= BINS


def ask(costs: Costs, num_ranks: int, limit: int, bound: float, gap: float, seconds: float) -> Answer:
    """The solver's answer after so many seconds at most, or when it knows the cost to a gap, as a part of it."""
    from scipy.optimize import Bounds, milp  # takes its time to load

    kinds, of_batch, counts = np.unique(costs.seconds, return_inverse=True, return_counts=True)
    choice = _choices(counts, limit)
    loads = np.array([kinds[list(members)].sum() for members in choice])
    levels = np.unique(loads)
    price = np.concatenate([np.zeros(len(choice)), np.diff(levels, prepend=0.0)])
    price[len(choice)] += costs.agree_s
    num_steps = -(-len(costs) // num_ranks)
    most = np.concatenate([np.full(len(choice), len(costs)), np.full(len(levels), num_steps)])
    result = milp(
        price,
        integrality=np.ones(len(price)),
        bounds=Bounds(np.zeros(len(price)), most),
        constraints=_rules(choice, loads, levels, counts, price, num_ranks, bound),
        options={"time_limit": seconds, "mip_rel_gap": gap},
    )
    told = bound if result.mip_dual_bound is None else max(bound, float(result.mip_dual_bound) * (1 - SAME))
    if result.x is None:
        return Answer(None, told)
    chosen = np.rint(result.x[: len(choice)]).astype(np.int64)
    return Answer(_bins(choice, chosen, of_batch.tolist(), len(kinds)), told)


def _choices(counts: IntArray, limit: int) -> list[tuple[int, ...]]:
    """The kinds of batches in every bin there can be."""
    return [
        members
        for size in range(1, limit + 1)
        for members in combinations_with_replacement(range(len(counts)), size)
        if all(members.count(kind) <= counts[kind] for kind in set(members))
    ]


def _rules(
    choice: list[tuple[int, ...]],
    loads: FloatArray,
    levels: FloatArray,
    counts: IntArray,
    price: FloatArray,
    num_ranks: int,
    bound: float,
) -> list[Any]:
    """What a schedule keeps to: see above. Columns are bins, then the steps of every level."""
    from scipy import sparse
    from scipy.optimize import LinearConstraint

    num, steps = len(choice), len(levels)
    members = [(kind, at) for at, kinds in enumerate(choice) for kind in kinds]  # twice where two are of a kind
    rows, columns = np.array(members).T
    batches = sparse.csr_array((np.ones(len(members)), (rows, columns)), shape=(len(counts), num + steps))
    reach = sparse.csr_array((levels[:, None] <= loads[None, :]).astype(float))
    fewer = sparse.eye_array(steps - 1, steps) - sparse.eye_array(steps - 1, steps, k=1)
    return [
        LinearConstraint(batches, counts, counts),
        LinearConstraint(sparse.hstack([-reach, num_ranks * sparse.eye_array(steps)]), 0, np.inf),
        LinearConstraint(sparse.hstack([sparse.csr_array((steps - 1, num)), fewer]), 0, np.inf),
        LinearConstraint(price[None, :], bound * (1 - SAME), np.inf),
    ]


def _bins(choice: list[tuple[int, ...]], chosen: IntArray, of_batch: list[int], num_kinds: int) -> Bins:
    """Batches for the bins that were chosen, of every kind the first that is left."""
    left: list[list[int]] = [[] for _ in range(num_kinds)]
    for batch, kind in reversed(list(enumerate(of_batch))):
        left[kind].append(batch)
    return [
        [left[kind].pop() for kind in members]
        for members, times in zip(choice, chosen.tolist(), strict=True)
        for _ in range(times)
    ]
