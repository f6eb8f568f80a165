"""Chebyshev convolutions (Defferrard et al. 2016), as PyTorch Geometric's ``ChebConv`` with its default normalization.

conv(x) = Σ_k T_k(L~) x W_k, k = 0 … K - 1, with L~ = 2 L / λ_max - I, L = I - D^(-1/2) A D^(-1/2), λ_max = 2. So
L~ = -S with S the norm ``sym``. The T_k are polynomials of S: conv(x) = Σ_j S^j x V_j, and the V_j are sums of the
W_k. Powers of S are plain aggregates, which are cached where x is the input.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor, nn

from strobe.errors import OptionError
from strobe.view import View

MAX_FILTER_SIZE = 12
"""Coefficients of T_11 reach 2,816, which multiply the rounding errors of powers; further ones grow 2.4 times per
order."""


def check_filter_size(filter_size: int) -> None:
    """Check the number K of polynomials T_0 … T_(K - 1)."""
    if not 1 <= filter_size <= MAX_FILTER_SIZE:
        raise OptionError(f"filter_size must be between 1 and {MAX_FILTER_SIZE}, not {filter_size}")


def chebyshev_weight(inputs: int, outputs: int, filter_size: int, gates: int) -> nn.Parameter:
    """Weights [gates * outputs, filter_size * inputs] of polynomials of ascending order, each a Glorot matrix."""
    bound = math.sqrt(6 / (inputs + outputs))
    return nn.Parameter(torch.empty(gates * outputs, filter_size * inputs).uniform_(-bound, bound))


def power_weight(weight: Tensor, filter_size: int) -> Tensor:
    """Weights of ``powers`` that equal weights of Chebyshev polynomials, both [outputs, filter_size * F]."""
    by_order = weight.chunk(filter_size, 1)
    by_power = []
    for power in range(filter_size):
        terms = [order[power] * each for order, each in zip(_coefficients(filter_size), by_order, strict=True)]
        by_power.append(torch.stack(terms).sum(0))
    return torch.cat(by_power, 1)


def powers(view: View, x: Tensor, filter_size: int) -> Tensor:
    """Concatenate x, S x, S² x, …, [C, filter_size * F]."""
    terms = [x]
    while len(terms) < filter_size:
        terms.append(view.aggregate(terms[-1], "sym"))
    return torch.cat(terms, 1)


@cache
def _coefficients(filter_size: int) -> tuple[tuple[int, ...], ...]:
    """Coefficients of S^j in T_k(-S), by k and j: T_0 = 1, T_1 = -S, T_k = -2 S T_(k - 1) - T_(k - 2)."""
    rows = [[1] + [0] * (filter_size - 1)]
    if filter_size > 1:
        rows.append([0, -1] + [0] * (filter_size - 2))
    while len(rows) < filter_size:
        shifted = [0, *rows[-1][:-1]]
        rows.append([-2 * a - b for a, b in zip(shifted, rows[-2], strict=True)])
    return tuple(map(tuple, rows))
