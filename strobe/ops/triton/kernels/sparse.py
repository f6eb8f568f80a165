"""Kernels over ``RowPieces`` of sparse matrices: products and graph attention."""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel


@kernel
def _load_rows(x, col, weight, at, has, side, width: tl.constexpr, wp: tl.constexpr):
    """Rows of x by column index, times optional weights; zeros where masked."""
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
    """Sum a tile of short rows."""
    there, side = piece < num_pieces, tl.arange(0, wp)
    begin, count = tl.load(start + piece, there, 0), tl.load(length + piece, there, 0)
    total = tl.zeros([piece.shape[0], wp], tl.float32)
    for first in range(0, tl.max(count, 0), ahead):
        for step in tl.static_range(ahead):
            total += _load_rows(x, col, weight, begin + first + step, first + step < count, side, width, wp)
    target = tl.load(row + piece, there, 0).to(tl.int64)
    tl.store(out + target[:, None] * width + side[None, :], total, there[:, None] & (side < width)[None, :])


@kernel
def _sum_chunk(
    chunk, start, end, which, long, cuts, arrived, col, weight, x, parts, out,
    width: tl.constexpr, wp: tl.constexpr, rows: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """Sum one chunk of a long row; the last chunk to finish adds all chunks of the row."""
    each, side = tl.arange(0, rows), tl.arange(0, wp)
    last = tl.load(end + chunk)
    total = tl.zeros([rows, wp], tl.float32)
    for first in range(tl.load(start + chunk), last, rows * ahead):
        for step in tl.static_range(ahead):
            at = first + step * rows + each
            total += _load_rows(x, col, weight, at, at < last, side, width, wp)
    mine = tl.load(which + chunk)
    begin, stop = tl.load(cuts + mine), tl.load(cuts + mine + 1)
    target = out + tl.load(long + mine).to(tl.int64) * width + side
    if stop - begin == 1:
        tl.store(target, tl.sum(total, 0), side < width)
    else:
        tl.store(parts + chunk * width + side, tl.sum(total, 0), side < width)
        tl.debug_barrier()  # all writes precede the counter
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
    """Sparse-dense product: chunks of long rows, then tiles of short rows."""
    program = tl.program_id(0)
    piece = num_cut + (program - num_chunks) * rows + tl.arange(0, rows)
    if parts is None:  # noqa: SIM114 (decided at compile time, unlike the next condition)
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
    """Add the pieces of each long row."""
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


LOWEST = tl.constexpr(-1e30)


@kernel
def _leaky(x, slope: tl.constexpr):
    return tl.where(x > 0, x, slope * x)


@kernel
def attend_rows(
    start, length, row, col, a_in, a_out, v, out, norm, num_pieces, num_cut, num_rows, slope: tl.constexpr,
    heads: tl.constexpr, hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr, rows: tl.constexpr,
    ahead: tl.constexpr,
):  # fmt: skip
    """Attention-weighted means of each piece, and their log-sum-exp."""
    piece = tl.program_id(0) * rows + tl.arange(0, rows)
    there = piece < num_pieces
    begin, count = tl.load(start + piece, there, 0), tl.load(length + piece, there, 0)
    own = tl.load(row + piece, there, 0)
    target = tl.where(piece < num_cut, num_rows + piece, own).to(tl.int64)
    head, place = tl.arange(0, hp), tl.arange(0, dp)
    at = head[:, None] * depth + place[None, :]
    inside, in_heads = (head < heads)[:, None] & (place < depth)[None, :], (head < heads)[None, :]
    reads = tl.load(a_in + own.to(tl.int64)[:, None] * heads + head[None, :], there[:, None] & in_heads, 0.0)
    reads = reads.to(tl.float32)
    top, sums = tl.full([rows, hp], LOWEST, tl.float32), tl.zeros([rows, hp], tl.float32)
    total = tl.zeros([rows, hp, dp], tl.float32)
    for first in range(0, tl.max(count, 0), ahead):
        for step in tl.static_range(ahead):
            has = first + step < count
            source = tl.load(col + begin + first + step, has, 0).to(tl.int64)
            said = tl.load(a_out + source[:, None] * heads + head[None, :], has[:, None] & in_heads, 0.0)
            value = tl.load(
                v + source[:, None, None] * (heads * depth) + at[None, :, :],
                has[:, None, None] & inside[None, :, :],
                0.0,
            ).to(tl.float32)
            score = tl.where(has[:, None], _leaky(reads + said.to(tl.float32), slope), LOWEST)
            higher = tl.maximum(top, score)
            before = tl.exp(top - higher)
            weight = tl.where(has[:, None], tl.exp(score - higher), 0.0)
            sums = sums * before + weight
            total = total * before[:, :, None] + weight[:, :, None] * value
            top = higher
    some = tl.where(sums > 0, sums, 1.0)
    tl.store(norm + target[:, None] * heads + head[None, :], top + tl.log(some), there[:, None] & in_heads)
    tl.store(
        out + target[:, None, None] * (heads * depth) + at[None, :, :],
        total / some[:, :, None],
        there[:, None, None] & inside[None, :, :],
    )


@kernel
def join_means(
    out, norm, long, cuts, num_rows, heads: tl.constexpr, hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr,
    pieces: tl.constexpr,
):  # fmt: skip
    """Join the means of the pieces of long rows."""
    which = tl.program_id(0)
    begin, end = tl.load(cuts + which), tl.load(cuts + which + 1)
    head, place, each = tl.arange(0, hp), tl.arange(0, dp), tl.arange(0, pieces)
    at = head[:, None] * depth + place[None, :]
    inside, in_heads = (head < heads)[:, None] & (place < depth)[None, :], (head < heads)[None, :]
    top = tl.full([pieces, hp], LOWEST, tl.float32)
    for first in range(begin, end, pieces):
        mask = (first + each < end)[:, None] & in_heads
        top = tl.maximum(
            top, tl.load(norm + (num_rows + first + each).to(tl.int64)[:, None] * heads + head, mask, LOWEST)
        )
    highest = tl.max(top, 0)
    sums, total = tl.zeros([pieces, hp], tl.float32), tl.zeros([pieces, hp, dp], tl.float32)
    for first in range(begin, end, pieces):
        here = first + each < end
        from_row = (num_rows + first + each).to(tl.int64)
        mask = here[:, None] & in_heads
        said = tl.load(norm + from_row[:, None] * heads + head[None, :], mask, LOWEST)
        weight = tl.where(mask, tl.exp(said - highest[None, :]), 0.0)
        value = tl.load(
            out + from_row[:, None, None] * (heads * depth) + at[None, :, :],
            here[:, None, None] & inside[None, :, :],
            0.0,
        )
        sums += weight
        total += weight[:, :, None] * value.to(tl.float32)
    summed = tl.sum(sums, 0)
    some = tl.where(summed > 0, summed, 1.0)
    target = tl.load(long + which).to(tl.int64)
    tl.store(norm + target * heads + head, highest + tl.log(some), head < heads)
    tl.store(out + target * (heads * depth) + at, tl.sum(total, 0) / some[:, None], inside)


@kernel
def attend_backward_in(
    start, length, row, col, a_in, a_out, v, norm, d_out, kept, d_in, num_pieces, num_cut, num_rows,
    slope: tl.constexpr, heads: tl.constexpr, hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr,
    rows: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """Gradients of the scores of reading rows."""
    piece = tl.program_id(0) * rows + tl.arange(0, rows)
    there = piece < num_pieces
    begin, count = tl.load(start + piece, there, 0), tl.load(length + piece, there, 0)
    own = tl.load(row + piece, there, 0).to(tl.int64)
    target = tl.where(piece < num_cut, num_rows + piece, own)
    head, place = tl.arange(0, hp), tl.arange(0, dp)
    at = head[:, None] * depth + place[None, :]
    inside, in_heads = (head < heads)[:, None] & (place < depth)[None, :], there[:, None] & (head < heads)[None, :]
    by_head = own[:, None] * heads + head[None, :]
    reads = tl.load(a_in + by_head, in_heads, 0.0).to(tl.float32)
    told, less = tl.load(norm + by_head, in_heads, 0.0), tl.load(kept + by_head, in_heads, 0.0)
    wide = own[:, None, None] * (heads * depth) + at[None, :, :]
    grad = tl.load(d_out + wide, there[:, None, None] & inside[None, :, :], 0.0).to(tl.float32)
    found = tl.zeros([rows, hp], tl.float32)
    for first in range(0, tl.max(count, 0), ahead):
        for step in tl.static_range(ahead):
            has = first + step < count
            source = tl.load(col + begin + first + step, has, 0).to(tl.int64)
            mask = has[:, None] & (head < heads)[None, :]
            raw = reads + tl.load(a_out + source[:, None] * heads + head[None, :], mask, 0.0).to(tl.float32)
            value = tl.load(
                v + source[:, None, None] * (heads * depth) + at[None, :, :],
                has[:, None, None] & inside[None, :, :],
                0.0,
            ).to(tl.float32)
            weight = tl.where(mask, tl.exp(_leaky(raw, slope) - told), 0.0)
            found += weight * (tl.sum(grad * value, 2) - less) * tl.where(raw > 0, 1.0, slope)
    tl.store(d_in + target[:, None] * heads + head[None, :], found, in_heads)


@kernel
def attend_backward_out(
    start, length, row, col, a_in, a_out, v, norm, d_out, kept, d_a_out, d_v, num_pieces, num_cut, num_rows,
    slope: tl.constexpr, heads: tl.constexpr, hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr,
    rows: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """Gradients of scores and values of the read rows, over the transposed matrix."""
    piece = tl.program_id(0) * rows + tl.arange(0, rows)
    there = piece < num_pieces
    begin, count = tl.load(start + piece, there, 0), tl.load(length + piece, there, 0)
    own = tl.load(row + piece, there, 0).to(tl.int64)
    target = tl.where(piece < num_cut, num_rows + piece, own)
    head, place = tl.arange(0, hp), tl.arange(0, dp)
    at = head[:, None] * depth + place[None, :]
    inside, in_heads = (head < heads)[:, None] & (place < depth)[None, :], there[:, None] & (head < heads)[None, :]
    said = tl.load(a_out + own[:, None] * heads + head[None, :], in_heads, 0.0).to(tl.float32)
    wide = own[:, None, None] * (heads * depth) + at[None, :, :]
    value = tl.load(v + wide, there[:, None, None] & inside[None, :, :], 0.0).to(tl.float32)
    found, total = tl.zeros([rows, hp], tl.float32), tl.zeros([rows, hp, dp], tl.float32)
    for first in range(0, tl.max(count, 0), ahead):
        for step in tl.static_range(ahead):
            has = first + step < count
            reader = tl.load(col + begin + first + step, has, 0).to(tl.int64)
            mask = has[:, None] & (head < heads)[None, :]
            by_head = reader[:, None] * heads + head[None, :]
            raw = said + tl.load(a_in + by_head, mask, 0.0).to(tl.float32)
            told, less = tl.load(norm + by_head, mask, 0.0), tl.load(kept + by_head, mask, 0.0)
            grad = tl.load(
                d_out + reader[:, None, None] * (heads * depth) + at[None, :, :],
                has[:, None, None] & inside[None, :, :], 0.0,
            ).to(tl.float32)  # fmt: skip
            weight = tl.where(mask, tl.exp(_leaky(raw, slope) - told), 0.0)
            found += weight * (tl.sum(grad * value, 2) - less) * tl.where(raw > 0, 1.0, slope)
            total += weight[:, :, None] * grad
    tl.store(d_a_out + target[:, None] * heads + head[None, :], found, in_heads)
    tl.store(
        d_v + target[:, None, None] * (heads * depth) + at[None, :, :], total, there[:, None, None] & inside[None, :, :]
    )
