"""Sequence packing: sequences of different length end to end in lanes of one length, with little padding.

A recurrent stage advances all lanes by one place per step. Where a sequence begins (a *boundary*) the state is reset to
its own initial state, so results equal those of separate sequences (temporal fusion, Chen and Li 2023, section 5.1.2).
Absent cells take no place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.ops.sparse.csr import IntArray, stable_argsort
from strobe.ops.time.sequences import Sequences


@dataclass(frozen=True, eq=False)
class PackedSequences:
    """Positions of cells on a grid [lanes, length]; ``length`` is the number of cells of the longest sequence.

    Lanes are filled from the left, fullest first, so the lanes that reach a column are a prefix. *Places* are numbered
    column by column without holes, and the cells of a column are contiguous.
    """

    num_lanes: int
    length: int
    num_slots: int
    columns: tuple[int, ...]  # [length]: lanes that reach each column
    cell: Tensor  # [C]: cell at each place
    place: Tensor  # [C]: place of each cell
    boundary_columns: tuple[int, ...]  # [length]: sequences that begin in each column
    boundary_lane: Tensor  # [B]: lane of each non-empty sequence, ordered by its first column
    boundary_slot: Tensor  # [B]: slot of each
    end: Tensor  # [B]: last place of each

    @classmethod
    def of(cls, sequences: Sequences) -> PackedSequences:
        """Pack sequences deterministically. Computed once per ``Sequences`` object."""
        return sequences.plan(_pack_sequences)

    @property
    def num_cells(self) -> int:
        return len(self.cell)

    @property
    def padding(self) -> float:
        """Fraction of empty places of the grid."""
        return _padding_share(self.num_cells, self.num_lanes * self.length)

    @property
    def padding_unpacked(self) -> float:
        """Fraction of empty places of a grid with one lane per non-empty sequence."""
        return _padding_share(self.num_cells, len(self.boundary_slot) * self.length)


def pack(lengths: IntArray, length: int) -> tuple[IntArray, IntArray]:
    """Assign each sequence a lane and an offset in it by first fit decreasing; lane -1 for sequences of length 0.

    Each distinct lane layout is computed once, so planning time depends on the number of distinct lengths.
    """
    lane, first = np.full(len(lengths), -1, np.int64), np.zeros(len(lengths), np.int64)
    order = stable_argsort(length - lengths)
    counts = np.bincount(lengths, minlength=length + 1)
    assert len(counts) == length + 1, f"a sequence of {len(counts) - 1} cells does not fit into a lane of {length}"
    left = counts.tolist()
    next_of = (len(lengths) - np.cumsum(counts)).tolist()  # first sequence of each length in the order
    begin = 0
    for filling, times in _lane_layouts(left, length):
        lanes, at = np.arange(begin, begin + times), 0
        for size, together in filling:
            who = order[next_of[size] : next_of[size] + times * together]
            next_of[size] += len(who)
            lane[who] = np.repeat(lanes, together)
            first[who] = np.tile(at + size * np.arange(together), times)
            at += size * together
        begin += times
    return lane, first


def _lane_layouts(left: list[int], length: int) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """Yield lane layouts [(sequence length, count), …] with the number of lanes that have each.

    ``left`` counts the unassigned sequences of each length and is consumed. Each lane takes the longest sequence that
    still fits, which equals first fit decreasing.
    """
    sizes = [size for size in range(1, length + 1) if left[size]]
    while sizes:
        filling, room, at = [], length, len(sizes) - 1
        while at >= 0:
            size = sizes[at]
            together = min(left[size], room // size)
            filling.append((size, together))
            room -= size * together
            at = bisect_right(sizes, room, hi=at) - 1
        times = min(left[size] // together for size, together in filling)
        for size, together in filling:
            left[size] -= times * together
            if not left[size]:
                sizes.remove(size)
        yield filling, times


def _pack_sequences(sequences: Sequences) -> PackedSequences:
    ordinal, lengths = _cell_ordinals(sequences)
    length = int(lengths.max(initial=0))
    lane, first = pack(lengths, length)
    full = np.bincount(lane[lengths > 0], lengths[lengths > 0]).astype(np.int64)  # cells of each lane
    order = stable_argsort(length - full)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    lane = np.where(lengths > 0, rank[lane], -1) if len(rank) else lane
    reach = len(full) - np.cumsum(np.bincount(full, minlength=length + 1))[:length]  # lanes with more than j cells
    start = np.concatenate(([0], np.cumsum(reach)))  # places before each column
    slot = (
        np.tile(np.arange(sequences.num_slots), sequences.num_snapshots) if sequences.slot is None else sequences.slot
    )
    place = start[first[slot] + ordinal] + lane[slot]
    cell = np.empty_like(place)
    cell[place] = np.arange(len(place))
    busy = np.flatnonzero(lengths)
    busy = busy[np.lexsort((lane[busy], first[busy]))]
    device = sequences.device
    return PackedSequences(
        num_lanes=len(full),
        length=length,
        num_slots=sequences.num_slots,
        columns=tuple(reach.tolist()),
        cell=torch.from_numpy(cell).to(device),
        place=torch.from_numpy(place).to(device),
        boundary_columns=tuple(np.bincount(first[busy], minlength=length).tolist()),
        boundary_lane=torch.from_numpy(lane[busy]).to(device),
        boundary_slot=torch.from_numpy(busy).to(device),
        end=torch.from_numpy(start[first[busy] + lengths[busy] - 1] + lane[busy]).to(device),
    )


def _cell_ordinals(sequences: Sequences) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Index of each cell within its sequence, and the length of every sequence."""
    count = np.zeros(sequences.num_slots, np.int64)
    ordinal = np.empty(sequences.num_cells, np.int64)
    for start, stop in pairwise(sequences.cell_ptr):
        slots = slice(None) if sequences.slot is None else sequences.slot[start:stop]
        ordinal[start:stop] = count[slots]
        count[slots] += 1
    return ordinal, count


def _padding_share(cells: int, places: int) -> float:
    return 1 - cells / places if places else 0.0
