"""Self-attention over each node's sequence: a cell reads the cells of its node up to itself.

Cells that are absent take no part. Positions, where they are given, are distances in snapshots from the reading cell:
a cell seen d snapshots back has key k + key_d and value v + value_d, so that nothing depends on when time began.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from strobe.ops import triton
from strobe.ops.linear import linear
from strobe.ops.lookback import Lookback, Piece, Tensors
from strobe.ops.narrow import in_float32, is_narrow
from strobe.ops.sequences import Sequences

STRIDE = 32
PIECE_SCORES = {"cpu": 1 << 18, "cuda": 1 << 26}
"""Scores that are computed at a time: some that fit into a core's cache, many for a GPU."""


def time_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
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
        q: queries of the cells after the past; k, v: keys and values of all cells, past ones first.
        sequences: of all cells.
        heads: stand side by side in the columns.
        span: a cell sees so many snapshots, its own included; None for all up to its own.
        past: the first so many snapshots are seen but give no output.
        positions: (keys, values) [P, heads * depth] by distance; larger distances share the last.
        dropout: share of weights that are left out, drawn once: backward draws the same.

    Memory: one piece of about ``PIECE_SCORES`` scores on each core; none per pair of cells. On a GPU, without dropout
    and up to some columns and snapshots, one kernel; nothing but the result.
    """
    if not dropout and _by_kernels((q, k, v), sequences, heads, v.shape[1], span):
        from strobe.ops.triton import time_attention as kernels

        return kernels.time_attention((q, k, v), sequences, heads, span, past, positions)
    if is_narrow(q, k, v):
        options = {"span": span, "past": past, "positions": positions, "dropout": dropout}
        return in_float32(time_attention, q, k, v, sequences, heads, **options)  # type: ignore[arg-type]
    scores = PIECE_SCORES.get(sequences.device.type, PIECE_SCORES["cpu"])
    seed = int(torch.randint(2**62, ())) if dropout else 0
    step = partial(_step, heads, span, dropout, seed)
    look = Lookback(step=step, width=v.shape[1], past=past, span=span, stride=STRIDE, pairs=scores // heads)
    return look.run((q,), (k, v), positions or (), sequences)


def joined_time_attention(
    qkv: Tensor,
    sequences: Sequences,
    heads: int,
    *,
    span: int | None = None,
    past: int = 0,
    positions: tuple[Tensor, Tensor] | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The same of queries, keys and values of all cells side by side, [C, 3 * heads * depth]: kernels read them there,
    and give one matrix of gradients. Queries of past cells do not count."""
    if not dropout and _by_kernels((qkv,), sequences, heads, qkv.shape[1] // 3, span):
        from strobe.ops.triton import time_attention as kernels

        return kernels.time_attention((qkv,), sequences, heads, span, past, positions)
    q, k, v = qkv.chunk(3, 1)
    q = q[sequences.cell_ptr[past] :]
    return time_attention(q, k, v, sequences, heads, span=span, past=past, positions=positions, dropout=dropout)


def mapped_time_attention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    sequences: Sequences,
    heads: int,
    *,
    span: int | None = None,
    past: int = 0,
    positions: tuple[Tensor, Tensor] | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """The same where queries, keys and values are linear maps of the same rows of all cells.

    Args:
        weight: of queries, keys and values, one below the other, [3 * heads * depth, A]; bias: [3 * heads * depth].

    Where kernels attend, one map gives all three side by side; elsewhere that would be taken apart again.
    """
    options = {"span": span, "past": past, "positions": positions, "dropout": dropout}
    if not dropout and _by_kernels((x,), sequences, heads, len(weight) // 3, span):
        return joined_time_attention(linear(x, weight, bias), sequences, heads, **options)  # type: ignore[arg-type]
    own = x[sequences.cell_ptr[past] :]
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    q, k, v = map(linear, (own, x, x), weight.chunk(3), biases)
    return time_attention(q, k, v, sequences, heads, **options)  # type: ignore[arg-type]


def _by_kernels(rows: Tensors, sequences: Sequences, heads: int, width: int, span: int | None) -> bool:
    if not triton.usable(*rows):
        return False
    from strobe.ops.triton import time_attention as kernels

    return kernels.fits(sequences, heads, width, span)


def time_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sequences: Sequences,
    heads: int,
    *,
    span: int | None = None,
    past: int = 0,
    positions: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The same, one cell after the other."""
    time = [t for t in range(sequences.num_snapshots) for _ in range(*sequences.cell_ptr[t : t + 2])]
    slot = sequences.slots.tolist()
    begin = sequences.cell_ptr[past]
    outputs = [v[:0]]
    for cell in range(begin, sequences.num_cells):
        rows = [
            row
            for row in range(cell + 1)
            if slot[row] == slot[cell] and (span is None or time[cell] - time[row] < span)
        ]
        key, value = k[rows], v[rows]
        if positions is not None:
            distance = [min(time[cell] - time[row], len(positions[0]) - 1) for row in rows]
            key, value = key + positions[0][distance], value + positions[1][distance]
        outputs.append(_one_cell(q[cell - begin], key, value, heads))
    return torch.cat(outputs)


def _one_cell(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    parts = []
    for query, key, value in zip(q.chunk(heads), k.chunk(heads, 1), v.chunk(heads, 1), strict=True):
        weight = torch.softmax(key @ query / len(query) ** 0.5, 0)
        parts.append(weight @ value)
    return torch.cat(parts)[None]


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
    """Attention on a piece's grids; grids become [rows, heads, columns, depth]."""
    (q,), (k, v) = _by_head(own, heads), _by_head(seen, heads)
    q = q * q.shape[-1] ** -0.5
    score = q @ k.transpose(-1, -2)
    if positions:
        key, value = (table.unflatten(1, (heads, -1)).transpose(0, 1) for table in positions)
        place = piece.distance.clamp(0, key.shape[1] - 1)[:, None].expand_as(score)
        score = score + (q @ key.transpose(-1, -2)).gather(3, place)
    lowest = torch.finfo(score.dtype).min  # not -inf: where nobody is, all may be hidden, and must stay finite
    weight = torch.softmax(score.masked_fill(piece.hidden(span)[:, None], lowest), -1)
    if dropout:
        weight = weight * _kept(weight, dropout, seed + piece.number)
    out = weight @ v
    if positions:
        by_distance = weight.new_zeros(*q.shape[:3], key.shape[1]).scatter_add(3, place, weight)
        out = out + by_distance @ value
    return out.transpose(1, 2).flatten(2)


def _by_head(grids: Tensors, heads: int) -> list[Tensor]:
    return [grid.unflatten(2, (heads, -1)).transpose(1, 2) for grid in grids]


def _kept(weight: Tensor, dropout: float, seed: int) -> Tensor:
    """1 / (1 - dropout) for weights that are kept, 0 for others; the same for the same seed."""
    draw = torch.rand(weight.shape, generator=torch.Generator(weight.device).manual_seed(seed), device=weight.device)
    return (draw >= dropout).to(weight.dtype) / ((1 - dropout) or 1.0)  # at 1 nothing is kept
