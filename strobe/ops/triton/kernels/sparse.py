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
def _piece(start, length, row, num_pieces, num_cut, num_rows, rows: tl.constexpr):
    """Pieces of this program: valid, first entry, number of entries, row, and row of the result."""
    piece = tl.program_id(0) * rows + tl.arange(0, rows)
    valid = piece < num_pieces
    begin, count = tl.load(start + piece, valid, 0), tl.load(length + piece, valid, 0)
    own = tl.load(row + piece, valid, 0).to(tl.int64)
    return valid, begin, count, own, tl.where(piece < num_cut, num_rows + piece, own)


@kernel
def _by_head(row, valid, heads: tl.constexpr, hp: tl.constexpr):
    """Offsets [rows, hp] of numbers per row and head, and their mask."""
    head = tl.arange(0, hp)[None, :]
    return row[:, None] * heads + head, valid[:, None] & (head < heads)


@kernel
def _by_column(row, valid, heads: tl.constexpr, hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr):
    """Offsets [rows, hp, dp] of the columns of rows, and their mask."""
    head, place = tl.arange(0, hp)[None, :, None], tl.arange(0, dp)[None, None, :]
    mask = valid[:, None, None] & ((head < heads) & (place < depth))
    return row[:, None, None] * (heads * depth) + (head * depth + place), mask


@kernel
def attend_rows(
    start, length, row, col, a_in, a_out, v, out, norm, num_pieces, num_cut, num_rows, slope: tl.constexpr,
    heads: tl.constexpr, hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr, rows: tl.constexpr,
    ahead: tl.constexpr,
):  # fmt: skip
    """Attention-weighted means of each piece, and their log-sum-exp."""
    valid, begin, count, own, target = _piece(start, length, row, num_pieces, num_cut, num_rows, rows)
    at, mask = _by_head(own, valid, heads, hp)
    query = tl.load(a_in + at, mask, 0.0).to(tl.float32)
    top, sums = tl.full([rows, hp], LOWEST, tl.float32), tl.zeros([rows, hp], tl.float32)
    total = tl.zeros([rows, hp, dp], tl.float32)
    for first in range(0, tl.max(count, 0), ahead):
        for step in tl.static_range(ahead):
            has = first + step < count
            source = tl.load(col + begin + first + step, has, 0).to(tl.int64)
            at, mask = _by_head(source, has, heads, hp)
            key = tl.load(a_out + at, mask, 0.0).to(tl.float32)
            wide, inside = _by_column(source, has, heads, hp, depth, dp)
            value = tl.load(v + wide, inside, 0.0).to(tl.float32)
            score = tl.where(has[:, None], _leaky(query + key, slope), LOWEST)
            higher = tl.maximum(top, score)
            before = tl.exp(top - higher)
            weight = tl.where(has[:, None], tl.exp(score - higher), 0.0)
            sums = sums * before + weight
            total = total * before[:, :, None] + weight[:, :, None] * value
            top = higher
    some = tl.where(sums > 0, sums, 1.0)
    at, mask = _by_head(target, valid, heads, hp)
    tl.store(norm + at, top + tl.log(some), mask)
    wide, inside = _by_column(target, valid, heads, hp, depth, dp)
    tl.store(out + wide, total / some[:, :, None], inside)


@kernel
def join_means(
    out, norm, long, cuts, num_rows, heads: tl.constexpr, hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr,
    pieces: tl.constexpr,
):  # fmt: skip
    """Join the means of the pieces of long rows."""
    which, each = tl.program_id(0), tl.arange(0, pieces)
    begin, end = tl.load(cuts + which), tl.load(cuts + which + 1)
    top = tl.full([pieces, hp], LOWEST, tl.float32)
    for first in range(begin, end, pieces):
        at, mask = _by_head((num_rows + first + each).to(tl.int64), first + each < end, heads, hp)
        top = tl.maximum(top, tl.load(norm + at, mask, LOWEST))
    highest = tl.max(top, 0)
    sums, total = tl.zeros([pieces, hp], tl.float32), tl.zeros([pieces, hp, dp], tl.float32)
    for first in range(begin, end, pieces):
        valid, piece = first + each < end, (num_rows + first + each).to(tl.int64)
        at, mask = _by_head(piece, valid, heads, hp)
        weight = tl.where(mask, tl.exp(tl.load(norm + at, mask, LOWEST) - highest[None, :]), 0.0)
        wide, inside = _by_column(piece, valid, heads, hp, depth, dp)
        sums += weight
        total += weight[:, :, None] * tl.load(out + wide, inside, 0.0).to(tl.float32)
    summed = tl.sum(sums, 0)
    some = tl.where(summed > 0, summed, 1.0)
    head, place = tl.arange(0, hp), tl.arange(0, dp)
    target = tl.load(long + which).to(tl.int64)
    tl.store(norm + target * heads + head, highest + tl.log(some), head < heads)
    column, own = head[:, None] * depth + place[None, :], (head < heads)[:, None] & (place < depth)[None, :]
    tl.store(out + target * (heads * depth) + column, tl.sum(total, 0) / some[:, None], own)


@kernel
def attend_backward_in(
    start, length, row, col, a_in, a_out, v, norm, d_out, mean_grad, d_in, num_pieces, num_cut, num_rows,
    slope: tl.constexpr, heads: tl.constexpr, hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr,
    rows: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """Gradients of the scores of reading rows."""
    valid, begin, count, own, target = _piece(start, length, row, num_pieces, num_cut, num_rows, rows)
    at, mask = _by_head(own, valid, heads, hp)
    query = tl.load(a_in + at, mask, 0.0).to(tl.float32)
    logsumexp, mean = tl.load(norm + at, mask, 0.0), tl.load(mean_grad + at, mask, 0.0)
    wide, inside = _by_column(own, valid, heads, hp, depth, dp)
    grad = tl.load(d_out + wide, inside, 0.0).to(tl.float32)
    d_query = tl.zeros([rows, hp], tl.float32)
    for first in range(0, tl.max(count, 0), ahead):
        for step in tl.static_range(ahead):
            has = first + step < count
            source = tl.load(col + begin + first + step, has, 0).to(tl.int64)
            wide, inside = _by_column(source, has, heads, hp, depth, dp)
            value = tl.load(v + wide, inside, 0.0).to(tl.float32)
            at, mask = _by_head(source, has, heads, hp)
            raw = query + tl.load(a_out + at, mask, 0.0).to(tl.float32)
            weight = tl.where(mask, tl.exp(_leaky(raw, slope) - logsumexp), 0.0)
            d_query += weight * (tl.sum(grad * value, 2) - mean) * tl.where(raw > 0, 1.0, slope)
    at, mask = _by_head(target, valid, heads, hp)
    tl.store(d_in + at, d_query, mask)


@kernel
def attend_backward_out(
    start, length, row, col, a_in, a_out, v, norm, d_out, mean_grad, d_a_out, d_v, num_pieces, num_cut, num_rows,
    slope: tl.constexpr, heads: tl.constexpr, hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr,
    rows: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """Gradients of scores and values of the read rows, over the transposed matrix."""
    valid, begin, count, own, target = _piece(start, length, row, num_pieces, num_cut, num_rows, rows)
    at, mask = _by_head(own, valid, heads, hp)
    key = tl.load(a_out + at, mask, 0.0).to(tl.float32)
    wide, inside = _by_column(own, valid, heads, hp, depth, dp)
    value = tl.load(v + wide, inside, 0.0).to(tl.float32)
    d_key, d_value = tl.zeros([rows, hp], tl.float32), tl.zeros([rows, hp, dp], tl.float32)
    for first in range(0, tl.max(count, 0), ahead):
        for step in tl.static_range(ahead):
            has = first + step < count
            reader = tl.load(col + begin + first + step, has, 0).to(tl.int64)
            wide, inside = _by_column(reader, has, heads, hp, depth, dp)
            grad = tl.load(d_out + wide, inside, 0.0).to(tl.float32)
            at, mask = _by_head(reader, has, heads, hp)
            raw = key + tl.load(a_in + at, mask, 0.0).to(tl.float32)
            logsumexp, mean = tl.load(norm + at, mask, 0.0), tl.load(mean_grad + at, mask, 0.0)
            weight = tl.where(mask, tl.exp(_leaky(raw, slope) - logsumexp), 0.0)
            d_key += weight * (tl.sum(grad * value, 2) - mean) * tl.where(raw > 0, 1.0, slope)
            d_value += weight[:, :, None] * grad
    at, mask = _by_head(target, valid, heads, hp)
    tl.store(d_a_out + at, d_key, mask)
    wide, inside = _by_column(target, valid, heads, hp, depth, dp)
    tl.store(d_v + wide, d_value, inside)
