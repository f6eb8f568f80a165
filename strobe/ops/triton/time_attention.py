"""Attention over each node's sequence: a tile of nodes runs through all snapshots, scores stay on chip.

Forward saves the inputs only. Backward recomputes the weights and stores two numbers per cell and head. Gradients of
positions are summed by a fixed number of programs, each its tiles in order, so results are deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.time.attention import split_qkv
from strobe.ops.time.sequences import Sequences
from strobe.ops.triton.kernel import num_multiprocessors
from strobe.ops.triton.kernels.time_attention import time_attention_backward, time_attention_forward
from strobe.ops.triton.sequence_tables import cell_table

_INT32_MAX = 2**31 - 1

ELEMENTS, OF_A_WARP = 2048, 1024
"""Elements of a block of keys or values, and per warp: 32 per thread."""

MAX_ELEMENTS = 8192
"""Maximum padded snapshots times columns for which a block stays on chip."""

MAX_STEPS_PER_CELL = 8.0
"""Maximum steps per cell, absences included; beyond it plain torch packs the present cells."""

PROGRAMS = 32
"""Programs per multiprocessor in backward, several times those resident, for load balance."""


def fits(sequences: Sequences, heads: int, width: int, span: int | None) -> bool:
    """Whether kernels support this many columns and snapshots, and nodes are present often enough."""
    sizes = _sizes(sequences, heads, width, span)
    most_steps = min(MAX_STEPS_PER_CELL * sequences.num_cells, _INT32_MAX)
    within = sizes["sp"] * sizes["hp"] * sizes["dp"] <= MAX_ELEMENTS
    return within and sequences.num_snapshots * sequences.num_slots <= most_steps


def time_attention(
    rows: tuple[Tensor, ...],
    sequences: Sequences,
    heads: int,
    span: int | None,
    past: int,
    positions: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """``strobe.ops.time.attention.time_attention`` on a GPU, without dropout.

    ``rows`` are queries, keys and values, or one matrix with all three.
    """
    sizes = _sizes(sequences, heads, rows[-1].shape[1] // (3 if len(rows) == 1 else 1), span)
    out: Tensor = _TimeAttention.apply(sequences, sizes, past, *(positions or (None, None)), *rows)  # type: ignore[no-untyped-call]
    return out


class _TimeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        sequences: Sequences,
        sizes: dict[str, Any],
        past: int,
        of_key: Tensor | None,
        of_value: Tensor | None,
        *inputs: Tensor,
    ) -> Tensor:
        rows = tuple(each.detach().contiguous() for each in inputs)
        tables = [None if each is None else each.detach().contiguous() for each in (of_key, of_value)]
        steps = (sequences.num_slots, sequences.num_snapshots, past, sequences.cell_ptr[past])
        q, k, v = split_qkv(rows, steps[-1])
        out, options = q.new_empty(q.shape), _options(sizes, v.stride(0), tables[0])
        tiles = triton.cdiv(sequences.num_slots * sizes["hp"], options["pairs"])
        cell = None if sequences.slot is None else sequences.plan(cell_table)
        if len(q):
            time_attention_forward[(tiles,)](q, k, v, *tables, cell, out, *steps, **options)
        ctx.cell, ctx.options, ctx.steps, ctx.tiles = cell, options, steps, tiles
        ctx.save_for_backward(*tables, *rows)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        saved = ctx.saved_tensors  # read once: under recomputation a second read raises CheckpointError
        tables, rows = saved[:2], saved[2:]
        options, d_out, begin = ctx.options, grads[0].contiguous(), ctx.steps[-1]
        q, k, v = split_qkv(rows, begin)
        if not len(q):
            return None, None, None, *(None if each is None else torch.zeros_like(each) for each in (*tables, *rows))
        logsumexp, row_dot = (q.new_empty(len(q), options["heads"], dtype=torch.float32) for _ in range(2))
        d_rows = tuple(map(torch.empty_like, rows))
        if len(d_rows) == 1:
            d_rows[0][:begin, : q.shape[1]] = 0  # queries of past cells are not read
        programs, sums = min(ctx.tiles, PROGRAMS * num_multiprocessors(q.device)), None
        if options["positions"]:
            sums = q.new_empty(programs, 2, options["sp"], options["pairs"], options["dp"], dtype=torch.float32)
        time_attention_backward[(programs,)](
            q, k, v, *tables, ctx.cell, d_out, logsumexp, row_dot, *split_qkv(d_rows, begin), sums, *ctx.steps,
            ctx.tiles, **options,
        )  # fmt: skip
        d_tables = (None, None) if sums is None else _position_gradients(sums, tables, options)
        return None, None, None, *d_tables, *d_rows


def _sizes(sequences: Sequences, heads: int, width: int, span: int | None) -> dict[str, Any]:
    """Snapshots seen, heads and columns per head, and each padded."""
    seen = min(span or sequences.num_snapshots, sequences.num_snapshots)
    depth = width // heads
    sp, hp, dp = (int(triton.next_power_of_2(max(size, 1))) for size in (seen, heads, depth))
    return {"span": seen, "sp": sp, "heads": heads, "hp": hp, "depth": depth, "dp": dp}


def _options(sizes: dict[str, Any], stride: int, table: Tensor | None) -> dict[str, Any]:
    """Sizes and launch options: a tile has whole nodes."""
    pairs = max(sizes["hp"], ELEMENTS // (sizes["sp"] * sizes["dp"]))
    warps = min(8, pairs * sizes["sp"] * sizes["dp"] // OF_A_WARP)
    positions = 0 if table is None else len(table)
    cut = {"pairs": pairs, "positions": positions, "stride": stride, "num_warps": warps}
    return sizes | cut | {"scale": sizes["depth"] ** -0.5}


def _position_gradients(sums: Tensor, tables: Sequence[Tensor], options: dict[str, Any]) -> list[Tensor]:
    """Gradients of positions from the sums of all programs by distance; large distances share the last."""
    span, heads, depth = options["span"], options["heads"], options["depth"]
    total = sums.unflatten(3, (-1, options["hp"])).sum((0, 3), dtype=torch.float64)[:, :span, :heads, :depth]
    gradients = []
    for table, by_distance in zip(tables, total.flatten(2), strict=True):
        near = min(len(table), span)
        gradient = torch.zeros_like(table, dtype=torch.float64)
        gradient[:near] = by_distance[:near]
        gradient[-1] += by_distance[near:].sum(0)
        gradients.append(gradient.to(table.dtype))
    return gradients
