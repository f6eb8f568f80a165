"""How uneven some loads are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Unevenness of one number per snapshot; all fields are None where the mean is 0 or there is no snapshot."""

    max_over_mean: float | None
    max_over_min: float | None  # None too where the smallest is 0
    variation: float | None  # standard deviation (of all, not of a sample) over mean
    gini: float | None  # 0: all equal; near 1: one has everything

    @classmethod
    def of(cls, values: npt.ArrayLike) -> Spread:
        loads = np.asarray(values, np.float64)
        if loads.size == 0 or loads.sum() == 0:
            return cls(max_over_mean=None, max_over_min=None, variation=None, gini=None)
        mean, low, high = float(loads.mean()), float(loads.min()), float(loads.max())
        return cls(
            max_over_mean=high / mean,
            max_over_min=high / low if low else None,
            variation=float(loads.std()) / mean,
            gini=gini(np.sort(loads)),
        )


def gini(values: npt.ArrayLike, counts: npt.ArrayLike | None = None) -> float:
    """The Gini coefficient of ascending values, each present ``counts`` times; 0 where there is nothing to share."""
    amounts = np.asarray(values, np.float64)
    people = np.ones(amounts.size) if counts is None else np.asarray(counts, np.float64)
    wealth = np.concatenate(([0.0], np.cumsum(amounts * people)))
    if wealth[-1] == 0:
        return 0.0
    # one minus twice the area under the Lorenz curve, by trapezoids, which is exact for steps
    area = float((people * (wealth[1:] + wealth[:-1])).sum()) / (float(people.sum()) * float(wealth[-1]))
    return max(0.0, 1.0 - area)
