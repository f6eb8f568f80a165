"""Ranks in a grid against loops over all of its scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.tasks.grid import CandidateGrid, rank_in_grid, top_candidates


def make_grid(
    sources: list[int], candidates: list[int], positive: list[tuple[int, int]], weight: list[float] | None = None
) -> CandidateGrid:
    return CandidateGrid(
        sources=torch.tensor(sources, dtype=torch.int64),
        candidates=torch.tensor(candidates, dtype=torch.int64),
        positive=torch.tensor(sorted(positive), dtype=torch.int64).reshape(-1, 2).T,
        related=torch.empty(2, 0, dtype=torch.int64),
        related_features=torch.empty(0, 0),
        log_weight=None if weight is None else torch.tensor(weight),
    )


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_ranks_are_those_of_a_loop_over_all_scores(data: st.DataObject) -> None:
    num_sources, num_candidates = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 7))
    sources = data.draw(st.permutations(range(9)))[:num_sources]
    candidates = data.draw(st.permutations(range(9)))[:num_candidates]
    cells = [(r, c) for r in range(num_sources) for c in range(num_candidates) if sources[r] != candidates[c]]
    positive = data.draw(st.lists(st.sampled_from(cells), unique=True)) if cells else []
    weight = data.draw(st.lists(st.sampled_from([0.0, -torch.inf]), min_size=num_candidates, max_size=num_candidates))
    values = data.draw(
        st.lists(st.integers(-3, 3), min_size=num_sources * num_candidates, max_size=num_sources * num_candidates)
    )
    scores = torch.tensor(values, dtype=torch.float64).reshape(num_sources, num_candidates)
    size = data.draw(st.integers(1, 5))
    grid = make_grid(sources, candidates, positive, weight)
    blocks = ((first, scores[first : first + size].clone()) for first in range(0, num_sources, size))
    expected = []
    for r, c in sorted(positive):
        negatives = [
            values[r * num_candidates + k]
            for k in range(num_candidates)
            if (r, k) not in positive and sources[r] != candidates[k] and weight[k] == 0
        ]
        own = values[r * num_candidates + c]
        expected.append([own, sum(v > own for v in negatives), sum(v == own for v in negatives), len(negatives)])
    np.testing.assert_array_equal(rank_in_grid(grid, blocks).numpy(), np.array(expected).reshape(-1, 4))


def test_scores_that_differ_in_their_last_digits_tie() -> None:
    grid = make_grid([0], [1, 2, 3], [(0, 0)])
    scores = torch.tensor([[1.0, 1.0 + 1e-7, 1.0 - 1e-7]])
    assert rank_in_grid(grid, iter([(0, scores)])).tolist() == [[1.0, 0.0, 2.0, 2.0]]


def test_a_nan_among_the_scores_of_a_source_gives_nan_for_this_source_alone() -> None:
    grid = make_grid([0, 1], [2, 3, 4], [(0, 0), (1, 1)])
    scores = torch.tensor([[1.0, torch.nan, 0.0], [1.0, 2.0, 3.0]])
    found = rank_in_grid(grid, iter([(0, scores)]))
    assert bool(found[0, :3].isnan().all())
    assert found[1].tolist() == [2.0, 1.0, 0.0, 2.0]


@pytest.mark.parametrize("count", [1, 3])
def test_top_candidates_have_the_highest_scores(count: int) -> None:
    scores = torch.tensor([[1.0, 5.0, 3.0, -torch.inf], [0.0, -1.0, 7.0, 2.0]])
    values, positions = top_candidates(iter([(0, scores[:1]), (1, scores[1:])]), count)
    assert positions.tolist() == [[1, 2, 0][:count], [2, 3, 0][:count]]
    assert values.tolist() == [[5.0, 3.0, 1.0][:count], [7.0, 2.0, 0.0][:count]]
