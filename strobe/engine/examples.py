"""Training and evaluation examples of a segment, of all its cells or of those on this rank, and their cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from strobe.comm.rows import Route
from strobe.ops.graph.listed_pairs import DistinctNodes, ListedPairs
from strobe.ops.runtime.parallel import map_in_order
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.base import Examples, Problem, edge_ends
from strobe.tasks.grid import CandidateGrid
from strobe.view import (
    LatestCells,
    LocalPartition,
    PairEnds,
    WindowData,
    find_batch_rows,
    find_grid_rows,
    find_pair_rows,
)

if TYPE_CHECKING:
    from strobe.engine.partitioned_graph import Mask
    from strobe.engine.windows import Segment

MakeExamples = Callable[[int], Examples | None]
"""Makes the examples of a snapshot."""

_BLOCKS = 64
"""Runs of snapshots that threads sample, at most twice as many."""


@dataclass(frozen=True, eq=False)
class LocalExamples:
    """Examples of this rank. ``cell_index`` counts over the cells of a view; for pairs, over those rows and what
    ``gather_latest`` appends to them for ``slots`` and ``route``. ``example_index``: which of the snapshot's
    examples they are, where not all."""

    examples: Examples
    slots: Tensor | None = None
    route: Route | None = None
    example_index: IntArray | None = None

    @property
    def nbytes(self) -> int:
        """The memory that the examples take."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.examples.tensors())

    def __len__(self) -> int:
        return len(self.examples.labels)


@dataclass(frozen=True, eq=False)
class ScoredCells:
    """The snapshots of a segment whose cells are scored, with their examples, and what one pass of the head reads for
    all of them: ``joined``, without labels, whose indices count over ``cells`` of the segment."""

    snapshots: list[tuple[int, LocalExamples]]
    cells: slice
    joined: Examples

    @cached_property
    def sizes(self) -> list[int]:
        """The number of examples of each snapshot."""
        return [len(local) for _, local in self.snapshots]

    @property
    def nbytes(self) -> int:
        """The memory that the examples take."""
        return sum(local.nbytes for _, local in self.snapshots)


def all_examples(examples: Examples | None) -> LocalExamples | None:
    """All examples of a snapshot, as they are."""
    return None if examples is None else LocalExamples(examples)


def training_examples(
    problem: Problem, segment: Segment, part: range, epoch: int | None = None
) -> LocalExamples | None:
    """Training examples of a segment's cells in a part, joined; cell indices count over the whole segment.

    Cached where they are the same in every epoch. None without examples, where no other rank needs these cells.
    """

    def make() -> LocalExamples | None:
        if segment.examples_fn is not None:
            return segment.examples_fn()
        cells = segment.data
        times = segment.targets_in(part)
        if problem.encodes_nodes_once:
            sampled = _sample(problem, times, lambda t: problem.sample_pairs(t, epoch))
            found = [(t, pairs) for t, pairs in zip(times, sampled, strict=True) if pairs is not None]
            return _batch_of_rank(problem, _LatestReader(segment), found, cells.sum_dtype) if found else None
        if problem.is_edge_level:
            located = list(_locate_pairs(problem, segment, times, lambda t: problem.sample_pairs(t, epoch)))
            return _pairs_of_rank(problem, cells, located, cells.sum_dtype) if located else None
        places = [segment.times.index(t) for t in times]
        if cells.local_partition is not None:
            places = [k for k in places if len(cells.local_partition.own[k])]

        def examples_at(number: int) -> Examples | None:
            return problem.examples_for_loss(segment.times[places[number]], epoch, cells.sum_dtype)

        one_by_one = map(examples_at, range(len(places)))
        made = map_in_order(examples_at, len(places)) if problem.thread_safe else one_by_one
        by_place = {k: examples for k, examples in zip(places, made, strict=True) if examples is not None}
        if not by_place:
            return None
        if cells.local_partition is None:
            listed = [(cells.cell_ptr[k], each) for k, each in by_place.items()]
            return LocalExamples(join_examples(listed, cells.num_cells, cells.device))
        return partition_examples(cells.local_partition, by_place, segment.target_mask)

    if epoch is not None and problem.resamples_each_epoch:
        return make()
    return segment.example_cache.get(problem, (segment.times, part), make)


def evaluation_examples(
    problem: Problem, segment: Segment, times: Sequence[int], make_examples: MakeExamples | None = None
) -> Iterator[LocalExamples | None]:
    """Yield the examples of each of some snapshots of a segment. Cell indices count over that snapshot alone; for pairs
    over the segment. ``make_examples`` makes those of a snapshot; by default they are the evaluation's, cached."""
    sample = problem.sample_pairs if make_examples is None else make_examples
    latest = cache(lambda: _LatestReader(segment))
    located = cache(lambda: {each.t: each for each in _locate_pairs(problem, segment, times, sample)})
    for t in times:

        def make(t: int = t) -> LocalExamples | None:
            if problem.encodes_nodes_once:
                pairs = sample(t)
                return None if pairs is None else _batch_of_rank(problem, latest(), [(t, pairs)], None)
            if problem.is_edge_level:
                return _pairs_of_rank(problem, segment.data, [located()[t]], None) if t in located() else None
            whole = problem.examples_for_loss(t, None, None) if make_examples is None else make_examples(t)
            return _examples_of_rank(whole, segment, t)

        yield make() if make_examples is not None else segment.example_cache.get(problem, t, make)


def scored_cells(problem: Problem, segment: Segment, part: range) -> ScoredCells | None:
    """The cells of a segment that evaluation scores in a part, cached; None without any. For examples of cells."""

    times = segment.targets_in(part)
    if not times:
        return None

    def make() -> ScoredCells | None:
        first = segment.data.cell_ptr
        made = evaluation_examples(problem, segment, times, lambda t: problem.examples_for_loss(t, None, None))
        found = zip(times, made, strict=True)
        scored = [(t, local) for t, local in found if local is not None and len(local)]
        if not scored:
            return None
        places = [t - segment.times.start for t, _ in scored]
        examples = [local.examples for _, local in scored]
        features = [each.features for each in examples if each.features is not None]
        rows, cells = None, slice(first[places[0]], first[places[-1] + 1])
        if len(places) < len(range(places[0], places[-1] + 1)) or any(each.cell_index is not None for each in examples):
            starts = [first[k] - cells.start for k in places]
            rows = (torch.cat([_cell_rows(each) + start for each, start in zip(examples, starts, strict=True)]),)
        labels = examples[0].labels[:0]  # the head does not read them
        return ScoredCells(scored, cells, Examples(rows, labels, features=torch.cat(features) if features else None))

    return segment.example_cache.get(problem, ("scored", segment.times, times[0], times[-1]), make)


def _cell_rows(examples: Examples) -> Tensor:
    """The cell of each example."""
    return torch.arange(len(examples)) if examples.cell_index is None else examples.cell_index[0]


def _examples_of_rank(examples: Examples | None, segment: Segment, t: int) -> LocalExamples | None:
    """The examples of a snapshot whose cells this rank owns."""
    share = segment.data.local_partition
    if examples is None or share is None:
        return None if examples is None else LocalExamples(examples)
    k = segment.times.index(t)
    return partition_examples(share.single(k, share.home), {0: examples}, None) if len(share.own[k]) else None


@dataclass(frozen=True, eq=False)
class _LocatedPairs:
    """All pairs of snapshot t, and where the embeddings of their ends are once it has been read. Where positives are
    ranked, ``destinations`` are the candidates."""

    t: int
    pairs: Examples
    sources: PairEnds
    destinations: PairEnds


class _LatestReader:
    """The latest cells of all nodes, snapshot by snapshot of a segment."""

    def __init__(self, segment: Segment) -> None:
        self.data = segment.data
        self._latest, self._first = LatestCells(segment.data), segment.times.start
        self._next = self._first

    def up_to(self, t: int) -> LatestCells:
        """Those up to snapshot t, which is not before the last one asked for."""
        for s in range(self._next, t + 1):
            self._latest.read(s - self._first)
        self._next = t + 1
        return self._latest


def _sample(problem: Problem, times: Sequence[int], sample: MakeExamples) -> Iterable[Examples | None]:
    if not problem.thread_safe:
        return map(sample, times)
    # Threads take runs of many snapshots, which are small: to start one takes as long as to sample one.
    size = max(len(times) // _BLOCKS, 1)
    blocks = [times[first : first + size] for first in range(0, len(times), size)]
    return chain.from_iterable(map_in_order(lambda number: list(map(sample, blocks[number])), len(blocks)))


def _locate_pairs(
    problem: Problem, segment: Segment, times: Sequence[int], sample: MakeExamples
) -> Iterator[_LocatedPairs]:
    """Yield the pairs of some snapshots of a segment, in order of time; the same on all ranks."""
    reader = _LatestReader(segment)
    for t, pairs in zip(times, _sample(problem, times, sample), strict=True):
        latest = reader.up_to(t)
        if pairs is not None:
            src, dst = edge_ends(pairs)
            destinations = dst if pairs.candidates is None else pairs.candidates.numpy()
            yield _LocatedPairs(t, pairs, latest.locate(src), latest.locate(destinations))


def _batch_of_rank(
    problem: Problem, reader: _LatestReader, found: Sequence[tuple[int, Examples]], dtype: torch.dtype | None
) -> LocalExamples:
    """The pairs that this rank scores, of several snapshots, each node's inputs once; numbers as ``dtype``."""
    data, (times, parts) = reader.data, zip(*found, strict=True)
    src, dst = (np.concatenate(each) for each in zip(*map(edge_ends, parts), strict=True))
    pairs = ListedPairs(np.array(times), np.cumsum([0, *map(len, parts)]), src, dst)
    ends = DistinctNodes.find(pairs.ptr, src), DistinctNodes.find(pairs.ptr, dst)
    located = _locate_ends(reader, pairs.times, ends)
    rows = find_batch_rows(data, located, (ends[0].position, ends[1].position))
    labels, index = torch.cat([each.labels for each in parts]), None
    if data.comm.num_ranks > 1:
        index = torch.from_numpy(rows.pairs)
        pairs, labels = pairs.select(rows.pairs), labels[index]
        ends = ends[0].select(rows.pairs, rows.rows.index), ends[1].select(rows.pairs, rows.destinations)
    known = problem.describe_batch(pairs, ends)
    positions = torch.from_numpy(ends[0].position), torch.from_numpy(ends[1].position)
    batch = known.batch(positions, rows.rows.rows).to(data.device, dtype)
    examples = Examples(None, labels, known.offset, pairs=batch).astype(dtype)
    if len(parts) == 1:
        edges = parts[0].edge_label_index
        assert edges is not None
        examples = replace(examples, edge_label_index=edges if index is None else edges[:, index])
    offset = None if examples.offset is None else examples.offset.to(data.device)
    examples = replace(examples, labels=examples.labels.to(data.device), offset=offset)
    return LocalExamples(examples, rows.rows.slots, rows.rows.route, rows.pairs if len(parts) == 1 else None)


def _locate_ends(
    reader: _LatestReader, times: IntArray, ends: tuple[DistinctNodes, DistinctNodes]
) -> tuple[PairEnds, PairEnds]:
    """Where the embeddings of the distinct ends of each snapshot's pairs are once it has been read."""
    located: tuple[list[PairEnds], list[PairEnds]] = ([], [])
    for k, t in enumerate(times.tolist()):
        latest = reader.up_to(t)
        for parts, end in zip(located, ends, strict=True):
            parts.append(latest.locate(end.nodes[end.ptr[k] : end.ptr[k + 1]]))
    return PairEnds.concatenate(located[0]), PairEnds.concatenate(located[1])


def _pairs_of_rank(
    problem: Problem, data: WindowData, located: Sequence[_LocatedPairs], dtype: torch.dtype | None
) -> LocalExamples:
    """The pairs that this rank scores, of several snapshots, joined; numbers as ``dtype``."""
    is_ranking = located[0].pairs.candidates is not None
    found = (find_grid_rows if is_ranking else find_pair_rows)(
        data,
        PairEnds.concatenate([each.sources for each in located]),
        PairEnds.concatenate([each.destinations for each in located]),
    )
    first, kept = 0, []
    for each in located:
        here = np.searchsorted(found.index, (first, first + len(each.pairs)))
        chosen = each.pairs.select(torch.from_numpy(found.index[here[0] : here[1]] - first))
        kept.append((0, problem.describe_pairs(each.t, chosen).astype(dtype)))
        first += len(each.pairs)
    if is_ranking:
        joined = _join_grids([each for _, each in kept], *found.rows)
    else:
        joined = replace(join_examples(kept, -1, data.device), cell_index=found.rows)
    if len(kept) == 1:
        joined = replace(joined, edge_label_index=kept[0][1].edge_label_index)
    return LocalExamples(joined, found.slots, found.route, found.index if len(located) == 1 else None)


def _join_grids(found: Sequence[Examples], source_rows: Tensor, candidate_rows: Tensor) -> Examples:
    """Ranking examples of several snapshots as one, given the rows of all positives' sources and of all candidates; a
    rank without positives has no rows of candidates."""
    grids: list[CandidateGrid] = []
    first, first_candidate, device = 0, 0, source_rows.device
    for each in found:
        for grid in each.grids:
            row = grid.positive[0].to(device)
            rows = torch.zeros(len(grid.sources), dtype=torch.int64, device=device)
            rows[row] = source_rows[first : first + len(row)]
            last = first_candidate + len(grid.candidates)
            grids.append(replace(grid.to(device), rows=(rows, candidate_rows[first_candidate:last])))
            first, first_candidate = first + len(row), last
    return Examples(None, torch.cat([each.labels for each in found]).to(device), grids=tuple(grids))


def partition_examples(share: LocalPartition, found: dict[int, Examples], targets: Mask | None) -> LocalExamples:
    """The examples of each snapshot whose cell this rank owns, joined. ``targets`` is a mask of nodes."""
    first = np.concatenate(([0], np.cumsum([len(own) for own in share.own])))
    kept = []
    for k, examples in found.items():
        if examples.cell_index is None and targets is None:  # one of every cell: the rank's are where it has its cells
            kept.append((share.own[k], _move(examples, share.own[k], np.arange(first[k], first[k + 1]))))
            continue
        owners = share.owners[k]
        cells = np.arange(len(examples)) if examples.cell_index is None else examples.cell_index[0].cpu().numpy()
        mine = owners[cells] == share.comm.rank
        if targets is not None:
            mine &= targets[share.graph[share.owners.times[k]].nodes[cells]]
        at = np.flatnonzero(mine)
        columns = np.full(len(owners), -1, np.int64)
        columns[share.own[k]] = np.arange(first[k], first[k + 1])
        rows = columns[cells[at]]
        if (np.diff(share.own[k]) < 0).any():  # cells have an order of their own: so have examples
            order = np.argsort(rows, kind="stable")
            at, rows = at[order], rows[order]
        kept.append((at, _move(examples, at, rows)))
    joined = join_examples([(0, examples) for _, examples in kept], -1, share.device)
    return LocalExamples(joined, example_index=kept[0][0] if len(kept) == 1 else None)


def join_examples(found: list[tuple[int, Examples]], num_cells: int, device: torch.device) -> Examples:
    """Examples of several snapshots as one, given the number of cells before each snapshot."""
    y = torch.cat([examples.labels for _, examples in found]).to(device)
    bases = [examples.offset for _, examples in found if examples.offset is not None]
    base = torch.cat(bases).to(device) if bases else None
    inputs = [examples.features for _, examples in found if examples.features is not None]
    features = torch.cat(inputs).to(device) if inputs else None
    if all(examples.cell_index is None for _, examples in found) and num_cells in (len(y), -1):
        return Examples(None, y, base, features=features)
    rows = [
        examples.cell_index[0] + offset
        if examples.cell_index is not None
        else torch.arange(offset, offset + len(examples))
        for offset, examples in found
    ]
    return Examples((torch.cat(rows).to(device),), y, base, features=features)


def _move(examples: Examples, at: IntArray, rows: IntArray) -> Examples:
    """Some of the examples, at other rows."""
    return replace(examples.select(torch.from_numpy(at)), cell_index=(torch.from_numpy(rows),))
