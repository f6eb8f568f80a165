"""How sizes change from snapshot to snapshot, and how a total is split into whole numbers."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from strobe.ops.csr import FloatArray, IntArray

Curve = Literal["linear", "exponential", "saturating"]
CURVES: tuple[Curve, ...] = get_args(Curve)

_BEND = 4.0  # a saturating curve covers 1 - exp(-4) = 98% of the way to its ceiling


def growth_curve(num: int, ratio: float, curve: Curve = "linear") -> FloatArray:
    """``num`` relative sizes that grow from 1 to ``ratio``.

    linear: by the same amount each time; exponential: by the same factor; saturating: fast, then ever slower.
    """
    x = np.linspace(0, 1, num)
    if curve == "exponential":
        return np.asarray(ratio**x)
    if curve == "saturating":
        x = np.expm1(-_BEND * x) / np.expm1(-_BEND)
    return 1 + (ratio - 1) * x


def apportion(weights: FloatArray, total: int) -> IntArray:
    """Whole numbers in proportion to the weights, each off by less than one, that add up to ``total`` exactly."""
    mass = np.cumsum(weights, dtype=np.float64)
    if mass.size == 0 or mass[-1] <= 0:
        mass = np.arange(1.0, mass.size + 1)
    return np.diff(np.rint(mass / mass[-1:] * total), prepend=0).astype(np.int64)
