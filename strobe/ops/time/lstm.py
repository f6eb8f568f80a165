"""LSTM as torch defines it, over sequences of cells: one layer or a stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import native, triton
from strobe.ops.dense.bf16 import BF16, run_in_float32
from strobe.ops.dense.readout import readout
from strobe.ops.runtime.buffers import empty
from strobe.ops.time.recurrent import (
    TILE_ROWS,
    State,
    check_inputs,
    run_backward,
    run_forward,
    run_in_torch,
    zeros_per_group,
)
from strobe.ops.time.sequences import Grid, Sequences, StateCapture

Weights = tuple[Tensor, Tensor, Tensor]
"""(w_ih [4H, F], w_hh [4H, H], bias [4H]); gates in the order input, forget, candidate, output."""

LstmState = tuple[Tensor, Tensor]
"""(h, c) of every slot, [S, H] each."""

Stack = tuple[Sequence[Tensor], Sequence[LstmState], Sequences, Sequence[Weights]]
"""Parts of the input, initial states and weights of the layers, as in ``lstm_stack``."""


def lstm(
    x: Tensor,
    state: LstmState,
    sequences: Sequences,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    *,
    keep_gates: bool = True,
    tile_rows: int = TILE_ROWS,
) -> tuple[Tensor, LstmState]:
    """Compute the hidden states of all cells [C, H] and the final (h, c) of every slot, [S, H] each.

    Args:
        x: inputs of the cells [C, F].
        state: initial (h, c) of every slot.
        sequences: sequences of the cells.
        w_ih: weights of the inputs [4H, F], gates in the order input, forget, candidate, output.
        w_hh: weights of the state [4H, H].
        b_ih: bias [4H].
        b_hh: bias [4H].
        keep_gates: save 4H numbers per cell for backward; False recomputes them, slightly slower for a third of the
            memory.
        tile_rows: approximate cells of a tile per snapshot.
    """
    layer = lstm_weights(w_ih, w_hh, b_ih, b_hh)
    out, (last,) = lstm_stack([x], [state], sequences, [layer], keep_gates=keep_gates, tile_rows=tile_rows)
    return out, last


def lstm_weights(w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Weights:
    """Convert torch's weights of a layer, which have two biases or none."""
    zeros = w_hh.new_zeros(len(w_hh))
    return w_ih, w_hh, (zeros if b_ih is None else b_ih) + (zeros if b_hh is None else b_hh)


def lstm_stack(
    parts: Sequence[Tensor],
    states: Sequence[LstmState],
    sequences: Sequences,
    layers: Sequence[Weights],
    *,
    extra_columns: Tensor | None = None,
    keep_gates: bool = True,
    tile_rows: int = TILE_ROWS,
) -> tuple[Tensor, tuple[LstmState, ...]]:
    """Compute the concatenated hidden states of all layers, [C, L H], and the final (h, c) of every layer.

    A tile of nodes passes through all layers while it is in cache; inputs and results are never concatenated by copies.

    Args:
        parts: inputs of the first layer, [C, F_p] each, read as if concatenated.
        states: initial (h, c) of every slot, per layer.
        sequences: sequences of the cells.
        layers: weights of the layers, all of width H.
        extra_columns: columns [C, E] appended to the output: [C, L H + E].
        keep_gates: as in ``lstm``.
        tile_rows: as in ``lstm``.
    """
    check_inputs(parts, layers[0][0], sequences)
    extra = [] if extra_columns is None else [extra_columns]
    stack: Stack = parts, states, sequences, layers
    if _use_triton(stack, extra):
        outs, lasts = _run_layers(triton.lstm.lstm, stack)
        return torch.cat([*outs, *extra], 1), lasts
    if any(each.dtype == BF16 for each in (*parts, *extra)):
        options = {"extra_columns": extra_columns, "keep_gates": keep_gates, "tile_rows": tile_rows}
        return run_in_float32(lstm_stack, *stack, **options)  # type: ignore[arg-type]
    if not native.usable(*parts, *extra, *(each for group in (*states, *layers) for each in group)):
        return lstm_stack_reference(*stack, extra_columns=extra_columns)
    h, c = (torch.stack(group) for group in zip(*states, strict=True))
    weights = torch.cat([torch.cat([w_ih.t(), w_hh.t()]).flatten() for w_ih, w_hh, _ in layers])
    bias = torch.stack([layer[2] for layer in layers])
    keep = keep_gates and torch.is_grad_enabled()
    out, h, c = _Lstm.apply(sequences, tile_rows, keep, extra_columns, h, c, weights, bias, *parts)  # type: ignore[no-untyped-call]
    return out, tuple(zip(h, c, strict=True))


def lstm_stack_readout(
    parts: Sequence[Tensor],
    states: Sequence[LstmState],
    sequences: Sequences,
    layers: Sequence[Weights],
    head: tuple[Tensor, Tensor],
    *,
    extra_columns: Tensor,
) -> tuple[Tensor, tuple[LstmState, ...]]:
    """Compute ``readout(out, *head)`` of the output of ``lstm_stack``, and the final (h, c) of every layer.

    On a GPU the readout is summed over layers and extra columns, so their states are never concatenated.
    """
    stack: Stack = parts, states, sequences, layers
    if not _use_triton(stack, [extra_columns]):
        out, lasts = lstm_stack(*stack, extra_columns=extra_columns)
        return readout(out, *head), lasts
    check_inputs(parts, layers[0][0], sequences)
    outs, lasts = _run_layers(triton.lstm.lstm, stack)
    w_outs, w_extra = head[0].split([len(outs) * outs[0].shape[1], extra_columns.shape[1]], 1)
    total, no_bias = readout(extra_columns, w_extra, head[1]), torch.zeros_like(head[1])
    for out, weight in zip(outs, w_outs.chunk(len(outs), 1), strict=True):
        total = total + readout(out, weight, no_bias)
    return total, lasts


def _use_triton(stack: Stack, extra: Sequence[Tensor]) -> bool:
    """Whether Triton kernels run the stack."""
    parts, states, _, layers = stack
    dtypes = [each.dtype for each in (*parts, *extra, *(part for state in states for part in state))]
    if not triton.usable(parts[0].device, *dtypes):
        return False
    return all(triton.lstm.fits(w_ih.shape[1], w_hh.shape[1]) for w_ih, w_hh, _ in layers)


def lstm_stack_reference(
    parts: Sequence[Tensor],
    states: Sequence[LstmState],
    sequences: Sequences,
    layers: Sequence[Weights],
    *,
    extra_columns: Tensor | None = None,
) -> tuple[Tensor, tuple[LstmState, ...]]:
    """``lstm_stack`` in plain torch, layer after layer."""
    outs, lasts = _run_layers(_run_layer_in_torch, (parts, states, sequences, layers))
    return torch.cat(outs if extra_columns is None else [*outs, extra_columns], 1), lasts


def _run_layer_in_torch(
    x: Tensor, state: LstmState, sequences: Sequences, weights: Weights
) -> tuple[Tensor, LstmState]:
    out, (h, c) = run_in_torch(partial(lstm_step, weights), x, state, sequences)
    return out, (h, c)


def _run_layers(
    layer: Callable[..., tuple[Tensor, LstmState]], stack: Stack
) -> tuple[list[Tensor], tuple[LstmState, ...]]:
    """Run ``layer`` for every layer: hidden states and final states of all layers."""
    parts, states, sequences, layers = stack
    x, outs, lasts = torch.cat(list(parts), 1), [], []
    for weights, state in zip(layers, states, strict=True):
        x, last = layer(x, state, sequences, weights)
        outs.append(x)
        lasts.append(last)
    return outs, tuple(lasts)


def lstm_step(weights: tuple[Tensor, ...], x: Tensor, state: State) -> State:
    """One step in torch: c' = f c + i u, h' = o tanh(c')."""
    (h, c), (w_ih, w_hh, bias) = state, weights
    i, f, u, o = (torch.addmm(bias, x, w_ih.t()) + h @ w_hh.t()).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
    return torch.sigmoid(o) * torch.tanh(c), c


class _Lstm(torch.autograd.Function):
    """The stack by native kernels, tile by tile. Weights are flat, [F + H, 4H] per layer."""

    @staticmethod
    def forward(
        ctx: Any,
        sequences: Sequences,
        tile_rows: int,
        keep_gates: bool,
        extra_columns: Tensor | None,
        h: Tensor,
        c: Tensor,
        weights: Tensor,
        bias: Tensor,
        *inputs: Tensor,
    ) -> Any:
        grid, parts = sequences.grid(tile_rows), [part.contiguous() for part in inputs]
        ctx.transfer = None if sequences.transport is None else sequences.transport.start([*h, *c])
        if ctx.transfer is not None:
            h, c = h.clone(), c.clone()  # received states are written into them
        (layers, _, hidden), cells = h.shape, sequences.num_cells
        extra_columns = None if extra_columns is None else extra_columns.contiguous()
        extra = 0 if extra_columns is None else extra_columns.shape[1]
        out, states = empty(h, cells, layers * hidden + extra), empty(h, layers, cells, hidden)
        gates = empty(h, layers, cells, 4 * hidden) if keep_gates and any(ctx.needs_input_grad) else None
        h_last, c_last = torch.empty_like(h), torch.empty_like(c)
        arrays = (*_kernel_arguments(sequences, grid, parts, h, extra), h, c, weights, bias, extra_columns)

        def walk(group: int, first: int, end: int) -> None:
            del group
            work = h.new_empty(grid.most_rows * 2 * hidden)
            native.call("lstm_forward", first, end, *arrays, out, states, gates, h_last, c_last, work)

        run_forward(grid, walk, ctx.transfer, [*h, *c], [*h_last, *c_last])
        if sequences.capture is not None:
            h_last, c_last = _capture_states(sequences.capture, h, c, out, states)
            ctx.mark_non_differentiable(h_last, c_last)
        ctx.sequences, ctx.grid, ctx.extra = sequences, grid, extra
        ctx.save_for_backward(h, c, weights, bias, out, states, gates, *parts)
        return out, h_last, c_last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        h, c, weights, bias, out, states, gates, *parts = ctx.saved_tensors
        sequences, grid = ctx.sequences, ctx.grid
        layers, _, hidden = h.shape
        d_out = grads[0].contiguous()
        if sequences.capture is not None:
            d_h, d_c = torch.zeros_like(h), torch.zeros_like(c)
        else:
            d_h, d_c = (grad.clone(memory_format=torch.contiguous_format) for grad in grads[1:])
        wanted = ctx.needs_input_grad[8:]
        d_parts = [empty(x, *x.shape) if wants else None for x, wants in zip(parts, wanted, strict=True)]
        d_weights, d_bias = zeros_per_group(grid, (weights, bias))
        plain = _transpose_weights(weights, hidden, layers)
        saved = (h, c, weights, plain, bias, out, states, gates, d_out, d_h, d_c, _data_pointers(d_parts))
        arrays = (*_kernel_arguments(sequences, grid, parts, h, ctx.extra), *saved)

        def walk(group: int, first: int, end: int) -> None:
            rows = grid.most_rows * 11 + grid.most_slots + 2 * layers * grid.most_cells
            olds = torch.empty(2 * layers * sequences.num_snapshots, 2, dtype=torch.int64)
            work = h.new_empty(rows * hidden)
            native.call("lstm_backward", first, end, *arrays, d_weights[group], d_bias[group], olds, work)

        run_backward(grid, walk, ctx.transfer, [*d_h, *d_c])
        d_extra = d_out[:, layers * hidden :].clone() if ctx.needs_input_grad[3] else None
        return None, None, None, d_extra, d_h, d_c, d_weights.sum(0), d_bias.sum(0), *d_parts


def _kernel_arguments(sequences: Sequences, grid: Grid, parts: list[Tensor], h: Tensor, extra: int) -> tuple[Any, ...]:
    """Leading arguments of the forward and backward kernels: sizes, tiles and parts."""
    layers, slots, hidden = h.shape
    tiles = (sequences.num_snapshots, grid.num_tiles, grid.most_rows, grid.most_slots)
    sizes = (*tiles, sequences.num_cells, slots, layers, hidden, len(parts), layers * hidden + extra, extra)
    slot = None if sequences.slot is None else sequences.slots
    widths = torch.tensor([part.shape[1] for part in parts])
    return torch.tensor(sizes), grid.edges, grid.bounds, slot, _data_pointers(parts), widths


def _capture_states(capture: StateCapture, h: Tensor, c: Tensor, out: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Both states of all layers after the captured cells."""
    h, c, hidden = h.clone(), c.clone(), h.shape[2]
    for layer in range(len(h)):
        capture.scatter(h[layer], out[:, layer * hidden : (layer + 1) * hidden])
        capture.scatter(c[layer], states[layer])
    return h, c


def _data_pointers(tensors: Sequence[Tensor | None]) -> Tensor:
    """Data pointers of tensors, 0 for None; the caller keeps the tensors alive."""
    return torch.tensor([0 if each is None else each.data_ptr() for each in tensors])


def _transpose_weights(weights: Tensor, hidden: int, layers: int) -> Tensor:
    """Transpose the weights of every layer to torch's [4H, F + H]."""
    others = [2 * hidden * 4 * hidden] * (layers - 1)
    each = weights.split([len(weights) - sum(others), *others])
    return torch.cat([layer.view(-1, 4 * hidden).t().flatten() for layer in each])
