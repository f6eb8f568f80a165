"""What recurrent stages share: the versions in plain torch, and how tiles of nodes are shared out over the cores.

A stage keeps the states of all cells, which are its result; what else backward needs it computes again, or keeps where
that is cheaper. Sequences may start late, end early and pause: a node's state waits for its next cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from strobe.errors import InputError
from strobe.ops.lanes import Lanes
from strobe.ops.sequences import Errand, Grid, Sequences
from strobe.ops.threads import run_parts

State = tuple[Tensor, ...]
"""What a cell carries along a sequence: (h,) or (h, c), each [slots, H]."""

Step = Callable[[Tensor, State], State]
"""One step of a cell on rows, in plain torch operations that autograd follows."""

Walk = Callable[[int, int, int], None]
"""What runs a group of tiles: its number, its first tile, and the one after its last."""

TILE_ROWS = 64
"""Rows of a tile: gates and weights of up to some hundred columns stay in a core's first caches."""

GROUPS = 16
"""Tiles are shared out in this many groups whose sums of weight gradients are joined in order: the same bits always."""

GROUP_TILES = 4
"""Fewer of them are not worth calling a kernel once more."""

STAGE_GROUPS = 4
"""Groups of each stage where there are several."""

PACKED_ROWS = 2.0
"""Lanes are used where stepping through snapshots would copy more rows of state a cell than this: on a core both then
take the same time; at 5 rows lanes take 0.7 to 1.0 of it, at 20 less than half, and 1.4 times as long at none."""


def in_torch(step: Step, x: Tensor, state: State, sequences: Sequences) -> tuple[Tensor, State]:
    """What runs on a GPU, or without kernels: ``reference`` or ``packed``, whichever moves fewer rows.

    Lanes never take more steps than there are snapshots with cells, but cells must be brought into their order and
    back; snapshot by snapshot the states of all nodes are copied wherever one is absent.
    """
    counts = [stop - start for start, stop in pairwise(sequences.cell_ptr)]
    copied = sequences.num_slots * sum(0 < count < sequences.num_slots for count in counts)
    lanes = copied > PACKED_ROWS * sequences.num_cells and sequences.leaving is None
    return (packed if lanes else reference)(step, x, state, sequences)


def packed(step: Step, x: Tensor, state: State, sequences: Sequences) -> tuple[Tensor, State]:
    """The same as ``reference``, sequences end to end in lanes: as many steps as the longest has cells.

    Every step is dense, on a slice of cells and about as many of them each time; at a seam the state becomes the first
    one of the sequence that begins. Memory: inputs and outputs once more, in the order of lanes.
    """
    lanes = Lanes.of(sequences)
    if not lanes.num_cells:
        return _of_no_cells(step, x, state), state
    first = [old.index_select(0, lanes.seam_slot).split(lanes.seam_columns) for old in state]
    seams = lanes.seam_lane.split(lanes.seam_columns)
    columns = x.index_select(0, lanes.cell).split(lanes.columns)
    now: State = tuple(each[0] for each in first)  # all lanes begin in the first column
    outputs = []
    for column, rows in enumerate(columns):
        if column:
            now = tuple(
                _renewed(old, len(rows), seams[column], each[column]) for old, each in zip(now, first, strict=True)
            )
        now = step(rows, now)
        outputs.append(now)
    joined = [torch.cat(each) for each in zip(*outputs, strict=True)]
    last = tuple(
        old.index_copy(0, lanes.seam_slot, each.index_select(0, lanes.end))
        for old, each in zip(state, joined, strict=True)
    )
    return joined[0].index_select(0, lanes.place), last


def _renewed(old: Tensor, count: int, at: Tensor, fresh: Tensor) -> Tensor:
    """States of the first ``count`` lanes, which reach the next column; fresh ones where sequences begin."""
    old = old if len(old) == count else old[:count]
    return old.index_copy(0, at, fresh) if len(at) else old


def check_inputs(parts: Iterable[Tensor], weights: Tensor, sequences: Sequences) -> None:
    """Refuses inputs, side by side, that weights or sequences are not made for: kernels would read beyond them."""
    columns = 0
    for part in parts:
        columns += part.shape[1]
        if len(part) != sequences.num_cells:
            raise InputError(f"inputs have {len(part):,} rows, the sequences {sequences.num_cells:,} cells")
    if weights.shape[1] != columns:
        raise InputError(f"inputs have {columns} columns, the weights are for {weights.shape[1]}")


def reference(step: Step, x: Tensor, state: State, sequences: Sequences) -> tuple[Tensor, State]:
    """Hidden states of all cells and the final states, snapshot by snapshot."""
    counts = [stop - start for start, stop in pairwise(sequences.cell_ptr)]
    outputs, leaving = [], sequences.leaving
    cut = None if leaving is None else tuple(old.detach().clone() for old in state)
    for rows, stretch in zip(x.split(counts), sequences.stretches(), strict=True):  # a slice's gradient is all of x's
        at = stretch.at
        if at is not None and not at.numel():
            continue
        new = step(rows, state if at is None else tuple(old[at] for old in state))
        outputs.append(new[0])
        if at is None:
            state = new
        else:
            state = tuple(old.index_copy(0, at, fresh) for old, fresh in zip(state, new, strict=True))
        if leaving is not None and cut is not None:
            rows = leaving.rows[stretch.t]
            for kept, fresh in zip(cut, new, strict=True):
                leaving.put(stretch.t, kept, fresh.detach()[rows.start - stretch.start : rows.stop - stretch.start])
    out = torch.cat(outputs) if outputs else _of_no_cells(step, x, state)
    return out, state if cut is None else cut


def _of_no_cells(step: Step, x: Tensor, state: State) -> Tensor:
    """No rows, but computed: a rank without cells has a loss, too, and a way back."""
    return step(x, tuple(old[:0] for old in state))[0]


def each_group(grid: Grid, walk: Walk, stage: int = 0) -> None:
    """Calls ``walk(group, first tile, last tile)`` for all groups of a stage's tiles, spread over the cores."""
    first, end = grid.stages[stage]
    groups = _num_groups(end - first, GROUPS if len(grid.stages) == 1 else STAGE_GROUPS)
    cuts = torch.linspace(first, end, groups + 1, dtype=torch.float64).long().tolist()
    ranges = list(pairwise(cuts))

    def work(group: int) -> None:
        walk(group, *ranges[group])

    run_parts(work, len(ranges))


def go_through(grid: Grid, walk: Walk, errand: Errand | None, first: Sequence[Tensor], last: Sequence[Tensor]) -> None:
    """All stages in order; states that go on elsewhere, or come from there, travel in between."""
    for stage in grid.order:
        if errand is not None:
            errand.take(stage, first)
        each_group(grid, walk, stage)
        if errand is not None:
            errand.give(stage, last)


def go_back(grid: Grid, walk: Walk, errand: Errand | None, gradients: Sequence[Tensor]) -> None:
    """All stages in reverse. ``gradients`` are those of the last states, and become those of the first."""
    if errand is not None:
        errand.turn()
    for stage in reversed(grid.order):
        if errand is not None:
            errand.take_back(stage, gradients)
        each_group(grid, walk, stage)
        if errand is not None:
            errand.give_back(stage, gradients)


def sums_like(grid: Grid, weights: tuple[Tensor, ...]) -> list[Tensor]:
    """Zeros for every group's share of the weight gradients, [groups, *weight]."""
    return [weight.new_zeros(_num_groups(grid.num_tiles, GROUPS), *weight.shape) for weight in weights]


def _num_groups(tiles: int, most: int) -> int:
    return min(most, -(-tiles // GROUP_TILES))
