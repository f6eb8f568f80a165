"""Tables of the cell that each lane of a kernel computes at each step.

If all nodes are always present a lane is a node and the cell is arithmetic. Otherwise there are tables: lanes are nodes
that idle while absent or, if most would be idle, ``PackedSequences``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from strobe.ops.time.packing import PackedSequences
from strobe.ops.time.sequences import Sequences

MAX_STEPS_PER_CELL = 2.0
"""Lanes are nodes up to this many steps per cell (tables are built on the GPU); else sequences are packed."""


@dataclass(frozen=True, eq=False)
class LaneSteps:
    """Steps of all lanes. Without tables lane l computes cell ``step * num_lanes + l``."""

    num_lanes: int
    num_steps: int
    cell: Tensor | None = None  # [steps, lanes], -1 if idle
    before: Tensor | None = None  # [C]: previous cell, or -1 - slot at the start of a sequence
    ends: Tensor | None = None  # [C]: slot if it is the last cell of its sequence, or -1

    @classmethod
    def of(cls, sequences: Sequences) -> LaneSteps:
        """Cached steps of the sequences."""
        return sequences.plan(_make_lane_steps)

    def last_states(self, first: Tensor, after: Tensor) -> Tensor:
        """Final state of every slot, from the states after each cell; the initial state of slots without cells."""
        assert self.ends is not None
        at = torch.nonzero(self.ends >= 0)[:, 0]
        return first.index_copy(0, self.ends[at].long(), after[at])


def _make_lane_steps(sequences: Sequences) -> LaneSteps:
    if sequences.slot is None:
        return LaneSteps(sequences.num_slots, sequences.num_snapshots)
    before, ends = _link_cells(sequences)
    steps, slots = sequences.num_snapshots, sequences.num_slots
    if steps * slots <= MAX_STEPS_PER_CELL * sequences.num_cells:
        return LaneSteps(slots, steps, sequences.plan(cell_table), before, ends)
    lanes = PackedSequences.of(sequences)
    table = before.new_full((lanes.length, lanes.num_lanes), -1)
    for column, (row, reach) in enumerate(zip(lanes.cell.split(lanes.columns), lanes.columns, strict=True)):
        table[column, :reach] = row.to(torch.int32)
    return LaneSteps(lanes.num_lanes, lanes.length, table, before, ends)


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
