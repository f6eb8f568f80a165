"""Scores as factors against whole matrices of scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from strobe.ops.dense import factored_scores
from strobe.ops.dense.factored_scores import (
    TILE_COLUMNS,
    FactoredScores,
    PairValues,
    count_above_in_rows,
    count_above_plain,
)


def random_pairs(rows: int, columns: int, count: int, seed: int) -> torch.Tensor:
    """Distinct pairs in random order."""
    cells = np.random.default_rng(seed).permutation(rows * columns)[:count]
    return torch.from_numpy(np.stack(np.divmod(cells, columns)))


def make_scores(rows: int, columns: int, dtype: torch.dtype = torch.float64) -> FactoredScores:
    """Scores with small integers as factors: products are exact, and many are equal."""
    generator = torch.Generator().manual_seed(rows + columns)
    query, key, of_rows, of_columns = (
        torch.randint(-2, 3, shape, generator=generator).to(dtype)
        for shape in ((rows, 3), (columns, 3), (rows,), (columns,))
    )
    index = random_pairs(rows, columns, min(rows * columns, 40), 1)
    pairs = PairValues.build(index, torch.arange(index.shape[1]).to(dtype), rows)
    return FactoredScores(query=query, key=key, of_rows=of_rows, of_columns=of_columns, pairs=pairs, block_rows=2)


def dense(scores: FactoredScores) -> torch.Tensor:
    """The formula, pair by pair where there are values of pairs."""
    whole = scores.query @ scores.key.T + scores.of_columns + scores.of_rows[:, None]
    for row in range(len(whole)):
        for k in range(scores.pairs.ptr[row], scores.pairs.ptr[row + 1]):
            whole[row, scores.pairs.col[k]] += scores.pairs.value[k]
    return whole


SIZES = [(1, 1), (5, 7), (3, TILE_COLUMNS), (4, 2 * TILE_COLUMNS + 9), (9, 130)]


@pytest.mark.parametrize("size", SIZES)
def test_blocks_and_single_pairs_are_those_of_the_formula(size: tuple[int, int]) -> None:
    scores = make_scores(*size)
    expected = dense(scores)
    assert torch.equal(torch.cat([block for _, block in scores]), expected)
    index = random_pairs(*size, 30, 2)
    assert torch.equal(scores.at(index), expected[index[0], index[1]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_counts_of_tiles_rows_and_plain_torch_are_equal(
    size: tuple[int, int], threads: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factored_scores, "TILE_ROWS", 2)
    monkeypatch.setattr(factored_scores, "STRIP_TILES", 1)
    monkeypatch.setattr(factored_scores, "PLAIN_SCORES", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    scores = make_scores(*size, dtype)
    scores.query[-1, 0] = torch.nan if size[0] > 3 else 0
    rng = np.random.default_rng(3)
    counts = torch.from_numpy(rng.integers(0, 4, size[0]))
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    low = torch.from_numpy(rng.integers(-6, 6, int(ptr[-1]))).to(dtype)
    hidden = torch.from_numpy(np.flatnonzero(rng.random(size[1]) < 0.1))
    arguments = (random_pairs(*size, 20, 4), hidden, ptr, low, low + 1)
    expected = count_above_plain(dense(scores), *arguments)
    for found in (count_above_in_rows(dense(scores), *arguments), scores.count_above(*arguments)):
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("count", [1, 4, 100])
@pytest.mark.parametrize("size", SIZES)
def test_top_is_that_of_whole_rows_with_the_first_of_equal_columns(size: tuple[int, int], count: int) -> None:
    count = min(count, size[1])
    scores = make_scores(*size)
    scores.key[0] = torch.nan if size[1] > 10 else 0
    scores.of_columns[1::3] = -torch.inf
    expected = torch.sort(dense(scores), dim=1, descending=True, stable=True)
    values, positions = scores.top(count)
    torch.testing.assert_close(values, expected.values[:, :count], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(positions, expected.indices[:, :count])
