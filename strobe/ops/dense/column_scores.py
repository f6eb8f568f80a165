"""Scores that depend on the column alone, except for some pairs: ranks by sorted columns, without scoring all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.ops.dense.factored_scores import PairValues
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_ranges


@dataclass(frozen=True, eq=False)
class ColumnScores:
    """Scores ``of_columns`` of all rows, with ``pairs`` added to some of them, on the CPU.

    Args:
        of_columns: [M], without NaN.
        pairs: added to the scores of some pairs, at most once each.
    """

    of_columns: Tensor
    pairs: PairValues

    def at(self, index: Tensor) -> Tensor:
        """The scores of pairs, [2, n]."""
        return self.of_columns[index[1]] + self.pairs.at(index)

    def count_above(
        self, excluded: Tensor, hidden: Tensor, threshold_ptr: Tensor, low: Tensor, high: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """``FactoredScores.count_above``: thresholds are looked up among sorted columns, and corrected for pairs."""
        columns, pairs = self.of_columns.numpy(), self.pairs.with_excluded(excluded)
        is_hidden = np.zeros(len(columns), bool)
        is_hidden[hidden.numpy()] = True
        ordered = np.sort(columns[~is_hidden])
        above = len(ordered) - np.searchsorted(ordered, high.numpy(), "right")
        at_least = len(ordered) - np.searchsorted(ordered, low.numpy(), "left")
        ptr = threshold_ptr.numpy()
        arrays: Any = (pairs.ptr, pairs.col, pairs.value, columns, is_hidden, ptr, low.numpy(), high.numpy())
        counts: Any = (above, at_least)
        run_ranges(lambda first, last: _correct(first, last, *arrays, *counts), len(ptr) - 1)
        return torch.from_numpy(above), torch.from_numpy(at_least), torch.zeros(len(ptr) - 1, dtype=torch.bool)


@cached_njit
def _correct(
    first: int,
    last: int,
    ptr: Any,
    col: Any,
    value: Any,
    of_columns: Any,
    is_hidden: Any,
    threshold_ptr: Any,
    low: Any,
    high: Any,
    above: Any,
    at_least: Any,
) -> None:
    """Replace the scores of columns by those of pairs in the counts of some rows; -inf leaves a pair out."""
    for row in range(first, last):
        for k in range(ptr[row], ptr[row + 1]):
            if is_hidden[col[k]] or (k > ptr[row] and col[k] == col[k - 1]):
                continue
            before, added, m = of_columns[col[k]], value[k], k + 1
            while m < ptr[row + 1] and col[m] == col[k]:  # a pair with a value that is left out comes twice
                added = min(added, value[m])
                m += 1
            for p in range(threshold_ptr[row], threshold_ptr[row + 1]):
                above[p] += int(before + added > high[p]) - int(before > high[p])
                at_least[p] += int(before + added >= low[p]) - int(before >= low[p])
