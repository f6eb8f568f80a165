"""Sequences of different length end to end in lanes of one length, so that hardly any place is left empty.

A stage that steps through time takes all lanes one place further at a time; where one sequence ends and the next
begins is a *seam*, at which the next starts from its own first state and learns nothing of the one before: results
are those of sequences that never met (temporal fusion, Chen and Li 2023, section 5.1.2). Absences take no place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.ops.csr import IntArray, stable_argsort
from strobe.ops.sequences import Sequences


@dataclass(frozen=True, eq=False)
class Lanes:
    """Who stands where on a grid [lanes, length], ``length`` being the cells of the longest sequence.

    Lanes are filled from the left and the fullest come first: those that reach a column are always the first so many.
    *Places* are therefore numbered column by column without a hole, and a column's cells are one stretch of rows.
    """

    num_lanes: int
    length: int
    num_slots: int
    columns: tuple[int, ...]  # [length]: lanes that reach each column
    cell: Tensor  # [C]: the cell at each place
    place: Tensor  # [C]: the place of each cell
    seam_columns: tuple[int, ...]  # [length]: sequences that begin in each column
    seam_lane: Tensor  # [B]: the lanes of the sequences that have cells, by the column in which they begin
    seam_slot: Tensor  # [B]: whose they are
    end: Tensor  # [B]: the places where they end

    @classmethod
    def of(cls, sequences: Sequences) -> Lanes:
        """The lanes of some sequences; the same for the same sequences, always. Made once for each object."""
        if cls not in sequences.plans:
            sequences.plans[cls] = _lay(sequences)
        lanes: Lanes = sequences.plans[cls]
        return lanes

    @property
    def num_cells(self) -> int:
        return len(self.cell)

    @property
    def padding(self) -> float:
        """The share of the grid's places that are empty."""
        return _empty(self.num_cells, self.num_lanes * self.length)

    @property
    def padding_apart(self) -> float:
        """The same for a grid in which every sequence that has cells has a lane of its own."""
        return _empty(self.num_cells, len(self.seam_slot) * self.length)

    @cached_property
    def seam(self) -> Tensor:
        """Where sequences begin, [lanes, length]."""
        mask = torch.zeros(self.num_lanes, self.length, dtype=torch.bool, device=self.cell.device)
        column = torch.repeat_interleave(torch.arange(self.length), torch.tensor(self.seam_columns, dtype=torch.int64))
        mask[self.seam_lane, column.to(mask.device)] = True
        return mask


def pack(lengths: IntArray, length: int) -> tuple[IntArray, IntArray]:
    """The lane of every sequence and its first place there: each in the first lane with room, longest first.

    Sequences of length 0 stand nowhere: lane -1. What one lane is filled with, many can be filled with: each
    way of filling one is worked out once, so that time goes with the number of different lengths, and only the writing
    down with that of sequences.
    """
    lane, first = np.full(len(lengths), -1, np.int64), np.zeros(len(lengths), np.int64)
    order = stable_argsort(length - lengths)
    counts = np.bincount(lengths, minlength=length + 1)
    assert len(counts) == length + 1, f"a sequence of {len(counts) - 1} cells does not fit into a lane of {length}"
    left = counts.tolist()
    next_of = (len(lengths) - np.cumsum(counts)).tolist()  # where those of a length begin in the order
    begin = 0
    for filling, times in _fillings(left, length):
        lanes, at = np.arange(begin, begin + times), 0
        for size, together in filling:
            who = order[next_of[size] : next_of[size] + times * together]
            next_of[size] += len(who)
            lane[who] = np.repeat(lanes, together)
            first[who] = np.tile(at + size * np.arange(together), times)
            at += size * together
        begin += times
    return lane, first


def _fillings(left: list[int], length: int) -> Iterator[tuple[list[tuple[int, int]], int]]:
    """Ways to fill a lane, [(length of a sequence, how many of them), …], and how many lanes are filled that way.

    ``left`` counts the sequences of each length that have no lane yet; it is used up. Lane by lane the longest that
    still fits, which is what first fit comes to where the longest go first.
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


def _lay(sequences: Sequences) -> Lanes:
    turn, lengths = _turns(sequences)
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
    place = start[first[slot] + turn] + lane[slot]
    cell = np.empty_like(place)
    cell[place] = np.arange(len(place))
    busy = np.flatnonzero(lengths)
    busy = busy[np.lexsort((lane[busy], first[busy]))]
    device = sequences.device
    return Lanes(
        num_lanes=len(full),
        length=length,
        num_slots=sequences.num_slots,
        columns=tuple(reach.tolist()),
        cell=torch.from_numpy(cell).to(device),
        place=torch.from_numpy(place).to(device),
        seam_columns=tuple(np.bincount(first[busy], minlength=length).tolist()),
        seam_lane=torch.from_numpy(lane[busy]).to(device),
        seam_slot=torch.from_numpy(busy).to(device),
        end=torch.from_numpy(start[first[busy] + lengths[busy] - 1] + lane[busy]).to(device),
    )


def _turns(sequences: Sequences) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which of its node's cells each cell is, counted from 0, and how many every node has."""
    count = np.zeros(sequences.num_slots, np.int64)
    turn = np.empty(sequences.num_cells, np.int64)
    for start, stop in pairwise(sequences.cell_ptr):
        here = slice(None) if sequences.slot is None else sequences.slot[start:stop]
        turn[start:stop] = count[here]
        count[here] += 1
    return turn, count


def _empty(cells: int, places: int) -> float:
    return 1 - cells / places if places else 0.0
