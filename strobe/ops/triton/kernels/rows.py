"""Kernels over the rows of a sparse matrix, by pieces as ``Rows`` has them."""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel


@kernel
def spmm_rows(
    start, length, row, col, weight, x, out, num_pieces, num_cut, num_rows,
    width: tl.constexpr, wp: tl.constexpr, rows: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """The sum of the rows of x that the entries of each piece name, times their weights if there are any."""
    piece = tl.program_id(0) * rows + tl.arange(0, rows)
    there = piece < num_pieces
    begin, count = tl.load(start + piece, there, 0), tl.load(length + piece, there, 0)
    side = tl.arange(0, wp)
    within = (side < width)[None, :]
    total = tl.zeros([rows, wp], tl.float32)
    for first in range(0, tl.max(count, 0), ahead):
        for step in tl.static_range(ahead):
            has = first + step < count
            source = tl.load(col + begin + first + step, has, 0).to(tl.int64)
            if width == wp:
                value = tl.load(x + source[:, None] * width + side[None, :], has[:, None], 0.0).to(tl.float32)
            else:
                value = tl.load(x + source[:, None] * width + side[None, :], has[:, None] & within, 0.0).to(tl.float32)
            if weight is not None:
                value *= tl.load(weight + begin + first + step, has, 0.0).to(tl.float32)[:, None]
            total += value
    target = tl.where(piece < num_cut, num_rows + piece, tl.load(row + piece, there, 0)).to(tl.int64)
    tl.store(out + target[:, None] * width + side[None, :], total, there[:, None] & within)


@kernel
def join_sums(out, long, cuts, num_rows, width: tl.constexpr, wp: tl.constexpr, pieces: tl.constexpr):
    """Adds the pieces of each long row."""
    which = tl.program_id(0)
    begin, end = tl.load(cuts + which), tl.load(cuts + which + 1)
    side, each = tl.arange(0, wp), tl.arange(0, pieces)
    within = (side < width)[None, :]
    total = tl.zeros([pieces, wp], tl.float32)
    for first in range(begin, end, pieces):
        at = (num_rows + first + each).to(tl.int64)[:, None] * width + side[None, :]
        total += tl.load(out + at, (first + each < end)[:, None] & within, 0.0).to(tl.float32)
    target = tl.load(long + which).to(tl.int64) * width
    tl.store(out + target + side, tl.sum(total, 0), side < width)
