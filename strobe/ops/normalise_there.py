"""Normalisation on the device that computes: of a large snapshot only what it has travels there, and the host has
nothing to do."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from strobe.ops.normalise import Csr
from strobe.ops.sparse import Sparse


def gcn_there(block: Csr, *, dtype: torch.dtype, device: torch.device) -> Sparse:
    """The matrix of a graph convolution, as ``normalise`` has it, of a snapshot's arcs."""
    row_ptr, col = (torch.from_numpy(np.array(each)).to(device) for each in block[:2])
    weight = None if block[2] is None else torch.from_numpy(np.array(block[2], np.float64)).to(device)
    row_ptr, col, weight = _normalised(row_ptr.long(), col, weight)
    return Sparse(row_ptr, col, weight.to(dtype), len(row_ptr) - 1)


def _normalised(row_ptr: Tensor, col: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Row pointers, columns and weights in double precision, with a self-loop of weight 1 where there was none."""
    rows, device = len(row_ptr) - 1, col.device
    number = torch.arange(rows, device=device)
    row = torch.repeat_interleave(number, row_ptr.diff(), output_size=len(col))
    has = torch.zeros(rows, dtype=torch.bool, device=device)
    has[row[row == col]] = True
    loops = number[~has]
    # Both lists are in row and column order: an entry's place is how many of its own and of the others stand before it.
    key, key_of_loop = row * rows + col, loops * (rows + 1)
    place = torch.arange(len(key), device=device) + torch.searchsorted(key_of_loop, key)
    place_of_loop = torch.arange(len(loops), device=device) + torch.searchsorted(key, key_of_loop)
    new_col = torch.empty(len(key) + len(loops), dtype=torch.int32, device=device)
    value = torch.ones(len(new_col), dtype=torch.float64, device=device)
    new_col[place], new_col[place_of_loop] = col.to(torch.int32), loops.to(torch.int32)
    if weight is not None:
        value[place] = weight
    counts = row_ptr.diff() + ~has
    new_ptr = torch.cat([row_ptr.new_zeros(1), counts.cumsum(0)])
    degree = torch.segment_reduce(value.abs(), "sum", offsets=new_ptr)  # in the order of the row: the same bits always
    root = torch.where(degree > 0, degree.sqrt().reciprocal(), 0.0)
    reader = torch.repeat_interleave(number, counts, output_size=len(new_col))
    return new_ptr, new_col, root[reader] * value * root[new_col.long()]
