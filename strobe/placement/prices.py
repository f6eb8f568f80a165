"""Prices of room on ranks, and rewards for nodes that stay (Zhang and Wu 2025, Algorithm 3)."""

from __future__ import annotations

import math

import numpy as np

from strobe.ops.csr import FloatArray, IntArray


def prices(held: IntArray, capacity: int, least: float, eta: float) -> FloatArray:
    """What a byte costs on each rank for as long as a snapshot is kept, [W]: the sum of lambda over its window.

    ``held`` has, for each of those times, what ranks will hold then of what they have now, [T, W]. A price begins at
    F = ``least`` / (2 eta), where least is the lowest utility per byte, and every byte multiplies it: equation (11),
    after all of them, is lambda = F (2 eta) ** (held / capacity).
    """
    rise = math.log(2 * eta)
    full = [[math.exp(rise * int(taken) / capacity) for taken in ranks] for ranks in held]
    total: FloatArray = np.array(full).sum(0) * (least / (2 * eta))
    return total


def rewards(utility: float, price: FloatArray, taken: IntArray, num_cells: int, eta: float) -> FloatArray:
    """What a cell of a rank counts beyond its own edges, [W]: its part of what the snapshot is worth to the rank.

    It is mu for the next snapshot, once this one is placed. Never below 0, as (8b) asks.
    """
    if not num_cells:
        return np.zeros(len(price))
    worth = (utility / len(price) - price * taken) / num_cells
    return np.maximum((math.log(2 * eta) - 1) * worth, 0.0) if 2 * eta > math.e else np.zeros(len(price))
