"""Tables of the cell that each lane of a kernel computes at each step.

Lanes are slots if most would be busy: with all nodes always present the cell is arithmetic, otherwise there is a table.
If most slots would idle, lanes are ``PackedSequences``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from strobe.ops.time.packing import PackedSequences
from strobe.ops.time.sequences import Sequences

MAX_STEPS_PER_CELL = 2.0
"""Lanes are slots up to this many steps per cell (tables are built on the GPU); else sequences are packed."""


@dataclass(frozen=True, eq=False)
class LaneRange:
    """Lanes ``first`` to ``end`` of a kernel launch. Lane l computes at a step the cell ``i = step * stride + l``, or
    ``cell[i]`` of a table, -1 if idle. Their sequences are those of ``slots``."""

    first: int
    end: int
    stride: int
    num_steps: int
    slots: slice
    cell: Tensor | None = None

    @property
    def num_lanes(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, eq=False)
class LaneSteps:
    """Steps of all lanes, in one launch per stage of the sequences' transport, which run in ``order``.

    ``packed``: a lane has several sequences end to end, and kernels write final states of slots that have cells.
    Otherwise a lane is a slot, and they write those of all slots.
    """

    stages: tuple[LaneRange, ...]
    order: tuple[int, ...]
    packed: bool = False
    before: Tensor | None = None  # [C]: previous cell, or -1 - slot at the start of a sequence; None: cell - slots
    ends: Tensor | None = None  # [C]: slot if it is the last cell of its sequence, or -1

    @classmethod
    def of(cls, sequences: Sequences) -> LaneSteps:
        """Cached steps of the sequences."""
        return sequences.plan(_make_lane_steps)

    @property
    def in_order(self) -> list[tuple[int, LaneRange]]:
        """Number and lanes of the stages, in the order in which they run."""
        return [(stage, self.stages[stage]) for stage in self.order]


def _make_lane_steps(sequences: Sequences) -> LaneSteps:
    steps, slots, transport = sequences.num_snapshots, sequences.num_slots, sequences.transport
    cuts, order = ((0, slots), (0,)) if transport is None else (transport.cuts, transport.order)
    if sequences.slot is None:
        return LaneSteps(tuple(LaneRange(*cut, slots, steps, slice(*cut)) for cut in pairwise(cuts)), order)
    before, ends = _link_cells(sequences)
    if steps * slots <= MAX_STEPS_PER_CELL * sequences.num_cells:
        table = sequences.plan(cell_table)
        stages = tuple(LaneRange(*cut, slots, steps, slice(*cut), table) for cut in pairwise(cuts))
        return LaneSteps(stages, order, before=before, ends=ends)
    stages = tuple(_pack_stage(sequences, *cut) for cut in pairwise(cuts))
    return LaneSteps(stages, order, packed=True, before=before, ends=ends)


def _pack_stage(sequences: Sequences, first: int, end: int) -> LaneRange:
    """Pack the sequences of the slots ``first`` to ``end``."""
    assert sequences.slot is not None, "only absent cells are worth packing"
    chosen, cells = sequences, None
    if (first, end) != (0, sequences.num_slots):
        cells = np.flatnonzero((sequences.slot >= first) & (sequences.slot < end))
        ptr = tuple(np.searchsorted(cells, sequences.cell_ptr).tolist())
        chosen = Sequences(ptr, sequences.slot[cells] - first, end - first, sequences.device)
    lanes = PackedSequences.of(chosen)
    cell = lanes.cell if cells is None else torch.from_numpy(cells).to(sequences.device)[lanes.cell]
    table = cell.new_full((lanes.length, lanes.num_lanes), -1, dtype=torch.int32)
    for column, (row, reach) in enumerate(zip(cell.split(lanes.columns), lanes.columns, strict=True)):
        table[column, :reach] = row.to(torch.int32)
    return LaneRange(0, lanes.num_lanes, lanes.num_lanes, lanes.length, slice(first, end), table)


def cell_table(sequences: Sequences) -> Tensor:
    """Cell of every snapshot and node, [steps, slots], -1 if absent."""
    steps, slots = sequences.num_snapshots, sequences.num_slots
    cells = torch.arange(sequences.num_cells, dtype=torch.int32, device=sequences.device)
    at = torch.repeat_interleave(torch.arange(steps), torch.tensor(sequences.cell_ptr).diff())
    cell = cells.new_full((steps * slots,), -1)
    cell[at.to(cells.device) * slots + sequences.slots] = cells
    return cell.view(steps, slots)


def _link_cells(sequences: Sequences) -> tuple[Tensor, Tensor]:
    """``before`` and ``ends`` of all cells."""
    slots = sequences.slots
    cells = torch.arange(sequences.num_cells, dtype=torch.int32, device=sequences.device)
    before = torch.empty_like(cells)
    newest = cells.new_full((sequences.num_slots,), -1)
    for start, stop in pairwise(sequences.cell_ptr):
        present = slots[start:stop]
        previous = newest[present]
        before[start:stop] = torch.where(previous < 0, -1 - present.to(torch.int32), previous)
        newest[present] = cells[start:stop]
    ends = torch.full_like(cells, -1)
    who = torch.nonzero(newest >= 0)[:, 0]
    ends[newest[who].long()] = who.to(torch.int32)
    return before, ends
