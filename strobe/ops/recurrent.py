"""What recurrent stages share: the obvious version, and how tiles of nodes are shared out over the cores.

A stage keeps the states of all cells, which are its result; what else backward needs it computes again, or keeps where
that is cheaper. Sequences may start late, end early and pause: a node's state waits for its next cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

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

STAGE_GROUPS = 4
"""Groups of each stage where there are several."""


def reference(step: Step, x: Tensor, state: State, sequences: Sequences) -> tuple[Tensor, State]:
    """Hidden states of all cells and the final states, snapshot by snapshot: what runs on a GPU, or without kernels."""
    outputs = []
    for stretch in sequences.stretches():
        rows = x[stretch.start : stretch.stop]
        at = stretch.at
        if at is None:
            state = step(rows, state)
            outputs.append(state[0])
        elif at.numel():
            new = step(rows, tuple(old[at] for old in state))
            state = tuple(old.index_copy(0, at, fresh) for old, fresh in zip(state, new, strict=True))
            outputs.append(new[0])
    return torch.cat(outputs) if outputs else x.new_zeros(0, state[0].shape[1]), state


def each_group(grid: Grid, walk: Walk, stage: int = 0) -> None:
    """Calls ``walk(group, first tile, last tile)`` for all groups of a stage's tiles, spread over the cores."""
    first, end = grid.stages[stage]
    groups = min(GROUPS if len(grid.stages) == 1 else STAGE_GROUPS, end - first)
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
    return [weight.new_zeros(min(GROUPS, grid.num_tiles), *weight.shape) for weight in weights]
