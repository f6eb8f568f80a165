"""Attention over a node's own past: a tile of nodes goes through all snapshots, scores never leave the chip.

Forward keeps nothing but its inputs. Backward computes the weights again and writes down two numbers a cell and head.
Gradients of positions are summed as the GRU's of weights are: a fixed number of programs, each its tiles in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.sequences import Sequences
from strobe.ops.triton.kernel import multiprocessors
from strobe.ops.triton.kernels.time_attention import look_back, look_back_backward
from strobe.ops.triton.walk import Table

_INT32_MAX = 2**31 - 1

ELEMENTS, OF_A_WARP = 2048, 1024
"""Of a block of keys or values, and of what a warp has of it: 32 numbers a thread."""

MOST_ELEMENTS = 8192
"""Snapshots that are seen times columns, each padded to a power of two, up to which a block stays on chip."""

WAITING = 8.0
"""Steps a cell up to which nodes wait while they are absent; beyond, plain torch packs those that are present."""

PROGRAMS = 32
"""A multiprocessor on the way back: several times those that run at once, so that all end together."""


def fits(sequences: Sequences, heads: int, width: int, span: int | None) -> bool:
    """Whether the kernels are made for this many columns and snapshots, and these nodes are present often enough."""
    sizes = _sizes(sequences, heads, width, span)
    most_steps = min(WAITING * sequences.num_cells, _INT32_MAX)
    within = sizes["sp"] * sizes["hp"] * sizes["dp"] <= MOST_ELEMENTS
    return within and sequences.num_snapshots * sequences.num_slots <= most_steps


def time_attention(
    rows: tuple[Tensor, ...],
    sequences: Sequences,
    heads: int,
    span: int | None,
    past: int,
    positions: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """The same as ``strobe.ops.time_attention`` has it, without dropout.

    ``rows`` are queries, keys and values, or one matrix in which they stand side by side.
    """
    sizes = _sizes(sequences, heads, rows[-1].shape[1] // (3 if len(rows) == 1 else 1), span)
    out: Tensor = _LookBack.apply(sequences, sizes, past, *(positions or (None, None)), *rows)  # type: ignore[no-untyped-call]
    return out


class _LookBack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        sequences: Sequences,
        sizes: dict[str, Any],
        past: int,
        of_key: Tensor | None,
        of_value: Tensor | None,
        *given: Tensor,
    ) -> Tensor:
        rows = [each.detach().contiguous() for each in given]
        tables = [None if each is None else each.detach().contiguous() for each in (of_key, of_value)]
        steps = (sequences.num_slots, sequences.num_snapshots, past, sequences.cell_ptr[past])
        q, k, v = _apart(rows, steps[-1])
        out, options = q.new_empty(q.shape), _options(sizes, v.stride(0), tables[0])
        tiles = triton.cdiv(sequences.num_slots * sizes["hp"], options["pairs"])
        cell = None if sequences.slot is None else Table.of(sequences).cell
        if len(q):
            look_back[(tiles,)](q, k, v, *tables, cell, out, *steps, **options)
        ctx.cell, ctx.options, ctx.steps, ctx.tiles = cell, options, steps, tiles
        ctx.save_for_backward(*tables, *rows)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        of_key, of_value, *rows = ctx.saved_tensors
        tables, options, d_out, begin = (of_key, of_value), ctx.options, grads[0].contiguous(), ctx.steps[-1]
        q, k, v = _apart(rows, begin)
        if not len(q):
            return None, None, None, *(None if each is None else torch.zeros_like(each) for each in (*tables, *rows))
        told, less = (q.new_empty(len(q), options["heads"], dtype=torch.float32) for _ in range(2))
        found = [torch.empty_like(each) for each in rows]
        if len(found) == 1:
            found[0][:begin, : q.shape[1]] = 0  # nobody asks for the past
        programs, sums = min(ctx.tiles, PROGRAMS * multiprocessors(q.device)), None
        if options["positions"]:
            sums = q.new_empty(programs, 2, options["sp"], options["pairs"], options["dp"], dtype=torch.float32)
        look_back_backward[(programs,)](
            q, k, v, *tables, ctx.cell, d_out, told, less, *_apart(found, begin), sums, *ctx.steps, ctx.tiles, **options
        )
        return None, None, None, *((None, None) if sums is None else _of_tables(sums, tables, options)), *found


def _apart(rows: Sequence[Tensor], begin: int) -> Sequence[Tensor]:
    """Queries of the cells after the past, keys and values, where they stand."""
    if len(rows) == 3:
        return rows
    q, k, v = rows[0].chunk(3, 1)
    return q[begin:], k, v


def _sizes(sequences: Sequences, heads: int, width: int, span: int | None) -> dict[str, Any]:
    """Snapshots that are seen, heads and columns of a head, and the same padded."""
    seen = min(span or sequences.num_snapshots, sequences.num_snapshots)
    depth = width // heads
    sp, hp, dp = (int(triton.next_power_of_2(max(size, 1))) for size in (seen, heads, depth))
    return {"span": seen, "sp": sp, "heads": heads, "hp": hp, "depth": depth, "dp": dp}


def _options(sizes: dict[str, Any], stride: int, table: Tensor | None) -> dict[str, Any]:
    """Sizes, and how the work is cut: a tile has whole nodes, and a thread has all places of its columns if it can."""
    pairs = max(sizes["hp"], ELEMENTS // (sizes["sp"] * sizes["dp"]))
    warps = min(8, pairs * sizes["sp"] * sizes["dp"] // OF_A_WARP)
    positions = 0 if table is None else len(table)
    cut = {"pairs": pairs, "positions": positions, "stride": stride, "num_warps": warps}
    return sizes | cut | {"scale": sizes["depth"] ** -0.5}


def _of_tables(sums: Tensor, tables: Sequence[Tensor], options: dict[str, Any]) -> list[Tensor]:
    """Gradients of positions from the sums of all programs by distance: far ones share the last."""
    span, heads, depth = options["span"], options["heads"], options["depth"]
    total = sums.unflatten(3, (-1, options["hp"])).sum((0, 3), dtype=torch.float64)[:, :span, :heads, :depth]
    found = []
    for table, by_distance in zip(tables, total.flatten(2), strict=True):
        near = min(len(table), span)
        gradient = torch.zeros_like(table, dtype=torch.float64)
        gradient[:near] = by_distance[:near]
        gradient[-1] += by_distance[near:].sum(0)
        found.append(gradient.to(table.dtype))
    return found
