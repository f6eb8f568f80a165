"""Causal 1-D convolution over each node's snapshots; absent cells contribute zero."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from strobe.ops.dense.bf16 import BF16, run_in_float32
from strobe.ops.time.sequences import Sequences
from strobe.ops.time.windowed import Piece, Tensors, WindowedOp

STRIDE = 8  # selection costs own × seen columns
PIECE_PAIRS = {"cpu": 1 << 14, "cuda": 1 << 22}


def time_linear(
    x: Tensor, sequences: Sequences, weight: Tensor, bias: Tensor | None = None, *, span: int, past: int = 0
) -> Tensor:
    """Compute out[v, t] = bias + sum of weight_k x[v, t - k] over 0 ≤ k < span where v is present; [C, outputs].

    Args:
        x: inputs of all cells; the first ``past`` snapshots are read but give no output.
        sequences: sequences of all cells.
        weight: [outputs, span * inputs], matrices for k = 0, 1, … concatenated.
        bias: [outputs], or None.
        span: snapshots a cell reads, its own included.
        past: leading snapshots without output.

    Memory: one piece of cells with ``span`` inputs each per core.
    """
    if x.dtype == BF16:
        return run_in_float32(time_linear, x, sequences, weight, bias, span=span, past=past)
    pairs = PIECE_PAIRS.get(sequences.device.type, PIECE_PAIRS["cpu"])
    step = partial(_step, span)
    op = WindowedOp(step=step, width=len(weight), past=past, span=span, stride=STRIDE, pairs=pairs)
    return op.run((), (x,), (weight,) if bias is None else (weight, bias), sequences)


def _step(span: int, piece: Piece, own: Tensors, seen: Tensors, weights: Tensors) -> Tensor:
    """Select the cells 0, 1, … snapshots back by a product with a 0/1 matrix [nodes, own, span, seen]."""
    (x,) = seen
    back = torch.arange(span, device=x.device)[:, None]
    selected = (piece.distance[:, :, None, :] == back) & ~piece.mask(span)[:, :, None, :]
    windows = selected.flatten(1, 2).to(x.dtype) @ x
    return torch.nn.functional.linear(windows.view(len(x), piece.own.columns, -1), *weights)
