"""How lanes of a kernel walk through sequences: which cell each computes at each step.

Where everybody is always present a lane is a node and a cell's place is arithmetic. Else there are tables: lanes are
nodes that wait while they are absent, or, where most would wait most of the time, ``Lanes`` with sequences end to end.
Either way a cell knows the cell before it, or whose first state it begins with, and whether it is its node's last.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from strobe.ops.lanes import Lanes
from strobe.ops.sequences import Sequences

WAITING = 2.0
"""Steps a cell up to which lanes are nodes, absences included: their tables are made on the GPU, those of lanes are
not."""


@dataclass(frozen=True, eq=False)
class Walk:
    """Lanes and their steps. Without tables lane l computes the cell ``step * num_lanes + l``."""

    num_lanes: int
    num_steps: int
    cell: Tensor | None = None  # [steps, lanes], -1 where nobody is
    before: Tensor | None = None  # [C]: the cell before, or -1 - slot where a sequence begins
    ends: Tensor | None = None  # [C]: the slot whose last cell it is, or -1

    @classmethod
    def of(cls, sequences: Sequences) -> Walk:
        """The walk through some sequences, made once for each object."""
        if cls not in sequences.plans:
            sequences.plans[cls] = _plan(sequences)
        walk: Walk = sequences.plans[cls]
        return walk

    def last(self, first: Tensor, after: Tensor) -> Tensor:
        """The state of every slot after its last cell, from those after each cell; the first where it has none."""
        assert self.ends is not None
        at = torch.nonzero(self.ends >= 0)[:, 0]
        return first.index_copy(0, self.ends[at].long(), after[at])


def _plan(sequences: Sequences) -> Walk:
    if sequences.slot is None:
        return Walk(sequences.num_slots, sequences.num_snapshots)
    before, ends = _links(sequences)
    steps, slots = sequences.num_snapshots, sequences.num_slots
    if steps * slots <= WAITING * sequences.num_cells:
        return Walk(slots, steps, Table.of(sequences).cell, before, ends)
    lanes = Lanes.of(sequences)
    table = before.new_full((lanes.length, lanes.num_lanes), -1)
    for column, (row, reach) in enumerate(zip(lanes.cell.split(lanes.columns), lanes.columns, strict=True)):
        table[column, :reach] = row.to(torch.int32)
    return Walk(lanes.num_lanes, lanes.length, table, before, ends)


@dataclass(frozen=True, eq=False)
class Table:
    """The cell of every snapshot and node, [steps, slots], -1 where it is absent."""

    cell: Tensor

    @classmethod
    def of(cls, sequences: Sequences) -> Table:
        """That of some sequences, made once for each object."""
        if cls not in sequences.plans:
            steps, slots = sequences.num_snapshots, sequences.num_slots
            cells = torch.arange(sequences.num_cells, dtype=torch.int32, device=sequences.device)
            at = torch.repeat_interleave(torch.arange(steps), torch.tensor(sequences.cell_ptr).diff())
            cell = cells.new_full((steps * slots,), -1)
            cell[at.to(cells.device) * slots + sequences.slots] = cells
            sequences.plans[cls] = cls(cell.view(steps, slots))
        table: Table = sequences.plans[cls]
        return table


def _links(sequences: Sequences) -> tuple[Tensor, Tensor]:
    """``before`` and ``ends`` of all cells."""
    slots = sequences.slots
    cells = torch.arange(sequences.num_cells, dtype=torch.int32, device=sequences.device)
    before = torch.empty_like(cells)
    newest = cells.new_full((sequences.num_slots,), -1)
    for start, stop in pairwise(sequences.cell_ptr):
        here = slots[start:stop]
        known = newest[here]
        before[start:stop] = torch.where(known < 0, -1 - here.to(torch.int32), known)
        newest[here] = cells[start:stop]
    ends = torch.full_like(cells, -1)
    who = torch.nonzero(newest >= 0)[:, 0]
    ends[newest[who].long()] = who.to(torch.int32)
    return before, ends
