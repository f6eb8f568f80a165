"""A linear map of a node's last snapshots: each has a matrix of its own by how far back it is, absences add nothing."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from strobe.ops.lookback import Lookback, Piece, Tensors
from strobe.ops.narrow import in_float32, is_narrow
from strobe.ops.sequences import Sequences

STRIDE = 8  # picking costs own × seen columns: short pieces pick little
PIECE_PAIRS = {"cpu": 1 << 14, "cuda": 1 << 22}


def time_linear(
    x: Tensor, sequences: Sequences, weight: Tensor, bias: Tensor | None = None, *, span: int, past: int = 0
) -> Tensor:
    """out[v, t] = sum of weight_k x[v, t - k] over 0 ≤ k < span where v is present at t - k, plus bias; [C, outputs].

    Args:
        x: inputs of all cells, those of the first ``past`` snapshots are seen but give no output.
        weight: [outputs, span * inputs], matrices for k = 0, 1, … side by side.

    Memory: one piece of cells with their last snapshots side by side on each core, none of it kept.
    """
    if is_narrow(x):
        return in_float32(time_linear, x, sequences, weight, bias, span=span, past=past)
    pairs = PIECE_PAIRS.get(sequences.device.type, PIECE_PAIRS["cpu"])
    step = partial(_step, span)
    look = Lookback(step=step, width=len(weight), past=past, span=span, stride=STRIDE, pairs=pairs)
    return look.run((), (x,), (weight,) if bias is None else (weight, bias), sequences)


def time_linear_reference(
    x: Tensor, sequences: Sequences, weight: Tensor, bias: Tensor | None = None, *, span: int, past: int = 0
) -> Tensor:
    """The same, one cell after the other."""
    matrices = weight.chunk(span, 1)
    rows = {}
    outputs = [x[:0] @ matrices[0].t()]
    for stretch in sequences.stretches():
        slots = sequences.slots[stretch.start : stretch.stop].tolist()
        rows.update({(slot, stretch.t): x[stretch.start + i] for i, slot in enumerate(slots)})
        for slot in slots if stretch.t >= past else []:
            before = [(k, rows[slot, stretch.t - k]) for k in range(span) if (slot, stretch.t - k) in rows]
            out = torch.stack([matrices[k] @ row for k, row in before]).sum(0)
            outputs.append((out if bias is None else out + bias)[None])
    return torch.cat(outputs)


def _step(span: int, piece: Piece, own: Tensors, seen: Tensors, weights: Tensors) -> Tensor:
    """Picks the cells 0, 1, … snapshots before each by a product with ones and zeros, [nodes, own, span, seen]."""
    (x,) = seen
    back = torch.arange(span, device=x.device)[:, None]
    picked = (piece.distance[:, :, None, :] == back) & ~piece.hidden(span)[:, :, None, :]
    windows = picked.flatten(1, 2).to(x.dtype) @ x
    return torch.nn.functional.linear(windows.view(len(x), piece.own.columns, -1), *weights)
