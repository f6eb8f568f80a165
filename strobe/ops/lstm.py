"""Long short-term memory over packed sequences, as torch defines it, one layer or a stack of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import native, triton
from strobe.ops.memory import empty
from strobe.ops.narrow import in_float32, is_narrow
from strobe.ops.readout import readout
from strobe.ops.recurrent import TILE_ROWS, State, check_inputs, go_back, go_through, in_torch, sums_like
from strobe.ops.sequences import Grid, Leaving, Sequences

Weights = tuple[Tensor, Tensor, Tensor]
"""Of the inputs [4H, F], of the state [4H, H], the bias [4H]; gates in the order input, forget, candidate, output."""


def lstm(
    x: Tensor,
    state: tuple[Tensor, Tensor],
    sequences: Sequences,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
    *,
    keep_gates: bool = True,
    tile_rows: int = TILE_ROWS,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Hidden states of all cells [C, H] and the last (h, c) of every slot, [S, H] each.

    Args:
        x: inputs of the cells [C, F].
        state: first (h, c) of every slot.
        sequences: whose cells they are.
        w_ih: weights of the inputs [4H, F], gates in the order input, forget, candidate, output.
        w_hh: weights of the state [4H, H].
        b_ih: bias [4H].
        b_hh: bias [4H].
        keep_gates: store 4H numbers a cell while training, or compute them again in backward: a little slower where
            memory is fast enough, for a third of the memory.
        tile_rows: cells a tile has per snapshot, about.
    """
    layer = lstm_weights(w_ih, w_hh, b_ih, b_hh)
    out, (last,) = lstm_stack([x], [state], sequences, [layer], keep_gates=keep_gates, tile_rows=tile_rows)
    return out, last


def lstm_weights(w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Weights:
    """A layer's weights from torch's, which have two biases or none."""
    zeros = w_hh.new_zeros(len(w_hh))
    return w_ih, w_hh, (zeros if b_ih is None else b_ih) + (zeros if b_hh is None else b_hh)


def lstm_stack(
    parts: Sequence[Tensor],
    states: Sequence[tuple[Tensor, Tensor]],
    sequences: Sequences,
    layers: Sequence[Weights],
    *,
    beside: Tensor | None = None,
    keep_gates: bool = True,
    tile_rows: int = TILE_ROWS,
) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], ...]]:
    """Hidden states of all layers side by side, [C, L H], and every layer's last (h, c).

    A tile of nodes goes through all layers while it is in cache, and nothing is made to join inputs or results.

    Args:
        parts: inputs of the first layer, [C, F_p] each, which it reads as if they stood side by side.
        states: first (h, c) of every slot, for each layer.
        sequences: whose cells they are.
        layers: weights of the layers, all of one width H.
        beside: columns [C, E] to put beside the states: [C, L H + E].
        keep_gates: as in ``lstm``.
        tile_rows: as in ``lstm``.
    """
    check_inputs(parts, layers[0][0], sequences)
    extra = [] if beside is None else [beside]
    if _on_chip([*parts, *extra], states, sequences, layers):
        from strobe.ops.triton import lstm as kernels

        outs, lasts = _layer_by_layer(kernels.lstm, parts, states, sequences, layers)
        return torch.cat([*outs, *extra], 1), lasts
    if is_narrow(*parts, *extra):
        same = {"beside": beside, "keep_gates": keep_gates, "tile_rows": tile_rows}
        return in_float32(lstm_stack, parts, states, sequences, layers, **same)  # type: ignore[arg-type]
    if not native.usable(*parts, *extra, *(each for group in (*states, *layers) for each in group)):
        return lstm_stack_reference(parts, states, sequences, layers, beside=beside)
    h, c = (torch.stack(group) for group in zip(*states, strict=True))
    weights = torch.cat([torch.cat([w_ih.t(), w_hh.t()]).flatten() for w_ih, w_hh, _ in layers])
    bias = torch.stack([layer[2] for layer in layers])
    keep = keep_gates and torch.is_grad_enabled()
    out, h, c = _Lstm.apply(sequences, tile_rows, keep, beside, h, c, weights, bias, *parts)  # type: ignore[no-untyped-call]
    return out, tuple(zip(h, c, strict=True))


def lstm_stack_readout(
    parts: Sequence[Tensor],
    states: Sequence[tuple[Tensor, Tensor]],
    sequences: Sequences,
    layers: Sequence[Weights],
    head: tuple[Tensor, Tensor],
    *,
    beside: Tensor,
) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], ...]]:
    """``readout(out, *head)`` of what ``lstm_stack`` gives, and every layer's last (h, c).

    On a GPU answers are the sum of what each layer's states and the columns beside them say: they are never joined.
    """
    if not _on_chip([*parts, beside], states, sequences, layers):
        out, lasts = lstm_stack(parts, states, sequences, layers, beside=beside)
        return readout(out, *head), lasts
    from strobe.ops.triton import lstm as kernels

    check_inputs(parts, layers[0][0], sequences)
    outs, lasts = _layer_by_layer(kernels.lstm, parts, states, sequences, layers)
    of_outs, of_beside = head[0].split([len(outs) * outs[0].shape[1], beside.shape[1]], 1)
    said, nothing = readout(beside, of_beside, head[1]), torch.zeros_like(head[1])
    for out, weight in zip(outs, of_outs.chunk(len(outs), 1), strict=True):
        said = said + readout(out, weight, nothing)
    return said, lasts


def _on_chip(
    inputs: Sequence[Tensor],
    states: Sequence[tuple[Tensor, Tensor]],
    sequences: Sequences,
    layers: Sequence[Weights],
) -> bool:
    """Whether the kernels for a GPU run the stack."""
    if not triton.usable(*inputs, *(each for state in states for each in state)) or sequences.hand is not None:
        return False
    from strobe.ops.triton import lstm as kernels

    return all(kernels.fits(w_ih.shape[1], w_hh.shape[1]) for w_ih, w_hh, _ in layers)


def lstm_stack_reference(
    parts: Sequence[Tensor],
    states: Sequence[tuple[Tensor, Tensor]],
    sequences: Sequences,
    layers: Sequence[Weights],
    *,
    beside: Tensor | None = None,
) -> tuple[Tensor, tuple[tuple[Tensor, Tensor], ...]]:
    """The same in plain torch, layer after layer."""
    outs, lasts = _layer_by_layer(_in_torch, parts, states, sequences, layers)
    return torch.cat(outs if beside is None else [*outs, beside], 1), lasts


def _in_torch(
    x: Tensor, state: tuple[Tensor, Tensor], sequences: Sequences, weights: Weights
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    out, (h, c) = in_torch(partial(lstm_step, weights), x, state, sequences)
    return out, (h, c)


def _layer_by_layer(
    layer: Callable[..., tuple[Tensor, tuple[Tensor, Tensor]]],
    parts: Sequence[Tensor],
    states: Sequence[tuple[Tensor, Tensor]],
    sequences: Sequences,
    layers: Sequence[Weights],
) -> tuple[list[Tensor], tuple[tuple[Tensor, Tensor], ...]]:
    """A stack from what runs one layer: states of all of them, and their last ones."""
    x, outs, lasts = torch.cat(list(parts), 1), [], []
    for weights, state in zip(layers, states, strict=True):
        x, last = layer(x, state, sequences, weights)
        outs.append(x)
        lasts.append(last)
    return outs, tuple(lasts)


def lstm_step(weights: tuple[Tensor, ...], x: Tensor, state: State) -> State:
    """One step in plain torch: c' = f c + i u, h' = o tanh(c')."""
    (h, c), (w_ih, w_hh, bias) = state, weights
    i, f, u, o = (torch.addmm(bias, x, w_ih.t()) + h @ w_hh.t()).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
    return torch.sigmoid(o) * torch.tanh(c), c


class _Lstm(torch.autograd.Function):
    """The stack through kernels, tile by tile. Weights are flat, each layer's [F + H, 4H] as kernels want them."""

    @staticmethod
    def forward(
        ctx: Any,
        sequences: Sequences,
        tile_rows: int,
        keep_gates: bool,
        beside: Tensor | None,
        h: Tensor,
        c: Tensor,
        weights: Tensor,
        bias: Tensor,
        *given: Tensor,
    ) -> Any:
        grid, parts = sequences.grid(tile_rows), [part.contiguous() for part in given]
        ctx.errand = None if sequences.hand is None else sequences.hand.send_out([*h, *c])
        h, c = (
            (h, c) if ctx.errand is None else (h.clone(), c.clone())
        )  # what comes from elsewhere is written into them
        (layers, _, hidden), cells = h.shape, sequences.num_cells
        beside = None if beside is None else beside.contiguous()
        extra = 0 if beside is None else beside.shape[1]
        out, states = empty(h, cells, layers * hidden + extra), empty(h, layers, cells, hidden)
        gates = empty(h, layers, cells, 4 * hidden) if keep_gates and any(ctx.needs_input_grad) else None
        h_last, c_last = torch.empty_like(h), torch.empty_like(c)
        arrays = (*_shape(sequences, grid, parts, h, extra), h, c, weights, bias, beside)

        def walk(group: int, first: int, end: int) -> None:
            del group
            work = h.new_empty(grid.most_rows * 2 * hidden)
            native.call("lstm_forward", first, end, *arrays, out, states, gates, h_last, c_last, work)

        go_through(grid, walk, ctx.errand, [*h, *c], [*h_last, *c_last])
        if sequences.leaving is not None:
            h_last, c_last = _where_cut(sequences.leaving, h, c, out, states)
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
        if sequences.leaving is not None:
            d_h, d_c = torch.zeros_like(h), torch.zeros_like(c)
        else:
            d_h, d_c = (grad.clone(memory_format=torch.contiguous_format) for grad in grads[1:])
        wanted = ctx.needs_input_grad[8:]
        d_parts = [empty(x, *x.shape) if wants else None for x, wants in zip(parts, wanted, strict=True)]
        d_weights, d_bias = sums_like(grid, (weights, bias))
        plain = _turned(weights, hidden, layers)
        known = (h, c, weights, plain, bias, out, states, gates, d_out, d_h, d_c, _places(d_parts))
        arrays = (*_shape(sequences, grid, parts, h, ctx.extra), *known)

        def walk(group: int, first: int, end: int) -> None:
            rows = grid.most_rows * 11 + grid.most_slots + 2 * layers * grid.most_cells
            olds = torch.empty(2 * layers * sequences.num_snapshots, 2, dtype=torch.int64)
            work = h.new_empty(rows * hidden)
            native.call("lstm_backward", first, end, *arrays, d_weights[group], d_bias[group], olds, work)

        go_back(grid, walk, ctx.errand, [*d_h, *d_c])
        d_beside = d_out[:, layers * hidden :].clone() if ctx.needs_input_grad[3] else None
        return None, None, None, d_beside, d_h, d_c, d_weights.sum(0), d_bias.sum(0), *d_parts


def _shape(sequences: Sequences, grid: Grid, parts: list[Tensor], h: Tensor, extra: int) -> tuple[Any, ...]:
    """What both ways of the kernel begin with: sizes, tiles, and the parts."""
    layers, slots, hidden = h.shape
    tiles = (sequences.num_snapshots, grid.num_tiles, grid.most_rows, grid.most_slots)
    sizes = (*tiles, sequences.num_cells, slots, layers, hidden, len(parts), layers * hidden + extra, extra)
    slot = None if sequences.slot is None else sequences.slots
    widths = torch.tensor([part.shape[1] for part in parts])
    return torch.tensor(sizes), grid.edges, grid.bounds, slot, _places(parts), widths


def _where_cut(leaving: Leaving, h: Tensor, c: Tensor, out: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Both states of all layers after the cells at which sequences are cut."""
    h, c, hidden = h.clone(), c.clone(), h.shape[2]
    for layer in range(len(h)):
        leaving.put_all(h[layer], out[:, layer * hidden : (layer + 1) * hidden])
        leaving.put_all(c[layer], states[layer])
    return h, c


def _places(tensors: Sequence[Tensor | None]) -> Tensor:
    """Where tensors begin in memory, 0 for those that are not there; whoever asks keeps them."""
    return torch.tensor([0 if each is None else each.data_ptr() for each in tensors])


def _turned(weights: Tensor, hidden: int, layers: int) -> Tensor:
    """The weights with every layer as torch has it, [4H, F + H]."""
    others = [2 * hidden * 4 * hidden] * (layers - 1)
    each = weights.split([len(weights) - sum(others), *others])
    return torch.cat([layer.view(-1, 4 * hidden).t().flatten() for layer in each])
