"""Ranks of positives among candidates, with the tie rule of TGB.

The rank of a positive is 1 + (optimistic + pessimistic) / 2: optimistic is the number of negatives with a larger score,
pessimistic the number of negatives with a score at least as large. Negatives are all candidates except the positive and
the positives of the same source and time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.errors import OptionError
from strobe.ops.runtime.njit import cached_njit
from strobe.protocols.events import EventStream, Floats


def rank_events(stream: EventStream, first: int, scores: np.ndarray[Any, Any]) -> Floats:
    """Rank the destinations of consecutive events among all destinations.

    Args:
        stream: the events.
        first: number of the first event.
        scores: of every destination for every event, [n, num_dst].

    Returns:
        Ranks from 1 on, [n].

    Raises:
        OptionError: the scores have another shape, or are not all numbers: NaN would rank first.
    """
    if scores.ndim != 2 or scores.shape[1] != stream.num_dst or first + len(scores) > len(stream):
        raise OptionError(f"scores have the shape {scores.shape}: a row per event and {stream.num_dst} columns needed")
    if np.isnan(scores).any():
        raise OptionError("scores must be numbers: some are NaN")
    ptr, others = stream.conflicts
    ranks = np.empty(len(scores))
    _rank_rows(scores, stream.dst[first : first + len(scores)], ptr[first : first + len(scores) + 1], others, ranks)
    return ranks


def reciprocal_mean(ranks: Floats) -> float:
    """Return the mean reciprocal rank (MRR)."""
    return float(np.mean(1 / ranks))


@cached_njit
def _rank_rows(scores: Any, target: Any, ptr: Any, others: Any, ranks: Any) -> None:
    for row in range(len(scores)):
        positive = scores[row, target[row]]
        larger, at_least = 0, -1  # the positive is at least as large as itself
        for column in range(scores.shape[1]):
            larger += scores[row, column] > positive
            at_least += scores[row, column] >= positive
        for k in range(ptr[row], ptr[row + 1]):
            larger -= scores[row, others[k]] > positive
            at_least -= scores[row, others[k]] >= positive
        ranks[row] = 1 + (larger + at_least) / 2
