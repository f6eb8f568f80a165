"""The fused stages against plain torch, one snapshot and one node at a time, and against torch's own modules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from strobe.errors import InputError
from strobe.ops import native
from strobe.ops.time import recurrent
from strobe.ops.time.gru import gru, gru_step
from strobe.ops.time.lstm import lstm, lstm_step
from strobe.ops.time.packing import PackedSequences
from strobe.ops.time.recurrent import run_packed, run_reference
from strobe.ops.time.sequences import Sequences
from tests.conftest import threads
from tests.support.sequences import awkward, presences

Run = Callable[..., tuple[Tensor, ...]]
KINDS = ["gru", "gru that resets the state", "lstm", "lstm that computes gates again"]
PLAIN_KINDS = KINDS[:3]
WIDTHS = [(1, 1), (3, 4), (2, 17), (5, 32), (33, 40)]  # inputs, hidden: below, at and above the kernels' vectors


def _inputs(
    kind: str, sequences: Sequences, inputs: int, hidden: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    torch.manual_seed(inputs * 100 + hidden)
    states, gates = (2, 4) if kind.startswith("lstm") else (1, 3)
    shapes: list[tuple[int, ...]] = [(sequences.num_cells, inputs), *[(sequences.num_slots, hidden)] * states]
    shapes += [(gates * hidden, inputs), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
    return [torch.randn(*shape, dtype=dtype).requires_grad_() for shape in shapes]


def _fast(kind: str, sequences: Sequences, tile_rows: int = 2) -> Run:
    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        if kind.startswith("gru"):
            return gru(x, rest[0], sequences, *rest[1:], reset_state="resets" in kind, tile_rows=tile_rows)
        keep = "again" not in kind
        out, (h, c) = lstm(x, rest[:2], sequences, *rest[2:], keep_gates=keep, tile_rows=tile_rows)  # type: ignore[arg-type]
        return out, h, c

    return run


def _plain(kind: str, sequences: Sequences, stage: Any = run_reference) -> Run:
    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        if kind.startswith("gru"):
            out, state = stage(partial(gru_step, rest[1:], "resets" in kind), x, rest[:1], sequences)
        else:
            w_ih, w_hh, b_ih, b_hh = rest[2:]
            out, state = stage(partial(lstm_step, (w_ih, w_hh, b_ih + b_hh)), x, rest[:2], sequences)
        return (out, *state)

    return run


@pytest.fixture(autouse=True)
def _needs_kernels() -> None:
    assert native.library() is not None, "the kernels are not built: python -m strobe.ops.native.build"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("widths", WIDTHS)
def test_a_stage_equals_plain_torch_with_its_gradients(kind: str, widths: tuple[int, int]) -> None:
    sequences = awkward()
    given = _inputs(kind, sequences, *widths)
    results = [_with_gradients(run, given) for run in (_fast(kind, sequences), _plain(kind, sequences))]
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-11, atol=1e-11)


def _with_gradients(run: Run, given: list[Tensor]) -> list[Tensor]:
    """Outputs and last states, then the gradients of all that is given."""
    out = run(*given)
    loss = torch.stack(
        [(part * torch.linspace(-1, 1, part.numel(), dtype=part.dtype).view_as(part)).sum() for part in out]
    ).sum()
    return [*out, *torch.autograd.grad(loss, given, materialize_grads=True)]


@settings(max_examples=40, deadline=None)
@given(presences(), st.sampled_from(PLAIN_KINDS))
def test_packed_sequences_give_what_unpacked_ones_do_with_all_gradients(sequences: Sequences, kind: str) -> None:
    given = _inputs(kind, sequences, 3, 4)
    results = [_with_gradients(_plain(kind, sequences, stage), given) for stage in (run_packed, run_reference)]
    for fused, plain in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-12, atol=1e-12)


def _short_and_long() -> Sequences:
    """Six nodes: one with five cells, two that share a lane with others, one without any."""
    return Sequences.of([np.array(shot) for shot in ([0, 1], [0, 1, 2, 5], [0, 2, 4], [0, 2], [0, 4])], 6)


@pytest.mark.parametrize("kind", PLAIN_KINDS)
def test_a_seam_cuts_all_between_neighbours_in_a_lane(kind: str) -> None:
    """Whatever the others' inputs and first states are, a node's outputs and gradients are the same bits."""
    sequences = _short_and_long()
    lanes = PackedSequences.of(sequences)
    assert lanes.num_lanes < lanes.boundary_slot.numel()
    given = _inputs(kind, sequences, 3, 4)
    states = 2 if kind.startswith("lstm") else 1

    def run(values: list[Tensor], slot: int) -> list[Tensor]:
        of_slot = sequences.slots == slot
        out, *last = _plain(kind, sequences, run_packed)(*values)
        loss = out[of_slot].square().sum() + sum((each[slot].sum() for each in last), out.new_zeros(()))
        return [out[of_slot], *(each[slot] for each in last), *torch.autograd.grad(loss, values)]

    for slot in range(6):
        others = [each.detach().clone() for each in given]
        others[0][sequences.slots != slot] += 7.0
        for first in others[1 : 1 + states]:
            first[torch.arange(6) != slot] -= 5.0
        before, after = run(given, slot), run([each.requires_grad_() for each in others], slot)
        for one, other in zip(before, after, strict=True):
            assert torch.equal(one, other)
        assert not before[1 + states][sequences.slots != slot].any()  # no gradient of anybody else's inputs


def test_lanes_are_taken_where_nodes_are_absent_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for name in ("run_packed", "run_reference"):
        monkeypatch.setattr(recurrent, name, lambda *_, name=name: taken.append(name))
    everyone, few = np.arange(8), np.array([1, 5])
    for shots in ([everyone] * 4, [everyone[1:]] * 4, [few] * 4, [few, everyone, few], [], [few[:0]]):
        recurrent.run_in_torch(lambda _, state: state, torch.zeros(0, 1), (torch.zeros(8, 1),), Sequences.of(shots, 8))
    assert [name == "run_packed" for name in taken] == [False, False, True, False, False, False]


@pytest.mark.parametrize("kind", PLAIN_KINDS)
def test_without_kernels_lanes_change_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = awkward()
    given = _inputs(kind, sequences, 3, 4)
    expected = _with_gradients(_fast(kind, sequences), given)
    monkeypatch.setattr(native, "library", lambda: None)
    for rows in (0.0, float("inf")):
        monkeypatch.setattr(recurrent, "PACKED_ROWS", rows)
        for found, right in zip(_with_gradients(_fast(kind, sequences), given), expected, strict=True):
            torch.testing.assert_close(found, right, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_a_stage_are_those_of_its_values(kind: str) -> None:
    sequences = awkward()
    assert torch.autograd.gradcheck(_fast(kind, sequences), _inputs(kind, sequences, 2, 3))


@settings(max_examples=40, deadline=None)
@given(presences())
def test_any_presence_gives_what_each_node_alone_would(sequences: Sequences) -> None:
    """Each node's own cells, in order, through torch's cell: nothing of its pauses, nothing of its neighbours."""
    cell = nn.GRUCell(2, 3, dtype=torch.float64)
    x = torch.randn(sequences.num_cells, 2, dtype=torch.float64)
    first = torch.randn(sequences.num_slots, 3, dtype=torch.float64)
    weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    out, last = gru(x, first, sequences, *weights, tile_rows=2)
    for slot in range(sequences.num_slots):
        h = first[slot]
        for row in torch.nonzero(sequences.slots == slot).flatten().tolist():
            h = cell(x[row][None], h[None])[0]
            torch.testing.assert_close(out[row], h)
        torch.testing.assert_close(last[slot], h)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "resets" not in kind])  # torch has no GRU that does
def test_stages_equal_those_of_torch_where_everybody_is_present(kind: str) -> None:
    sequences = Sequences.of([np.arange(5)] * 4, 5)
    module: Any = (nn.LSTM if kind.startswith("lstm") else nn.GRU)(3, 6, dtype=torch.float64)
    x = torch.randn(20, 3, dtype=torch.float64)
    zeros = [torch.zeros(5, 6, dtype=torch.float64)] * (2 if kind.startswith("lstm") else 1)
    weights = (module.weight_ih_l0, module.weight_hh_l0, module.bias_ih_l0, module.bias_hh_l0)
    out = _fast(kind, sequences)(x, *zeros, *weights)[0]
    torch.testing.assert_close(out.view(4, 5, 6), module(x.view(4, 5, 3))[0])


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_is_right_to_single_precision(kind: str) -> None:
    sequences = awkward()
    wide = _inputs(kind, sequences, 4, 32)
    narrow = [value.detach().float() for value in wide]
    for single, double in zip(_fast(kind, sequences)(*narrow), _fast(kind, sequences)(*wide), strict=True):
        torch.testing.assert_close(single.double(), double, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kind", PLAIN_KINDS)
@pytest.mark.parametrize("run", [_fast, _plain, partial(_plain, stage=run_packed)], ids=["fused", "plain", "packed"])
@pytest.mark.parametrize("snapshots", [0, 3])
def test_a_stage_without_cells_gives_its_state_back(kind: str, run: Callable[..., Run], snapshots: int) -> None:
    sequences = Sequences.of([np.array([], np.int64)] * snapshots, 4)
    given = _inputs(kind, sequences, 2, 3)
    out, *last = run(kind, sequences)(*given)
    assert out.shape == (0, 3)
    assert all(torch.equal(a, b) for a, b in zip(last, given[1:], strict=False))
    (out.sum() + sum(each.sum() for each in last)).backward()
    assert torch.equal(given[1].grad, torch.ones(4, 3, dtype=torch.float64))  # type: ignore[arg-type]
    assert given[-1].grad is not None, "a rank without cells has a backward pass, too"


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_inputs_saturate_and_stay_finite(kind: str) -> None:
    x, *rest = (value.detach().float() for value in _inputs(kind, awkward(), 3, 32))
    states = 2 if kind.startswith("lstm") else 1
    given = [1e4 * x, *(state.clamp(-1, 1) for state in rest[:states]), *(1e4 * weight for weight in rest[states:])]
    assert all(bool(part.isfinite().all()) for part in _fast(kind, awkward())(*given))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_give_the_same_bits(kind: str) -> None:
    sequences = Sequences.of([np.arange(t % 3, 50) for t in range(6)], 50)
    given, found = _inputs(kind, sequences, 3, 16, torch.float32), []
    for count in (1, 2, 3):
        with threads(count):
            out = _fast(kind, sequences, 4)(*given)
            found.append([*out, *torch.autograd.grad(out[0].square().sum(), given)])
    assert all(torch.equal(one, other) for others in found[1:] for one, other in zip(found[0], others, strict=True))


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize(("rows", "columns", "named"), [(4, 3, "3 columns.* 5"), (3, 5, "3 rows.* 4 cells")])
def test_inputs_of_another_shape_are_refused(kind: str, rows: int, columns: int, named: str) -> None:
    sequences = Sequences.of([np.arange(2), np.arange(2)], 2)
    given = _inputs(kind, sequences, 5, 4)
    with pytest.raises(InputError, match=named):
        _fast(kind, sequences)(torch.zeros(rows, columns), *given[1:])
