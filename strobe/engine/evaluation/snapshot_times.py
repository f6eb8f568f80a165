"""Times of snapshots, also of those that follow the last one of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.graph import DynamicGraph

_MONTH = np.dtype("datetime64[M]")


def time_of(graph: DynamicGraph, t: int) -> int | str | None:
    """When snapshot t is, also beyond the last one if all snapshots are equally far apart, in days, seconds, or months.

    Text for all snapshots where it is for one, because a column has one type.

    Returns:
        The time; None if it cannot be known.
    """
    is_text = not all(isinstance(time, int) for time in graph.times)
    if t < len(graph):
        return str(graph.times[t]) if is_text else graph.times[t]
    if len(graph) < 2:
        return None
    if not is_text:
        numbers = np.array(graph.times)
        found = _continue(numbers, t)
        return None if found is None else int(found)
    try:
        dates = np.array([str(time) for time in graph.times], np.datetime64)
    except ValueError:
        return None
    found = _continue(dates, t)
    if found is None and dates.dtype != _MONTH and (dates == dates.astype(_MONTH)).all():
        month = _continue(dates.astype(_MONTH), t)
        found = None if month is None else np.asarray(month).astype(dates.dtype)[()]
    return None if found is None else str(found)


def _continue(times: npt.NDArray[Any], t: int) -> Any:
    """Element t of times whose differences are all equal; None if they are not."""
    steps = np.diff(times)
    if (steps != steps[0]).any():
        return None
    return times[-1] + steps[0] * (t - len(times) + 1)
