"""A grid of sources and candidate destinations, all pairs of which are scored, and ranks of positives in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from strobe.ops.dense.column_scores import ColumnScores
from strobe.ops.dense.factored_scores import FactoredScores, count_above_in_rows, count_above_plain

BLOCK_SCORES = 1 << 20
"""Scores that are in memory at a time without gradients: they stay in a core's cache."""

_TOLERANCE, _TOLERANCE_FLOAT64 = 1e-5, 1e-9
"""Scores that differ by less, relative to a positive's above 1, are equal: other tiles of a product compute the same
score with other last digits."""

_MAX_KEPT = 256
"""Highest scores that are kept in order while tiles are read; more are found in whole rows."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CandidateGrid:
    """Sources and candidates of one snapshot.

    Args:
        sources: node ids, distinct, [S].
        candidates: node ids, distinct, [M].
        positive: rows and columns of positives, in order of rows, [2, n].
        source_features: inputs of the head, [S, K]; None without any.
        candidate_features: the same, [M, K].
        related: rows and columns of pairs with a history, in order of rows, [2, R].
        related_features: [R, P]; all other pairs have zeros.
        source_offset: added to all scores of a source, [S]; None without offsets.
        candidate_offset: added to all scores of a candidate, [M].
        related_offset: added to the scores of related pairs, [R].
        log_weight: logarithm of one over the probability that each candidate was sampled, [M]; None for 0. A candidate
            with -inf is no negative: it is there as a positive alone.
        rows: rows of sources and of candidates among the embeddings that the engine gathers.
    """

    sources: Tensor
    candidates: Tensor
    positive: Tensor
    source_features: Tensor | None = None
    candidate_features: Tensor | None = None
    related: Tensor
    related_features: Tensor
    source_offset: Tensor | None = None
    candidate_offset: Tensor | None = None
    related_offset: Tensor | None = None
    log_weight: Tensor | None = None
    rows: tuple[Tensor, Tensor] | None = None

    def tensors(self) -> Iterator[Tensor]:
        """All tensors but those of rows."""
        values = (getattr(self, each.name) for each in fields(self))
        return (value for value in values if isinstance(value, Tensor))

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> CandidateGrid:
        """The grid on a device, floating-point numbers as ``dtype``."""
        changes: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor):
                changes[each.name] = value.to(device, dtype if value.is_floating_point() else None)
        return replace(self, **changes)

    def rows_of(self, first: int, last: int) -> slice:
        """The related pairs of sources ``first`` up to ``last``."""
        a, b = torch.searchsorted(self.related[0].contiguous(), torch.tensor([first, last], device=self.related.device))
        return slice(int(a), int(b))

    @property
    def same_node(self) -> Tensor:
        """Rows and columns of pairs of a node with itself, which are no negatives, [2, n]."""
        order = torch.argsort(self.candidates)
        ordered = self.candidates[order]
        at = torch.searchsorted(ordered, self.sources).clamp(max=max(len(ordered) - 1, 0))
        row = torch.nonzero(ordered[at] == self.sources).squeeze(1) if len(ordered) else at[:0]
        return torch.stack([row, order[at[row]]])


def rank_in_grid(
    grid: CandidateGrid, blocks: Iterable[tuple[int, Tensor]] | ColumnScores, *, tolerance: float | None = None
) -> Tensor:
    """Rank the positives of a grid among the negatives of their source: all candidates but its positives and itself.

    Args:
        grid: the grid.
        blocks: first row and scores, [b, M], of consecutive rows, which are overwritten; or ``FactoredScores``, which
            are ranked tile by tile; or ``ColumnScores``, which are sorted.
        tolerance: scores that differ by less are equal; None for that of products of their type.

    Returns:
        Of each positive its score, the number of negatives with a higher and with an equal score, and the number of all
        negatives, [n, 4], float64. A NaN score gives NaN.
    """
    row = grid.positive[0]
    excluded = torch.cat([grid.positive, grid.same_node], 1)
    is_hidden = None if grid.log_weight is None else grid.log_weight == -torch.inf
    hidden = row[:0] if is_hidden is None else torch.nonzero(is_hidden).squeeze(1)
    if isinstance(blocks, FactoredScores | ColumnScores):
        own = blocks.at(grid.positive)
        counts = blocks.count_above(excluded, hidden, _row_ptr(row, len(grid.sources)), *_bounds(own, tolerance))
        found = [_join_counts(own, row, *counts)]
    else:
        found = [_rank_block(grid, excluded, hidden, first, scores, tolerance) for first, scores in blocks]
    if is_hidden is not None:
        excluded = excluded[:, ~is_hidden[excluded[1]]]
    num_negatives = len(grid.candidates) - len(hidden)
    negatives = (num_negatives - torch.bincount(excluded[0], minlength=len(grid.sources)))[row].double()
    counted = torch.cat(found) if found else negatives.new_empty(0, 3)
    return torch.cat([counted, negatives[:, None]], 1)


def _rank_block(
    grid: CandidateGrid, excluded: Tensor, hidden: Tensor, first: int, scores: Tensor, tolerance: float | None
) -> Tensor:
    """Scores and counts of the positives of a block, [n, 3]."""
    at, to = _shift_rows(grid.positive, first, len(scores))
    own = scores[at, to]
    compiled = scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64)
    count = count_above_in_rows if compiled else count_above_plain
    excluded = _shift_rows(excluded, first, len(scores))
    return _join_counts(own, at, *count(scores, excluded, hidden, _row_ptr(at, len(scores)), *_bounds(own, tolerance)))


def _shift_rows(index: Tensor, first: int, size: int) -> Tensor:
    """The pairs of ``size`` rows that begin with ``first``, as pairs of the block."""
    here = (index[0] >= first) & (index[0] < first + size)
    return index[:, here] - torch.tensor([[first], [0]], device=index.device)


def _row_ptr(row: Tensor, num_rows: int) -> Tensor:
    """Where each row begins among ascending rows."""
    return torch.searchsorted(row.contiguous(), torch.arange(num_rows + 1, device=row.device))


def _bounds(own: Tensor, tolerance: float | None) -> tuple[Tensor, Tensor]:
    """Between which scores are equal to the positives'."""
    if tolerance is None:
        tolerance = _TOLERANCE_FLOAT64 if own.dtype == torch.float64 else _TOLERANCE
    margin = tolerance * own.detach().abs().clamp(min=1)
    return own.detach() - margin, own.detach() + margin


def _join_counts(own: Tensor, row: Tensor, higher: Tensor, at_least: Tensor, is_nan: Tensor) -> Tensor:
    counts = torch.stack([own.detach().double(), higher.double(), (at_least - higher).double()], 1)
    return torch.where((torch.isnan(own) | is_nan[row])[:, None], torch.nan, counts)


def top_candidates(blocks: Iterable[tuple[int, Tensor]], count: int) -> tuple[Tensor, Tensor]:
    """The candidates with the highest scores of each source.

    Args:
        blocks: first row and scores, [b, M], of consecutive rows, or ``FactoredScores``; candidates to leave out have
            -inf.
        count: how many, at most M.

    Returns:
        Scores in descending order and positions of candidates, [S, count] each.
    """
    if isinstance(blocks, FactoredScores) and count <= _MAX_KEPT:
        return blocks.top(count)
    found = [torch.topk(scores, count, dim=1) for _, scores in blocks]
    return torch.cat([each.values for each in found]), torch.cat([each.indices for each in found])
