"""Self-attention over each node's sequence: a cell reads the cells of its node up to itself.

Absent cells take no part. Positions are relative: a cell d snapshots back has key k + key_d and value v + value_d.
"""

from __future__ import annotations

from functools import partial
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from strobe.ops import triton
from strobe.ops.dense.bf16 import BF16, run_in_float32
from strobe.ops.dense.linear import linear
from strobe.ops.time.sequences import Sequences
from strobe.ops.time.windowed import Piece, Tensors, WindowedOp

STRIDE = 32
PIECE_SCORES = {"cpu": 1 << 18, "cuda": 1 << 26}
"""Scores computed at a time: enough to fit into a core's cache, or to fill a GPU."""


class AttentionOptions(TypedDict, total=False):
    """Options of ``time_attention``."""

    span: int | None
    past: int
    positions: tuple[Tensor, Tensor] | None
    dropout: float


def time_attention(
    rows: Tensors,
    sequences: Sequences,
    heads: int,
    *,
    span: int | None = None,
    past: int = 0,
    positions: tuple[Tensor, Tensor] | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention of each cell over the present cells of its node, [C, heads * depth].

    Args:
        rows: (q, k, v): queries of the cells after ``past``, keys and values of all cells, [C, heads * depth] each.
            Or (qkv,): one matrix with all three of all cells, in which queries of past cells are ignored.
        sequences: sequences of all cells, past cells first.
        heads: number of heads, concatenated in the columns.
        span: snapshots a cell reads, its own included; None for all up to its own.
        past: leading snapshots that are read but give no output.
        positions: (keys, values) [P, heads * depth] by distance; larger distances share the last.
        dropout: share of attention weights dropped; backward redraws the same mask.

    Memory: one piece of about ``PIECE_SCORES`` scores per core. On a GPU, without dropout and up to a limit of columns
    and snapshots, one kernel that stores the result only.
    """
    if not dropout and _use_triton(rows, sequences, heads, rows[-1].shape[1] * len(rows) // 3, span):
        return triton.time_attention.time_attention(rows, sequences, heads, span, past, positions)
    if any(each.dtype == BF16 for each in rows):
        options: AttentionOptions = {"span": span, "past": past, "positions": positions, "dropout": dropout}
        return run_in_float32(time_attention, rows, sequences, heads, **options)
    q, k, v = split_qkv(rows, sequences.cell_ptr[past])
    scores = PIECE_SCORES.get(sequences.device.type, PIECE_SCORES["cpu"])
    seed = int(torch.randint(2**62, ())) if dropout else 0
    step = partial(_step, heads, span, dropout, seed)
    op = WindowedOp(step=step, width=v.shape[1], past=past, span=span, stride=STRIDE, pairs=scores // heads)
    return op.run((q,), (k, v), positions or (), sequences)


def split_qkv(rows: Tensors, begin: int) -> Tensors:
    """Queries of the cells from ``begin``, keys and values, of one matrix with all three or of separate ones."""
    if len(rows) == 3:
        return rows
    q, k, v = rows[0].chunk(3, 1)
    return q[begin:], k, v


def time_self_attention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    sequences: Sequences,
    heads: int,
    **options: Unpack[AttentionOptions],
) -> Tensor:
    """``time_attention`` with queries, keys and values projected from ``x`` [C, A].

    Args:
        x: inputs of all cells.
        weight: stacked query, key and value projections, [3 * heads * depth, A].
        bias: [3 * heads * depth], or None.
        sequences: as in ``time_attention``.
        heads: as in ``time_attention``.
        options: as in ``time_attention``.
    """
    dropout, span = options.get("dropout", 0.0), options.get("span")
    if not dropout and _use_triton((x,), sequences, heads, len(weight) // 3, span):
        return time_attention((linear(x, weight, bias),), sequences, heads, **options)
    own = x[sequences.cell_ptr[options.get("past", 0)] :]
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return time_attention(tuple(map(linear, (own, x, x), weight.chunk(3), biases)), sequences, heads, **options)


def _use_triton(rows: Tensors, sequences: Sequences, heads: int, width: int, span: int | None) -> bool:
    usable = triton.usable(rows[0].device, *(each.dtype for each in rows))
    return usable and triton.time_attention.fits(sequences, heads, width, span)


def _step(
    heads: int,
    span: int | None,
    dropout: float,
    seed: int,
    piece: Piece,
    own: Tensors,
    seen: Tensors,
    positions: Tensors,
) -> Tensor:
    """Attention on the grids of a piece, reshaped to [rows, heads, columns, depth]."""
    (q,), (k, v) = _split_heads(own, heads), _split_heads(seen, heads)
    q = q * q.shape[-1] ** -0.5
    score = q @ k.transpose(-1, -2)
    if positions:
        key, value = (table.unflatten(1, (heads, -1)).transpose(0, 1) for table in positions)
        place = piece.distance.clamp(0, key.shape[1] - 1)[:, None].expand_as(score)
        score = score + (q @ key.transpose(-1, -2)).gather(3, place)
    lowest = torch.finfo(score.dtype).min  # not -inf: empty rows may be masked everywhere and must stay finite
    weight = torch.softmax(score.masked_fill(piece.mask(span)[:, None], lowest), -1)
    if dropout:
        weight = weight * _dropout_mask(weight, dropout, seed + piece.number)
    out = weight @ v
    if positions:
        by_distance = weight.new_zeros(*q.shape[:3], key.shape[1]).scatter_add(3, place, weight)
        out = out + by_distance @ value
    return out.transpose(1, 2).flatten(2)


def _split_heads(grids: Tensors, heads: int) -> list[Tensor]:
    return [grid.unflatten(2, (heads, -1)).transpose(1, 2) for grid in grids]


def _dropout_mask(weight: Tensor, dropout: float, seed: int) -> Tensor:
    """1 / (1 - dropout) for retained weights, 0 for dropped ones; deterministic in ``seed``."""
    draw = torch.rand(weight.shape, generator=torch.Generator(weight.device).manual_seed(seed), device=weight.device)
    return (draw >= dropout).to(weight.dtype) / ((1 - dropout) or 1.0)  # dropout 1 drops all
