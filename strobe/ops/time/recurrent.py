"""Shared parts of recurrent stages: plain torch implementations, and parallel execution of tiles of nodes.

A stage saves the states of all cells, which are its result; backward recomputes or loads the rest, whichever is
cheaper. Sequences may start late, end early and pause: the state of a node persists until its next cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from strobe.errors import InputError
from strobe.ops.runtime.parallel import even_cuts, run_parts
from strobe.ops.time.packing import PackedSequences
from strobe.ops.time.sequences import Grid, Sequences, StateTransfer

State = tuple[Tensor, ...]
"""Recurrent state: (h,) or (h, c), each [slots, H]."""

Step = Callable[[Tensor, State], State]
"""One step on rows, in torch operations."""

Walk = Callable[[int, int, int], None]
"""Runs a group of tiles: (group, first tile, end tile)."""

TILE_ROWS = 64
"""Rows of a tile: gates and weights of up to some hundred columns stay in L1 and L2."""

GROUPS = 16
"""Weight gradients are summed per group of tiles and then in group order: bit-identical on any number of threads."""

GROUP_TILES = 4
"""Minimum tiles per group."""

STAGE_GROUPS = 4
"""Groups per stage if there are several stages."""

PACKED_ROWS = 2.0
"""Sequences are packed if stepping through snapshots would copy more state rows per cell than this. On one core both
then take the same time; packing takes 0.7 to 1.0 of it at 5 rows, less than half at 20, and 1.4 at none."""


def run_in_torch(step: Step, x: Tensor, state: State, sequences: Sequences) -> tuple[Tensor, State]:
    """Run a stage without kernels: ``run_packed`` or ``run_reference``, whichever moves fewer rows.

    Packing reorders all cells; stepping through snapshots copies the states of all nodes wherever one is absent.
    """
    counts = [stop - start for start, stop in pairwise(sequences.cell_ptr)]
    copied = sequences.num_slots * sum(0 < count < sequences.num_slots for count in counts)
    lanes = copied > PACKED_ROWS * sequences.num_cells and sequences.capture is None
    return (run_packed if lanes else run_reference)(step, x, state, sequences)


def run_packed(step: Step, x: Tensor, state: State, sequences: Sequences) -> tuple[Tensor, State]:
    """Run a stage on packed sequences: as many dense steps as the longest sequence has cells.

    At a boundary the state is reset to the initial state of the next sequence. Memory: a copy of inputs and outputs.
    """
    lanes = PackedSequences.of(sequences)
    if not lanes.num_cells:
        return _empty_output(step, x, state), state
    first = [old.index_select(0, lanes.boundary_slot).split(lanes.boundary_columns) for old in state]
    starts = lanes.boundary_lane.split(lanes.boundary_columns)
    columns = x.index_select(0, lanes.cell).split(lanes.columns)
    now: State = tuple(each[0] for each in first)  # all lanes begin in the first column
    outputs = []
    for column, rows in enumerate(columns):
        if column:
            now = tuple(
                _reset_at_boundaries(old, len(rows), starts[column], each[column])
                for old, each in zip(now, first, strict=True)
            )
        now = step(rows, now)
        outputs.append(now)
    joined = [torch.cat(each) for each in zip(*outputs, strict=True)]
    last = tuple(
        old.index_copy(0, lanes.boundary_slot, each.index_select(0, lanes.end))
        for old, each in zip(state, joined, strict=True)
    )
    return joined[0].index_select(0, lanes.place), last


def _reset_at_boundaries(old: Tensor, count: int, at: Tensor, fresh: Tensor) -> Tensor:
    """States of the first ``count`` lanes, initial states where sequences begin."""
    old = old if len(old) == count else old[:count]
    return old.index_copy(0, at, fresh) if len(at) else old


def check_inputs(parts: Iterable[Tensor], weights: Tensor, sequences: Sequences) -> None:
    """Raise ``InputError`` if inputs do not fit the weights or sequences; kernels do not check bounds."""
    columns = 0
    for part in parts:
        columns += part.shape[1]
        if len(part) != sequences.num_cells:
            raise InputError(f"inputs have {len(part):,} rows, the sequences {sequences.num_cells:,} cells")
    if weights.shape[1] != columns:
        raise InputError(f"inputs have {columns} columns, the weights are for {weights.shape[1]}")


def run_reference(step: Step, x: Tensor, state: State, sequences: Sequences) -> tuple[Tensor, State]:
    """Run a stage snapshot by snapshot: hidden states of all cells and the final states."""
    counts = [stop - start for start, stop in pairwise(sequences.cell_ptr)]
    outputs, capture = [], sequences.capture
    captured = None if capture is None else tuple(old.detach().clone() for old in state)
    # split, not slices of x: the gradient of a slice has the size of x
    for t, rows in enumerate(x.split(counts)):
        start, stop = sequences.cell_ptr[t : t + 2]
        if start == stop and sequences.num_slots:
            continue
        at = None if stop - start == sequences.num_slots else sequences.slots[start:stop]
        new = step(rows, state if at is None else tuple(old[at] for old in state))
        outputs.append(new[0])
        if at is None:
            state = new
        else:
            state = tuple(old.index_copy(0, at, fresh) for old, fresh in zip(state, new, strict=True))
        if capture is not None and captured is not None:
            cells = capture.rows[t]
            for target, fresh in zip(captured, new, strict=True):
                capture.scatter_snapshot(t, target, fresh.detach()[cells.start - start : cells.stop - start])
    out = torch.cat(outputs) if outputs else _empty_output(step, x, state)
    return out, state if captured is None else captured


def _empty_output(step: Step, x: Tensor, state: State) -> Tensor:
    """No rows, but with a graph: a rank without cells has a loss and a backward pass, too."""
    return step(x, tuple(old[:0] for old in state))[0]


def run_groups(grid: Grid, walk: Walk, stage: int = 0) -> None:
    """Call ``walk(group, first tile, end tile)`` for all groups of a stage's tiles, on all cores."""
    first, end = grid.stages[stage]
    groups = _num_groups(end - first, GROUPS if len(grid.stages) == 1 else STAGE_GROUPS)
    ranges = even_cuts(first, end, groups)

    def work(group: int) -> None:
        walk(group, *ranges[group])

    run_parts(work, len(ranges))


def run_forward(
    grid: Grid, walk: Walk, transfer: StateTransfer | None, first: Sequence[Tensor], last: Sequence[Tensor]
) -> None:
    """Run all stages in order, receiving states before and sending states after each."""
    for stage in grid.order:
        if transfer is not None:
            transfer.recv(stage, first)
        run_groups(grid, walk, stage)
        if transfer is not None:
            transfer.send(stage, last)


def run_backward(grid: Grid, walk: Walk, transfer: StateTransfer | None, gradients: Sequence[Tensor]) -> None:
    """Run all stages in reverse. ``gradients`` of the final states become those of the initial states in place."""
    if transfer is not None:
        transfer.begin_backward()
    for stage in reversed(grid.order):
        if transfer is not None:
            transfer.recv_grad(stage, gradients)
        run_groups(grid, walk, stage)
        if transfer is not None:
            transfer.send_grad(stage, gradients)


def zeros_per_group(grid: Grid, weights: tuple[Tensor, ...]) -> list[Tensor]:
    """Zeros for the weight gradients of every group, [groups, *weight]."""
    return [weight.new_zeros(_num_groups(grid.num_tiles, GROUPS), *weight.shape) for weight in weights]


def _num_groups(tiles: int, most: int) -> int:
    return min(most, -(-tiles // GROUP_TILES))
