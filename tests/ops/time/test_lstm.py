"""Stacks of LSTMs against plain torch; one layer alone is tested with the other recurrent stages."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from strobe.ops.time.lstm import lstm_stack, lstm_stack_reference
from tests.support.sequences import awkward

SIZES = [(1, (2,), 5), (2, (3, 4), 8), (2, (33, 1, 16), 17), (3, (4, 4), 40)]  # layers, widths of the parts, hidden


def _given(layers: int, widths: tuple[int, ...], hidden: int) -> list[Tensor]:
    """Extra columns, then the parts, then h, c and weights of every layer."""
    torch.manual_seed(hidden)
    cells, slots = awkward().num_cells, awkward().num_slots
    shapes: list[tuple[int, ...]] = [(cells, 2), *((cells, width) for width in widths)]
    for layer in range(layers):
        inputs = hidden if layer else sum(widths)
        shapes += [(slots, hidden), (slots, hidden), (4 * hidden, inputs), (4 * hidden, hidden), (4 * hidden,)]
    return [torch.randn(*shape, dtype=torch.float64).requires_grad_() for shape in shapes]


def _run(stack: Any, parts: int, given: list[Tensor], *, extra_columns: bool = True, **options: Any) -> list[Tensor]:
    layers = [given[at : at + 5] for at in range(1 + parts, len(given), 5)]
    states, weights = [(layer[0], layer[1]) for layer in layers], [tuple(layer[2:]) for layer in layers]
    extra = given[0] if extra_columns else None
    out, lasts = stack(given[1 : 1 + parts], states, awkward(), weights, extra_columns=extra, **options)
    return [out, *(each for last in lasts for each in last)]


def _weighed(found: list[Tensor]) -> Tensor:
    return torch.stack([(part * torch.linspace(-1, 1, part.numel()).view_as(part)).sum() for part in found]).sum()


@pytest.mark.parametrize(("layers", "widths", "hidden"), SIZES)
@pytest.mark.parametrize(("keep_gates", "tile_rows"), [(True, 2), (False, 64)])
def test_a_stack_equals_plain_torch_with_its_gradients(
    layers: int, widths: tuple[int, ...], hidden: int, keep_gates: bool, tile_rows: int
) -> None:
    given = _given(layers, widths, hidden)
    fast = _run(lstm_stack, len(widths), given, keep_gates=keep_gates, tile_rows=tile_rows)
    plain = _run(lstm_stack_reference, len(widths), given)
    fast += torch.autograd.grad(_weighed(fast), given)
    plain += torch.autograd.grad(_weighed(plain), given)
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_lstm_stack_without_extra_columns_or_part_gradient() -> None:
    given = _given(2, (3, 4), 8)
    given[1].requires_grad_(False)
    fast, plain = (_run(each, 2, given, extra_columns=False) for each in (lstm_stack, lstm_stack_reference))
    assert fast[0].shape[1] == 16
    learnt = given[2:]
    for one, other in zip(
        torch.autograd.grad(_weighed(fast), learnt), torch.autograd.grad(_weighed(plain), learnt), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_parts_whose_rows_are_not_dense_work() -> None:
    given = _given(1, (4,), 3)
    turned = [given[0], given[1].detach().t().contiguous().t(), *given[2:]]
    torch.testing.assert_close(_run(lstm_stack, 1, turned), _run(lstm_stack, 1, given))
