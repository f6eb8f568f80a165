"""Seconds of batches: growing, skewed, uniform, equal, with a dominant one, all zero; and a brute-force optimum."""

from __future__ import annotations

import numpy as np

from strobe.ops.sparse.csr import FloatArray
from strobe.schedule import Costs, Steps

KINDS = ("growing", "skewed", "uniform", "equal", "giant", "zero")


def draw(kind: str, num: int, seed: int = 0) -> FloatArray:
    random = np.random.default_rng(seed)
    if kind == "growing":
        seconds = (1 + 9 * np.arange(num) / max(num, 1)) * (1 + 0.03 * random.standard_normal(num))
    elif kind == "skewed":
        seconds = random.lognormal(0, 1, num)
    elif kind == "equal":
        seconds = np.full(num, 0.3)
    elif kind == "zero":
        seconds = np.zeros(num)
    else:
        seconds = random.uniform(0.5, 1.5, num)
        if kind == "giant" and num:
            seconds[num // 2] = seconds.sum()
    return seconds


def check_steps(steps: Steps, num: int, num_ranks: int, limit: int) -> None:
    """Check that every batch runs once, within the limit, in sorted steps without empty ones."""
    assert sorted(batch for step in steps for batches in step for batch in batches) == list(range(num))
    assert all(len(step) == num_ranks for step in steps)
    assert all(len(batches) <= limit and batches == sorted(batches) for step in steps for batches in step)
    assert all(any(step) for step in steps)
    means = [np.mean([batch for batches in step for batch in batches]) for step in steps]
    assert means == sorted(means)


def shortest(costs: Costs, num_ranks: int, limit: int) -> float:
    """Return the seconds of the shortest epoch, by enumerating all bins and all steps."""

    def ways(first: int, groups: list[list[int]], room: int) -> list[list[list[int]]]:
        if first == num:
            return [groups]
        grown = [
            [*groups[:at], [*group, first], *groups[at + 1 :]] for at, group in enumerate(groups) if len(group) < room
        ]
        return [way for into in [*grown, [*groups, [first]]] for way in ways(first + 1, into, room)]

    best = np.inf
    num = len(costs)
    for bins in ways(0, [], limit):
        loads = [float(sum(costs.seconds[batch] for batch in batches)) for batches in bins]
        num = len(bins)
        for steps in ways(0, [], num_ranks):
            best = min(best, sum(max(loads[b] for b in step) + costs.sync_s for step in steps))
        num = len(costs)
    return best
