"""Counts of scores by sorted columns against those of all scores in memory."""

from __future__ import annotations

import pytest
import torch

from strobe.ops.dense.column_scores import ColumnScores
from strobe.ops.dense.factored_scores import PairValues, count_above_plain


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_those_of_scores_in_memory(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    rows, columns = 6, 8
    of_columns = torch.randint(0, 4, (columns,), generator=rng).double()  # with ties
    related, excluded = (torch.nonzero(torch.rand(rows, columns, generator=rng) < 0.4).T for _ in range(2))
    values = torch.randint(-2, 3, (related.shape[1],), generator=rng).double()
    found = ColumnScores(of_columns, PairValues.build(related, values, rows))
    scores = of_columns.repeat(rows, 1).index_put_((related[0], related[1]), values, accumulate=True)
    thresholds = torch.nonzero(torch.rand(rows, columns, generator=rng) < 0.5).T
    own = scores[thresholds[0], thresholds[1]]
    assert found.at(thresholds).tolist() == own.tolist()
    ptr = torch.searchsorted(thresholds[0].contiguous(), torch.arange(rows + 1))
    arguments = excluded, torch.tensor([1, 5]), ptr, own - 0.5, own + 0.5
    for ours, plain in zip(found.count_above(*arguments), count_above_plain(scores, *arguments), strict=True):
        assert ours.tolist() == plain.tolist()
