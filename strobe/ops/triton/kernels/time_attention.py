"""Kernels of attention over each node's sequence. A tile is some pairs of a node and a head, columns padded to [dp].

Blocks are [span, pairs, columns], indexed by the distance in snapshots, so embeddings of positions stay on chip.
``cell`` is the table of cells by snapshot and node, None if all nodes are always present. Rows of queries, keys, values
and their gradients have stride ``stride``: they may be columns of one matrix.
"""

from __future__ import annotations

import triton.language as tl

from strobe.ops.triton.kernel import kernel

LOWEST = tl.constexpr(-1e30)


@kernel
def _cells(cell, step, slot, wanted, num_slots, num_steps):
    """Cells of nodes in snapshots, -1 if out of range or absent."""
    wanted = wanted & (step >= 0) & (step < num_steps)
    row = step * num_slots + slot
    if cell is not None:
        row = tl.load(cell + row, wanted, -1).to(tl.int64)
    return tl.where(wanted, row, -1)


@kernel
def _rows(x, row, col, within, stride: tl.constexpr):
    """Load one row per pair, [pairs, columns], zeros where the row is -1."""
    mask = (row >= 0)[:, None] & within
    return tl.load(x + row[:, None] * stride + col, mask, 0.0).to(tl.float32)


@kernel
def _blocks(x, row, col, within, stride: tl.constexpr):
    """Load one row per pair and position."""
    mask = (row >= 0)[:, :, None] & within[None, :, :]
    return tl.load(x + row[:, :, None] * stride + col[None, :, :], mask, 0.0).to(tl.float32)


@kernel
def _softmax(score, seen):
    """Softmax weights and their log-sum-exp."""
    score = tl.where(seen >= 0, score, LOWEST)
    top = tl.max(score, 0)
    weight = tl.where(seen >= 0, tl.exp(score - top[None, :]), 0.0)
    sums = tl.sum(weight, 0)
    some = tl.where(sums > 0, sums, 1.0)
    return weight / some[None, :], top + tl.log(some)


@kernel
def _reads(cell, step, slot, back, begin, span: tl.constexpr, num_slots, num_steps):
    """Cells that the cells of a step read, [span, pairs], and the rows of their queries, -1 where absent."""
    own = _cells(cell, step, slot, slot < num_slots, num_slots, num_steps)
    wanted = (back < span)[:, None] & (own >= 0)[None, :]
    seen = _cells(cell, step - back[:, None], slot[None, :], wanted, num_slots, num_steps)
    return seen, tl.where(own >= 0, own - begin, -1)


@kernel
def _add_positions(key, value, of_key, of_value, far, col, within, width: tl.constexpr):
    """Add the embeddings of positions, if there are any."""
    if of_key is not None:
        key = key + _blocks(of_key, far, col, within, width)
        value = value + _blocks(of_value, far, col, within, width)
    return key, value


@kernel
def time_attention_forward(
    q, k, v, of_key, of_value, cell, out, num_slots, num_steps, past, begin, stride: tl.constexpr,
    scale: tl.constexpr, span: tl.constexpr, sp: tl.constexpr, positions: tl.constexpr, heads: tl.constexpr,
    hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr, pairs: tl.constexpr,
):  # fmt: skip
    """Attention output of each cell."""
    width: tl.constexpr = heads * depth
    pair = tl.program_id(0) * pairs + tl.arange(0, pairs)
    slot, head = (pair // hp).to(tl.int64), pair % hp
    back, place = tl.arange(0, sp), tl.arange(0, dp)
    col, within = head[:, None] * depth + place[None, :], (head < heads)[:, None] & (place < depth)[None, :]
    if of_key is not None:
        far = tl.minimum(back, positions - 1)[:, None] + tl.zeros([sp, pairs], tl.int32)
        key_there, value_there = _blocks(of_key, far, col, within, width), _blocks(of_value, far, col, within, width)
    for step in range(past, num_steps):
        seen, reader = _reads(cell, step, slot, back, begin, span, num_slots, num_steps)
        query = scale * _rows(q, reader, col, within, stride)
        key, value = _blocks(k, seen, col, within, stride), _blocks(v, seen, col, within, stride)
        if of_key is not None:
            key, value = key + key_there, value + value_there
        weight, _ = _softmax(tl.sum(query[None, :, :] * key, 2), seen)
        mean = tl.sum(weight[:, :, None] * value, 0)
        tl.store(out + reader[:, None] * width + col, mean, (reader >= 0)[:, None] & within)


@kernel
def time_attention_backward(
    q, k, v, of_key, of_value, cell, d_out, logsumexp, row_dot, d_q, d_k, d_v, sums, num_slots, num_steps, past, begin,
    num_tiles, stride: tl.constexpr, scale: tl.constexpr, span: tl.constexpr, sp: tl.constexpr, positions: tl.constexpr,
    heads: tl.constexpr, hp: tl.constexpr, depth: tl.constexpr, dp: tl.constexpr, pairs: tl.constexpr,
):  # fmt: skip
    """Gradients of queries, keys and values, and per program the sums of those of positions.

    A tile runs through its snapshots twice: as reading cells, for gradients of queries and two numbers per cell and
    head; then as read cells, so that no two programs add to the same number.
    """
    width: tl.constexpr = heads * depth
    back, place, each = tl.arange(0, sp), tl.arange(0, dp), tl.arange(0, pairs)
    head = each % hp  # a tile has whole nodes
    col, within = head[:, None] * depth + place[None, :], (head < heads)[:, None] & (place < depth)[None, :]
    far = tl.minimum(back, positions - 1)[:, None] + tl.zeros([sp, pairs], tl.int32)
    if of_key is not None:
        key_sums, value_sums = tl.zeros([sp, pairs, dp], tl.float32), tl.zeros([sp, pairs, dp], tl.float32)
    for tile in range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        slot = ((tile * pairs + each) // hp).to(tl.int64)
        for step in range(past, num_steps):
            seen, reader = _reads(cell, step, slot, back, begin, span, num_slots, num_steps)
            query, grad = scale * _rows(q, reader, col, within, stride), _rows(d_out, reader, col, within, width)
            key, value = _blocks(k, seen, col, within, stride), _blocks(v, seen, col, within, stride)
            key, value = _add_positions(key, value, of_key, of_value, far, col, within, width)
            weight, norm = _softmax(tl.sum(query[None, :, :] * key, 2), seen)
            towards = tl.sum(grad[None, :, :] * value, 2)
            dot = tl.sum(weight * towards, 0)
            d_score = weight * (towards - dot[None, :])
            d_query = scale * tl.sum(d_score[:, :, None] * key, 0)
            tl.store(d_q + reader[:, None] * stride + col, d_query, (reader >= 0)[:, None] & within)
            has_head = (reader >= 0) & (head < heads)
            tl.store(logsumexp + reader * heads + head, norm, has_head)
            tl.store(row_dot + reader * heads + head, dot, has_head)
        tl.debug_barrier()  # other threads read these values
        for step in range(num_steps):
            own, ahead = _cells(cell, step, slot, slot < num_slots, num_slots, num_steps), step + back
            wanted = ((back < span) & (ahead >= past))[:, None] & (own >= 0)[None, :]
            reader = _cells(cell, ahead[:, None], slot[None, :], wanted, num_slots, num_steps)
            reader = tl.where(reader >= 0, reader - begin, -1)
            key, value = _rows(k, own, col, within, stride)[None, :, :], _rows(v, own, col, within, stride)[None, :, :]
            query, grad = scale * _blocks(q, reader, col, within, stride), _blocks(d_out, reader, col, within, width)
            key, value = _add_positions(key, value, of_key, of_value, far, col, within, width)
            has_head = (reader >= 0) & (head < heads)[None, :]
            norm = tl.load(logsumexp + reader * heads + head[None, :], has_head, 0.0)
            dot = tl.load(row_dot + reader * heads + head[None, :], has_head, 0.0)
            weight = tl.where(has_head, tl.exp(tl.sum(query * key, 2) - norm), 0.0)
            d_score = weight * (tl.sum(grad * value, 2) - dot)
            d_key, d_value = d_score[:, :, None] * query, weight[:, :, None] * grad
            at, mask = own[:, None] * stride + col, (own >= 0)[:, None] & within
            tl.store(d_k + at, tl.sum(d_key, 0), mask)
            tl.store(d_v + at, tl.sum(d_value, 0), mask)
            if of_key is not None:
                key_sums += d_key
                value_sums += d_value
    if of_key is not None:
        into = (back[:, None] * pairs + each[None, :])[:, :, None] * dp + place[None, None, :]
        into += tl.program_id(0) * 2 * sp * pairs * dp
        tl.store(sums + into, key_sums)
        tl.store(sums + into + sp * pairs * dp, value_sums)
