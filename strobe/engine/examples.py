"""Training and evaluation examples of a segment, of all its cells or of those on this rank, and their cache."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from strobe.engine.machine import free_bytes
from strobe.exchange.halo import HaloCells
from strobe.ops.runtime.parallel import map_in_order
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.base import Examples, Problem
from strobe.view import LocalPartition

if TYPE_CHECKING:
    from strobe.engine.partitioned_graph import Mask
    from strobe.engine.windows import Segment

MIN_BYTES = 1 << 30
"""Bytes that are cached however little memory there is; examples beyond are rebuilt for each use."""

_FRACTION = 8
"""The part of the machine's free memory that may be taken for examples: one over this."""


@dataclass(frozen=True, eq=False)
class LocalExamples:
    """Examples of this rank. ``cell_index`` counts over the cells of a view, followed by the remote cells of ``halo``.
    ``example_index``: which of the snapshot's examples they are, where not all."""

    examples: Examples
    halo: HaloCells | None = None
    example_index: IntArray | None = None

    @property
    def nbytes(self) -> int:
        """The memory that the examples take."""
        examples = self.examples
        tensors = [
            *(examples.cell_index or ()),
            examples.labels,
            *([] if examples.offset is None else [examples.offset]),
        ]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def __len__(self) -> int:
        return len(self.examples.labels)


@dataclass
class ByteBudget:
    """Bytes that are left for examples, of one set of windows or of several together."""

    left: int = MIN_BYTES

    @classmethod
    def of_device(cls, device: torch.device, *, fits: bool = False) -> ByteBudget:
        """A part of a device's free memory; unlimited where everything is known to fit."""
        return cls(sys.maxsize if fits else max(MIN_BYTES, free_bytes(device) // _FRACTION))


class ExampleCache:
    """Examples by owner and key, as long as the budget lasts."""

    def __init__(self, room: ByteBudget | None = None) -> None:
        self._budget = ByteBudget() if room is None else room
        self._cached: dict[Hashable, tuple[Any, Any]] = {}

    def get(self, owner: object, key: Hashable, make: Callable[[], LocalExamples | None]) -> LocalExamples | None:
        """The cached examples, built if they are absent. The owner is held, so that its id stays unique."""
        place = (id(owner), key)
        if place in self._cached:
            known: LocalExamples | None = self._cached[place][1]
            return known
        examples = make()
        size = 0 if examples is None else examples.nbytes
        if size <= self._budget.left:
            self._budget.left -= size
            self._cached[place] = (owner, examples)
        return examples


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
        places = [
            k
            for k, t in enumerate(segment.times)
            if t in part
            and (segment.target_times is None or t in segment.target_times)
            and (cells.local_partition is None or len(cells.local_partition.own[k]))
        ]

        def examples_at(number: int) -> Examples | None:
            return problem.examples_for_loss(segment.times[places[number]], epoch, cells.sum_dtype)

        one_by_one = map(examples_at, range(len(places)))
        made = map_in_order(examples_at, len(places)) if problem.thread_safe else one_by_one
        found = {k: examples for k, examples in zip(places, made, strict=True) if examples is not None}
        if not found:
            return None
        if cells.local_partition is None:
            return LocalExamples(
                join_examples([(cells.cell_ptr[k], each) for k, each in found.items()], cells.num_cells, cells.device)
            )
        return partition_examples(cells.local_partition, found, segment.target_mask)

    if epoch is not None and problem.resamples_each_epoch:
        return make()
    return segment.example_cache.get(problem, (segment.times, part), make)


def evaluation_examples(problem: Problem, segment: Segment, t: int) -> LocalExamples | None:
    """Evaluation examples of one snapshot of a segment, cached. Cell indices count over that snapshot alone."""
    return segment.example_cache.get(
        problem, t, lambda: examples_of_rank(problem.examples_for_loss(t, None, None), segment, t)
    )


def examples_of_rank(examples: Examples | None, segment: Segment, t: int) -> LocalExamples | None:
    """The examples of a snapshot whose cells this rank owns."""
    share = segment.data.local_partition
    if examples is None or share is None:
        return None if examples is None else LocalExamples(examples)
    k = segment.times.index(t)
    return partition_examples(share.single(k, share.home), {0: examples}, None) if len(share.own[k]) else None


def partition_examples(share: LocalPartition, found: dict[int, Examples], targets: Mask | None) -> LocalExamples:
    """The examples of each snapshot whose first cell this rank owns, joined. Remote cells of pairs follow its own.
    ``targets`` is a mask of nodes."""
    nothing: IntArray = np.empty(0, np.int64)
    whole = {k: _cell_index(examples) for k, examples in found.items()}
    pairs = {k: (rows[0], rows[1]) for k, rows in whole.items() if len(rows) == 2}
    arcs = [pairs.get(k, (nothing, nothing)) for k in range(len(share.own))]
    around = share.halo_of_pairs(arcs) if pairs else None
    first = np.concatenate(([0], np.cumsum([len(own) for own in share.own])))
    kept = []
    for k, examples in found.items():
        if examples.cell_index is None and targets is None:  # one of every cell: the rank's are where it has its cells
            places = np.arange(first[k], first[k + 1])
            kept.append((share.own[k], _select_examples(examples, share.own[k], (places,))))
            continue
        owners = share.owners[k]
        mine = owners[whole[k][0]] == share.comm.rank
        if targets is not None:
            mine &= targets[share.graph[share.owners.times[k]].nodes[whole[k][0]]]
        at = np.flatnonzero(mine)
        columns = np.full(len(owners), -1, np.int64)
        columns[share.own[k]] = np.arange(first[k], first[k + 1])
        if around is not None:
            columns[around.positions[k]] = first[-1] + around.places[k]
        rows = tuple(columns[rows[at]] for rows in whole[k])
        if len(rows) == 1 and (np.diff(share.own[k]) < 0).any():  # cells have an order of their own: so have examples
            order = np.argsort(rows[0], kind="stable")
            at, rows = at[order], (rows[0][order],)
        kept.append((at, _select_examples(examples, at, rows)))
    joined = join_examples([(0, examples) for _, examples in kept], -1, share.device)
    return LocalExamples(joined, around, kept[0][0] if len(kept) == 1 else None)


def join_examples(found: list[tuple[int, Examples]], num_cells: int, device: torch.device) -> Examples:
    """Examples of several snapshots as one, given the number of cells before each snapshot."""
    y = torch.cat([examples.labels for _, examples in found]).to(device)
    bases = [examples.offset for _, examples in found if examples.offset is not None]
    base = torch.cat(bases).to(device) if bases else None
    if all(examples.cell_index is None for _, examples in found) and len(y) == num_cells:
        return Examples(None, y, base)
    rows = [
        tuple(row + offset for row in examples.cell_index)
        if examples.cell_index is not None
        else (torch.arange(offset, offset + len(examples)),)
        for offset, examples in found
    ]
    return Examples(tuple(torch.cat(column).to(device) for column in zip(*rows, strict=True)), y, base)


def _cell_index(examples: Examples) -> tuple[IntArray, ...]:
    if examples.cell_index is None:
        return (np.arange(len(examples)),)
    return tuple(rows.cpu().numpy() for rows in examples.cell_index)


def _select_examples(examples: Examples, at: IntArray, rows: tuple[IntArray, ...]) -> Examples:
    """Some of the examples, with other rows."""
    here = torch.from_numpy(at)
    base: Tensor | None = None if examples.offset is None else examples.offset.index_select(0, here)
    return replace(
        examples,
        cell_index=tuple(torch.from_numpy(each) for each in rows),
        labels=examples.labels.index_select(0, here),
        offset=base,
    )
