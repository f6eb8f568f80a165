"""Packing as an integer program, solved by HiGHS (part of SciPy).

The usual program has a variable for every batch, step and rank, and each schedule many times over, as steps and ranks
can be permuted. This one has bins, but no steps and no ranks. With N(s) the number of bins of at least s seconds,
ceil(N(s) / W) steps take at least s, and an epoch takes the integral of this over s. N changes only at the loads that
bins can have, v_1 < v_2 < ...:

    minimize    sum_j (v_j - v_(j-1)) c_j + sync c_1
    subject to  every batch is in one chosen bin,
                W c_j >= the number of chosen bins whose load is at least v_j,    c_j integer

Its linear relaxation has the bound sum(t) / W. Batches with equal seconds are one kind, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np
from scipy import sparse

from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.schedule.costs import Costs
from strobe.schedule.packing.bins import TOLERANCE, Bins

MAX_BINS = 860
"""Most possible bins: those of 40 batches, two per rank. With more the solver rarely ends in time, and is late to check
the clock."""


@dataclass(frozen=True)
class MilpResult:
    """Bins, if the solver found any, and a lower bound of all schedules."""

    bins: Bins | None
    bound: float


def is_small_enough(costs: Costs, limit: int) -> bool:
    """Whether the program has at most MAX_BINS possible bins."""
    kinds = len(np.unique(costs.seconds))
    return sum(comb(kinds + size - 1, size) for size in range(1, limit + 1)) <= MAX_BINS


def solve_milp(costs: Costs, num_ranks: int, limit: int, bound: float, gap: float, seconds: float) -> MilpResult:
    """Solve the program to a relative gap, or for at most ``seconds``."""
    from scipy import optimize  # slow to import

    kinds, of_batch, counts = np.unique(costs.seconds, return_inverse=True, return_counts=True)
    choices = _possible_bins(counts, limit)
    loads = np.array([kinds[list(members)].sum() for members in choices])
    levels = np.unique(loads)
    price = np.concatenate([np.zeros(len(choices)), np.diff(levels, prepend=0.0)])
    price[len(choices)] += costs.sync_s
    num_steps = -(-len(costs) // num_ranks)
    upper = np.concatenate([np.full(len(choices), len(costs)), np.full(len(levels), num_steps)])
    constraints = _constraints(choices, loads, levels, counts, price, num_ranks, bound)
    result = optimize.milp(
        price,
        integrality=np.ones(len(price)),
        bounds=optimize.Bounds(np.zeros(len(price)), upper),
        constraints=[optimize.LinearConstraint(*each) for each in constraints],
        options={"time_limit": seconds, "mip_rel_gap": gap},
    )
    bound = bound if result.mip_dual_bound is None else max(bound, float(result.mip_dual_bound) * (1 - TOLERANCE))
    if result.x is None:
        return MilpResult(None, bound)
    counts_chosen = np.rint(result.x[: len(choices)]).astype(np.int64)
    return MilpResult(_assign_batches(choices, counts_chosen, of_batch.tolist(), len(kinds)), bound)


def _possible_bins(counts: IntArray, limit: int) -> list[tuple[int, ...]]:
    """Return the kinds of batches of every possible bin."""
    return [
        members
        for size in range(1, limit + 1)
        for members in combinations_with_replacement(range(len(counts)), size)
        if all(members.count(kind) <= counts[kind] for kind in set(members))
    ]


def _constraints(
    choices: list[tuple[int, ...]],
    loads: FloatArray,
    levels: FloatArray,
    counts: IntArray,
    price: FloatArray,
    num_ranks: int,
    bound: float,
) -> list[tuple[Any, Any, Any]]:
    """Return matrix, lower and upper bound of each constraint. Columns are bins, then the steps of every level."""
    num, steps = len(choices), len(levels)
    members = [(kind, at) for at, kinds in enumerate(choices) for kind in kinds]  # once per batch of the kind
    rows, columns = np.array(members).T
    batches = sparse.csr_array((np.ones(len(members)), (rows, columns)), shape=(len(counts), num + steps))
    reach = sparse.csr_array((levels[:, None] <= loads[None, :]).astype(float))
    fewer = sparse.eye_array(steps - 1, steps) - sparse.eye_array(steps - 1, steps, k=1)
    return [
        (batches, counts, counts),
        (sparse.hstack([-reach, num_ranks * sparse.eye_array(steps)]), 0, np.inf),
        (sparse.hstack([sparse.csr_array((steps - 1, num)), fewer]), 0, np.inf),
        (price[None, :], bound * (1 - TOLERANCE), np.inf),
    ]


def _assign_batches(choices: list[tuple[int, ...]], counts: IntArray, of_batch: list[int], num_kinds: int) -> Bins:
    """Assign batches to the chosen bins, of every kind the first remaining."""
    left: list[list[int]] = [[] for _ in range(num_kinds)]
    for batch, kind in reversed(list(enumerate(of_batch))):
        left[kind].append(batch)
    return [
        [left[kind].pop() for kind in members]
        for members, count in zip(choices, counts.tolist(), strict=True)
        for _ in range(count)
    ]
