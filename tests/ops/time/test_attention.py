from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from strobe.ops.time import attention as attention_module
from strobe.ops.time import windowed
from strobe.ops.time.attention import time_attention, time_self_attention
from strobe.ops.time.sequences import Sequences
from tests.conftest import threads
from tests.support.sequences import presences

EVERYONE = [[0, 1, 2]] * 5
CHANGING = [[0, 1, 4], [1, 4], [], [0, 1, 2, 4], [2], [0, 1, 2, 3, 4], [3, 4], [0]]
"""Node 3 comes late, nodes pause, nodes leave; an empty snapshot."""

pytestmark = pytest.mark.usefixtures("one_thread")


def sequences_of(present: list[list[int]], num_slots: int | None = None) -> Sequences:
    count = 1 + max((slot for slots in present for slot in slots), default=-1) if num_slots is None else num_slots
    return Sequences.of([np.array(slots, np.int64) for slots in present], count)


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def operands(sequences: Sequences, width: int, past: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    cells = sequences.num_cells
    return rows(cells - sequences.cell_ptr[past], width), rows(cells, width, seed=1), rows(cells, width, seed=2)


def assert_equal_with_gradients(ours: Tensor, expected: Tensor, inputs: Sequence[Tensor]) -> None:
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    towards = rows(*ours.shape, seed=9).detach()
    for a, b in zip(
        torch.autograd.grad(ours, inputs, towards, materialize_grads=True),
        torch.autograd.grad(expected, inputs, towards, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sequences: Sequences,
    heads: int,
    *,
    span: int | None = None,
    past: int = 0,
    positions: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """``time_attention`` one cell after the other."""
    time = [t for t in range(sequences.num_snapshots) for _ in range(*sequences.cell_ptr[t : t + 2])]
    slot = sequences.slots.tolist()
    begin = sequences.cell_ptr[past]
    outputs = [v[:0]]
    for cell in range(begin, sequences.num_cells):
        rows = [
            row
            for row in range(cell + 1)
            if slot[row] == slot[cell] and (span is None or time[cell] - time[row] < span)
        ]
        key, value = k[rows], v[rows]
        if positions is not None:
            distance = [min(time[cell] - time[row], len(positions[0]) - 1) for row in rows]
            key, value = key + positions[0][distance], value + positions[1][distance]
        outputs.append(_one_cell(q[cell - begin], key, value, heads))
    return torch.cat(outputs)


def _one_cell(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    parts = []
    for query, key, value in zip(q.chunk(heads), k.chunk(heads, 1), v.chunk(heads, 1), strict=True):
        weight = torch.softmax(key @ query / len(query) ** 0.5, 0)
        parts.append(weight @ value)
    return torch.cat(parts)[None]


@pytest.fixture(params=["whole", "cut into pieces"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """As large as they come, short sequences end to end; pieces of two snapshots and slots."""
    if request.param == "cut into pieces":
        monkeypatch.setattr(attention_module, "STRIDE", 2)
        monkeypatch.setattr(attention_module, "PIECE_SCORES", {"cpu": 40})
        monkeypatch.setattr(windowed, "TILE_ROWS", {"cpu": 1})
    return str(request.param)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("present", [EVERYONE, CHANGING, [[0]], [[], [0], []], [[], []]])
@pytest.mark.parametrize("span", [None, 1, 3, 50])
@pytest.mark.parametrize("heads", [1, 2])
def test_pieces_equal_the_loop_over_cells(present: list[list[int]], span: int | None, heads: int) -> None:
    sequences = sequences_of(present, 5)
    inputs = operands(sequences, 4)
    ours = time_attention(inputs, sequences, heads, span=span)
    assert_equal_with_gradients(ours, reference(*inputs, sequences, heads, span=span), inputs)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("num_positions", [1, 3, 20])
@pytest.mark.parametrize("span", [None, 3])
def test_positions_are_distances_and_far_ones_share_the_last(num_positions: int, span: int | None) -> None:
    sequences = sequences_of(CHANGING)
    tables = rows(num_positions, 4, seed=5), rows(num_positions, 4, seed=6)
    inputs = operands(sequences, 4)
    options: dict[str, Any] = {"span": span, "positions": tables}
    ours, expected = time_attention(inputs, sequences, 2, **options), reference(*inputs, sequences, 2, **options)
    assert_equal_with_gradients(ours, expected, [*inputs, *tables])


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("past", [1, 3, 7, 8])
@pytest.mark.parametrize("span", [None, 2])
def test_the_past_is_seen_but_not_computed(past: int, span: int | None) -> None:
    sequences = sequences_of(CHANGING)
    q, k, v = operands(sequences, 4)
    whole = time_attention((q, k, v), sequences, 2, span=span)
    begin = sequences.cell_ptr[past]
    later = time_attention((q[begin:], k, v), sequences, 2, span=span, past=past)
    assert_equal_with_gradients(later, whole[begin:], [q, k, v])


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("biased", [True, False, None])
def test_rows_may_be_packed_or_projected(past: int, biased: bool | None) -> None:
    """``biased`` None: queries, keys and values in one matrix."""
    sequences = sequences_of(CHANGING)
    x, weight, bias = rows(sequences.num_cells, 3), rows(12, 3, seed=1), rows(12, seed=2) if biased else None
    q, k, v = torch.nn.functional.linear(x, weight, bias).chunk(3, 1)
    expected = reference(q[sequences.cell_ptr[past] :], k, v, sequences, 2, span=3, past=past)
    if biased is None:
        ours = time_attention((torch.nn.functional.linear(x, weight),), sequences, 2, span=3, past=past)
    else:
        ours = time_self_attention(x, weight, bias, sequences, 2, span=3, past=past)
    assert_equal_with_gradients(ours, expected, [each for each in (x, weight, bias) if each is not None])


def test_gradients_are_those_of_finite_differences() -> None:
    sequences = sequences_of(CHANGING[:4])
    tables = (rows(2, 2, seed=5), rows(2, 2, seed=6))

    def run(q: Tensor, k: Tensor, v: Tensor, *positions: Tensor) -> Tensor:
        return time_attention((q, k, v), sequences, 2, span=3, past=1, positions=(positions[0], positions[1]))

    assert torch.autograd.gradcheck(run, (*operands(sequences, 2, past=1), *tables))


def test_a_cell_reads_nothing_of_the_future_nor_of_other_nodes() -> None:
    sequences = sequences_of(EVERYONE)
    q, k, v = operands(sequences, 2)
    time_attention((q, k, v), sequences, 1)[7].sum().backward()  # node 1 at the third snapshot
    assert v.grad is not None
    assert v.grad.abs().sum(1).nonzero().flatten().tolist() == [1, 4, 7]


def test_a_cell_alone_in_its_span_gives_its_own_value() -> None:
    sequences = sequences_of([[0], [], [], [0]])
    q, k, v = operands(sequences, 4)
    assert torch.equal(time_attention((q, k, v), sequences, 2, span=3), v)
    assert not torch.equal(time_attention((q, k, v), sequences, 2, span=4), v)


def test_nothing_is_saved_per_pair_of_cells() -> None:
    sequences, saved = sequences_of([[0]] * 60), list[int]()

    def save(x: Tensor) -> Tensor:
        saved.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
        time_attention(operands(sequences, 2), sequences, 1)
    assert 0 < max(saved) < 60 * 60


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(presences(max_slots=9, max_snapshots=9), st.sampled_from([None, 1, 3]), st.integers(0, 3))
def test_packed_sequences_give_what_unpacked_ones_do(
    monkeypatch: pytest.MonkeyPatch, sequences: Sequences, span: int | None, past: int
) -> None:
    past = min(past, sequences.num_snapshots)
    inputs, tables = operands(sequences, 4, past), (rows(3, 4, seed=5), rows(3, 4, seed=6))
    results = []
    for share in (windowed.FEWER_ROWS, 0.0):
        with monkeypatch.context() as patch:
            patch.setattr(windowed, "FEWER_ROWS", share)
            out = time_attention(inputs, sequences, 2, span=span, past=past, positions=tables)
            results.append([out, *torch.autograd.grad(out.square().sum(), [*inputs, *tables])])
    for packed, apart in zip(*results, strict=True):
        torch.testing.assert_close(packed, apart, rtol=1e-12, atol=1e-12)
    right = reference(*inputs, sequences, 2, span=span, past=past, positions=tables)
    torch.testing.assert_close(results[0][0], right, rtol=1e-12, atol=1e-12)


SHARING = [[0, 1], [0, 1, 2], [0, 2, 3, 4], [0, 4, 5], [0, 5], [0], [0, 6]]
"""One long sequence, and six short ones that share rows."""


@pytest.mark.parametrize("options", [{}, {"span": 2}, {"past": 2}, {"dropout": 0.4}])
def test_a_seam_cuts_all_between_neighbours_in_a_row(options: dict[str, Any]) -> None:
    """Whatever the others' rows are, a node's outputs and gradients are the same bits."""
    sequences = sequences_of(SHARING)
    assert_shares_rows(sequences, options.get("past", 0))
    inputs = operands(sequences, 4, options.get("past", 0))
    tables = (rows(3, 4, seed=5), rows(3, 4, seed=6))
    begin = sequences.num_cells - len(inputs[0])

    def run(values: Sequence[Tensor], mine: Tensor) -> list[Tensor]:
        torch.manual_seed(3)  # dropout draws the same
        q, k, v = values
        out = time_attention((q, k, v), sequences, 2, positions=tables, **options)[mine[begin:]]
        return [out, *torch.autograd.grad(out.square().sum(), [*values, *tables])]

    for slot in range(7):
        mine = sequences.slots == slot
        others = [value.detach().clone() for value in inputs]
        for value in others:
            value[~mine[len(mine) - len(value) :]] += 9.0
        before, after = run(inputs, mine), run([value.requires_grad_() for value in others], mine)
        for one, other in zip(before, after, strict=True):
            assert torch.equal(one, other)
        assert not before[2][~mine].any()  # no gradient of anybody else's keys


def assert_shares_rows(sequences: Sequences, past: int) -> None:
    look = windowed.WindowedOp(step=lambda *_: rows(0), width=4, past=past, pairs=1 << 18)
    grid = sequences.grid(1 << 10)
    busy = len(set(sequences.slots[sequences.cell_ptr[past] :].tolist()))
    assert sum(piece.own.slots for piece in look.pieces(sequences, grid, 0)) < busy


@pytest.mark.parametrize("present", [[[0, 1, 2]] * 40, SHARING], ids=["always", "sharing rows"])
def test_dropout_keeps_the_mean_and_draws_the_same_in_backward(present: list[list[int]]) -> None:
    torch.manual_seed(0)
    sequences = sequences_of(present)
    q, k, v = operands(sequences, 2)
    ones = time_attention((q, k, torch.ones_like(v)), sequences, 1, dropout=0.5)
    assert ones.std() > 0.05
    assert ones.mean().item() == pytest.approx(1.0, abs=0.15 if len(present) == 40 else 0.6)
    out = time_attention((q, k, v), sequences, 1, dropout=0.5)
    (d_v,) = torch.autograd.grad(out.sum(), v)
    # The output is linear in v: its sum is v times the gradient only if both used the same weights.
    assert (d_v * v).sum().item() == pytest.approx(out.sum().item())


def test_threads_give_the_same_bits() -> None:
    sequences = sequences_of([list(range(3000))] * 4)
    assert sequences.grid(windowed.TILE_ROWS["cpu"]).num_tiles > 1
    inputs, tables, results = operands(sequences, 4), (rows(2, 4), rows(2, 4)), []
    for count in (1, 3):
        with threads(count):
            out = time_attention(inputs, sequences, 2, positions=tables)
            results.append([out, *torch.autograd.grad(out.sum(), [*inputs, *tables])])
    assert all(map(torch.equal, *results))
