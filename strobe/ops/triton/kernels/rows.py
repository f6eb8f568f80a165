"""Kernels over the rows of a sparse matrix, as ``Rows`` has them."""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel


@kernel
def _read(x, col, weight, at, has, side, width: tl.constexpr, wp: tl.constexpr):
    """The rows of x that entries name, times their weights if there are any; zeros for entries that are not there."""
    source = tl.load(col + at, has, 0).to(tl.int64)
    mask = has[:, None]
    if width != wp:
        mask = mask & (side < width)[None, :]
    value = tl.load(x + source[:, None] * width + side[None, :], mask, 0.0).to(tl.float32)
    if weight is not None:
        value *= tl.load(weight + at, has, 0.0).to(tl.float32)[:, None]
    return value


@kernel
def _sum_rows(
    piece, num_pieces, start, length, row, col, weight, x, out,
    width: tl.constexpr, wp: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """A tile of rows, each by itself."""
    there, side = piece < num_pieces, tl.arange(0, wp)
    begin, count = tl.load(start + piece, there, 0), tl.load(length + piece, there, 0)
    total = tl.zeros([piece.shape[0], wp], tl.float32)
    for first in range(0, tl.max(count, 0), ahead):
        for step in tl.static_range(ahead):
            total += _read(x, col, weight, begin + first + step, first + step < count, side, width, wp)
    target = tl.load(row + piece, there, 0).to(tl.int64)
    tl.store(out + target[:, None] * width + side[None, :], total, there[:, None] & (side < width)[None, :])


@kernel
def _sum_chunk(
    chunk, start, end, which, long, cuts, arrived, col, weight, x, parts, out,
    width: tl.constexpr, wp: tl.constexpr, rows: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """Some entries of a long row; whoever is the last of that row's chunks adds them all."""
    each, side = tl.arange(0, rows), tl.arange(0, wp)
    last = tl.load(end + chunk)
    total = tl.zeros([rows, wp], tl.float32)
    for first in range(tl.load(start + chunk), last, rows * ahead):
        for step in tl.static_range(ahead):
            at = first + step * rows + each
            total += _read(x, col, weight, at, at < last, side, width, wp)
    mine = tl.load(which + chunk)
    begin, stop = tl.load(cuts + mine), tl.load(cuts + mine + 1)
    target = out + tl.load(long + mine).to(tl.int64) * width + side
    if stop - begin == 1:
        tl.store(target, tl.sum(total, 0), side < width)
    else:
        tl.store(parts + chunk * width + side, tl.sum(total, 0), side < width)
        tl.debug_barrier()  # all of it is there before anybody may know
        if tl.atomic_add(arrived + mine, 1) == stop - begin - 1:
            joined = tl.zeros([rows, wp], tl.float32)
            for first in range(begin, stop, rows):
                there = (first + each < stop)[:, None] & (side < width)[None, :]
                place = parts + (first + each)[:, None] * width + side[None, :]
                joined += tl.load(place, there, 0.0, cache_modifier=".cg")
            tl.store(target, tl.sum(joined, 0), side < width)
            tl.store(arrived + mine, 0)


@kernel
def spmm_rows(
    start, length, row, chunk_start, chunk_end, which, long, cuts, arrived, col, weight, x, parts, out,
    num_pieces, num_cut, num_chunks,
    width: tl.constexpr, wp: tl.constexpr, rows: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """Sums of the rows of x that each row's entries name: chunks of long rows, then tiles of others."""
    program = tl.program_id(0)
    piece = num_cut + (program - num_chunks) * rows + tl.arange(0, rows)
    if parts is None:  # noqa: SIM114 (this is decided when the kernel is compiled, what comes next is not)
        _sum_rows(piece, num_pieces, start, length, row, col, weight, x, out, width, wp, ahead)
    elif program >= num_chunks:
        _sum_rows(piece, num_pieces, start, length, row, col, weight, x, out, width, wp, ahead)
    else:
        _sum_chunk(
            program, chunk_start, chunk_end, which, long, cuts, arrived, col, weight, x, parts, out,
            width, wp, rows, ahead,
        )  # fmt: skip


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
