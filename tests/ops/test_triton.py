"""The GPU kernels against plain torch in float64: random inputs, memory full of NaN, awkward shapes.

They need a GPU, or Triton's interpreter: ``TRITON_INTERPRET=1 python -m pytest tests/ops/test_triton.py``, which is
what test_interpreted.py runs without a GPU: smaller shapes, and every value of an option instead of all combinations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from torch import Tensor

import strobe
from strobe.graph.synthetic import Social
from strobe.ops import triton
from strobe.ops.dense.linear import feed_forward, feed_forward_reference, linear
from strobe.ops.dense.readout import readout, readout_reference
from strobe.ops.dense.segments import segment_readout
from strobe.ops.sparse.attention import attend, attend_reference
from strobe.ops.sparse.leading_block import LeadingBlock, LeadingBlocks
from strobe.ops.sparse.spmm import Sparse, spmm, spmm_reference
from strobe.ops.time.attention import time_attention
from strobe.ops.time.gru import gru, gru_readout, gru_step
from strobe.ops.time.lstm import lstm_stack, lstm_stack_readout, lstm_stack_reference
from strobe.ops.time.recurrent import run_reference
from strobe.ops.time.sequences import Sequences, StateTransfer, StateTransport

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
if not triton.available() or not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("the kernels need Triton and a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

Run = Callable[..., tuple[Tensor, ...]]
Case = tuple[Run, Run, list[Tensor]]
"""A function of kernels, the same function in plain torch, and arguments of both in float64."""

ERRORS = {"highest": 1e-5, "high": 1e-2, "bfloat16": 3e-2}
"""Of norms, of results and all gradients: products as exact as float32, products in TF32, rows stored as bfloat16."""

SHARE = 1e-2
"""Of the largest norm among results and gradients: a gradient's error is measured against no less."""


def _some(*sizes: Any, least: int = 3) -> list[Any]:
    """All sizes; in the interpreter only the first few."""
    return list(sizes[:least] if INTERPRETED else sizes)


def _cases(*axes: list[Any]) -> list[tuple[Any, ...]]:
    """All combinations of options; in the interpreter a few in which every value occurs, in ever other pairs."""
    left = list(product(*axes))
    if not INTERPRETED:
        return left
    cases: list[tuple[Any, ...]] = []
    values, pairs = set[Any](), set[Any]()

    def news(case: tuple[Any, ...]) -> tuple[int, int]:
        return len(set(enumerate(case)) - values), len(set(combinations(enumerate(case), 2)) - pairs)

    while len(values) < sum(map(len, axes)):
        cases.append(max(left, key=news))
        values.update(enumerate(cases[-1]))
        pairs.update(combinations(enumerate(cases[-1]), 2))
    return cases


@pytest.fixture(autouse=True)
def _setting(request: pytest.FixtureRequest) -> Iterator[None]:
    """New random numbers on a GPU, in the interpreter those of the test. On the CPU torch fills new memory with NaN."""
    torch.manual_seed(crc32(request.node.name.encode()) if INTERPRETED else torch.seed())
    torch.use_deterministic_algorithms(INTERPRETED)
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)
    torch.use_deterministic_algorithms(False)


def _poison() -> None:
    """Fill free memory of the GPU with NaN."""
    if DEVICE.type == "cuda":
        blocks = [torch.full((1 << size,), torch.nan, device=DEVICE) for size in range(6, 20) for _ in range(4)]
        del blocks


def _error(
    run: Run, plain: Run, given: list[Tensor], dtype: torch.dtype = torch.float32, *, kernel: str | None = ""
) -> float:
    """The largest error of results and gradients, relative to those of plain torch in float64.

    ``kernel`` is the name of the function that must make the first result, None for plain torch; "": any.

    A gradient is compared with a share of the largest norm at least: where terms cancel (a cell that sees itself alone
    has no gradients of queries and keys) the result is their rounding, which is small beside the other gradients.
    """
    results, seed = [], int(torch.randint(2**31, ()))
    for each, kind in ((run, dtype), (plain, torch.float64)):
        leaves = [tensor.to(dtype).to(kind).requires_grad_() for tensor in given]
        _poison()
        out = each(*leaves)
        if each is run and kind == dtype:
            assert kernel in ("", _kernel(out[0]))
        draws = torch.Generator().manual_seed(seed)
        towards = [torch.randn(part.shape, generator=draws).to(DEVICE, dtype).double() for part in out]
        loss = torch.stack([(part.double() * to).sum() for part, to in zip(out, towards, strict=True)]).sum()
        _poison()
        results.append([*out, *torch.autograd.grad(loss, leaves, materialize_grads=True)])
    largest = max(float(right.detach().norm()) for right in results[1])
    least = [0.0] * len(out) + [SHARE * largest] * len(given)
    return max(map(_distance, *results, least))


def _distance(found: Tensor, right: Tensor, least: float = 0.0) -> float:
    """Distance relative to the norm of ``right``, or to ``least`` if that is more."""
    assert found.shape == right.shape
    distance = (found.detach().double() - right.detach()).norm() / right.detach().norm().clamp(min=max(least, 1e-9))
    return float("inf") if bool(distance.isnan()) else float(distance)


def _kernel(out: Tensor) -> str | None:
    """Name of the function of kernels that made a result; None for plain torch."""
    function = getattr(type(out.grad_fn), "_forward_cls", None)
    return function.__name__ if function and function.__module__.startswith("strobe.ops.triton.") else None


def _random(*shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, device=DEVICE)


SIZES = {"always": (150, 5, 1.0), "gaps": (150, 6, 0.7), "few": (130, 9, 0.3), "packed": (200, 12, 0.1)}
if INTERPRETED:
    SIZES = {"always": (20, 3, 1.0), "gaps": (66, 3, 0.7), "few": (20, 5, 0.4), "packed": (40, 5, 0.2)}
"""Nodes, snapshots, and how often a node is present. Tiles have 64 nodes."""


def _sequences(kind: str) -> Sequences:
    rng = np.random.default_rng(int(torch.randint(2**31, ())))
    nodes, snapshots, share = SIZES[kind]
    return Sequences.of([np.flatnonzero(rng.random(nodes) < share) for _ in range(snapshots)], nodes, DEVICE)


PRESENCES = ["gaps", "always", "packed"]
WIDTHS = _some((3, 17), (20, 16), (1, 3), (2, 32), (64, 32))
EXACT = ["highest", "high"]


def _weights(gates: int, inputs: int, hidden: int) -> list[Tensor]:
    wide = _random(gates * hidden, inputs, scale=inputs**-0.5), _random(gates * hidden, hidden, scale=hidden**-0.5)
    return [*wide, _random(gates * hidden), _random(gates * hidden)]


def _gru(sequences: Sequences, inputs: int, hidden: int, *, reset_state: bool = True) -> Case:
    given = [_random(sequences.num_cells, inputs), _random(sequences.num_slots, hidden), *_weights(3, inputs, hidden)]

    def run(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return gru(x, h, sequences, *weights, reset_state=reset_state)

    def plain(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        out, (last,) = run_reference(partial(gru_step, weights, reset_state), x, (h,), sequences)
        return out, last

    return run, plain, given


def _gru_readout(
    sequences: Sequences, inputs: int, hidden: int, answers: int = 2, *, reset_state: bool = True, zeros: bool = False
) -> Case:
    """A readout of states, which are never so near zero that rounding could change their sign."""

    def run(x: Tensor, h: Tensor, weight: Tensor, bias: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        first, (w_ih, w_hh, b_ih) = None if zeros else h, weights
        return gru_readout(x, first, sequences, (w_ih, w_hh, b_ih), (weight, bias), reset_state=reset_state)

    def states(x: Tensor, h: Tensor, _: Tensor, __: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        step = partial(gru_step, (*weights, torch.zeros_like(weights[2])), reset_state)
        out, (last,) = run_reference(step, x, (torch.zeros_like(h) if zeros else h,), sequences)
        return out, last

    def plain(*given: Tensor) -> tuple[Tensor, ...]:
        out, last = states(*given)
        return readout_reference(out, *given[2:4]), last

    def draw() -> list[Tensor]:
        given = [_random(sequences.num_cells, inputs), _random(sequences.num_slots, hidden)]
        return [*given, _random(answers, hidden), _random(answers), *_weights(3, inputs, hidden)[:3]]

    return run, plain, _off_zero(draw, states)


def _off_zero(draw: Callable[[], list[Tensor]], states: Run) -> list[Tensor]:
    while True:
        given = draw()
        out = states(*(tensor.float().double() for tensor in given))[0]
        if not len(out) or float(out.abs().min()) > 1e-6:
            return given


@pytest.mark.parametrize(
    ("width", "presence", "reset_state", "exact"), _cases(WIDTHS, PRESENCES, [True, False], EXACT), ids=str
)
def test_gru_equals_plain_torch(width: tuple[int, int], presence: str, reset_state: bool, exact: str) -> None:
    torch.set_float32_matmul_precision(exact)
    assert _error(*_gru(_sequences(presence), *width, reset_state=reset_state)) < ERRORS[exact]


@pytest.mark.parametrize(
    ("width", "presence", "reset_state", "answers", "zeros"),
    _cases(WIDTHS, PRESENCES, [True, False], [1, 2, 4, 5], [True, False]),
    ids=str,
)
def test_gru_readout_equals_a_readout_of_the_states(
    width: tuple[int, int], presence: str, reset_state: bool, answers: int, zeros: bool
) -> None:
    case = _gru_readout(_sequences(presence), *width, answers, reset_state=reset_state, zeros=zeros)
    assert _error(*case) < ERRORS["highest"]  # in TF32 other states than in float64 would be positive


@pytest.mark.parametrize("presence", _some(*PRESENCES, least=1))
def test_gru_readout_in_tf32_reads_the_same_states(presence: str) -> None:
    torch.set_float32_matmul_precision("high")
    sequences = _sequences(presence)
    given = [_random(sequences.num_cells, 2), *_weights(3, 2, 32)[:3], _random(2, 32), _random(2)]
    results = []
    for fused in (True, False):
        x, *rest = (tensor.float().requires_grad_() for tensor in given)
        weights, head = (rest[0], rest[1], rest[2]), (rest[3], rest[4])
        if fused:
            out, _ = gru_readout(x, None, sequences, weights, head, reset_state=True)
        else:
            out = readout(gru(x, None, sequences, *weights, reset_state=True)[0], *head)
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *rest])])
    for one, other in zip(*results, strict=True):
        assert _distance(one, other.double()) < 1e-3


@pytest.mark.parametrize(
    ("width", "presence", "exact"), _cases(WIDTHS[:2] if INTERPRETED else WIDTHS, PRESENCES, EXACT), ids=str
)
def test_lstm_stack_and_its_readout_equal_plain_torch(width: tuple[int, int], presence: str, exact: str) -> None:
    torch.set_float32_matmul_precision(exact)
    inputs, hidden = width
    sequences = _sequences(presence)
    cells, slots = sequences.num_cells, sequences.num_slots

    def draw() -> list[Tensor]:
        given = [_random(cells, inputs), _random(cells, 2), *(_random(slots, hidden) for _ in range(4))]
        weights = [*_weights(4, inputs, hidden)[:3], *_weights(4, hidden, hidden)[:3]]
        return [*given, *weights, _random(2, 2 * hidden + 2), _random(2)]

    def stack(run: Any, x: Tensor, extra: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        states, layers = [rest[:2], rest[2:4]], [rest[4:7], rest[7:10]]
        out, lasts = run([x], states, sequences, layers, extra_columns=extra)
        return out, *(each for last in lasts for each in last)

    def fused(*given: Tensor) -> tuple[Tensor, ...]:
        return stack(partial(lstm_stack_readout, head=(given[12], given[13])), *given)

    def separate(*given: Tensor) -> tuple[Tensor, ...]:
        out, *lasts = stack(lstm_stack_reference, *given)
        return readout_reference(out, *given[12:]), *lasts

    plain = partial(stack, lstm_stack_reference)
    given = _off_zero(draw, plain)
    assert _error(partial(stack, lstm_stack), plain, given) < ERRORS[exact]
    if exact == "highest":  # in TF32 other states than in float64 would be positive
        assert _error(fused, separate, given) < ERRORS[exact]


class _Transfers(StateTransport, StateTransfer):
    """Every third slot receives a state, and every third sends its own, with the gradient that comes back."""

    def __init__(self, cuts: tuple[int, ...], order: tuple[int, ...], received: list[Tensor], d_sent: list[Tensor]):
        self.cuts, self.order, self._received, self._d_sent = cuts, order, received, d_sent
        self.into, self.of = torch.arange(0, cuts[-1], 3, device=DEVICE), torch.arange(1, cuts[-1], 3, device=DEVICE)
        self.sent = [torch.full_like(each, torch.nan) for each in d_sent]
        self.d_received = [torch.full_like(each, torch.nan) for each in received]
        self.events: list[tuple[str, int]] = []

    def start(self, states: Sequence[Tensor]) -> StateTransfer:
        del states
        return self

    def recv(self, stage: int, first: Sequence[Tensor]) -> None:
        rows = self._rows("recv", stage, self.into)
        for state, new in zip(first, self._received, strict=True):
            state[self.into[rows]] = new[rows]

    def send(self, stage: int, last: Sequence[Tensor]) -> None:
        rows = self._rows("send", stage, self.of)
        for state, sent in zip(last, self.sent, strict=True):
            sent[rows] = state[self.of[rows]]

    def begin_backward(self) -> None:
        self.events.append(("backward", 0))

    def recv_grad(self, stage: int, d_last: Sequence[Tensor]) -> None:
        rows = self._rows("recv_grad", stage, self.of)
        for state, gradient in zip(d_last, self._d_sent, strict=True):
            state[self.of[rows]] += gradient[rows]

    def send_grad(self, stage: int, d_first: Sequence[Tensor]) -> None:
        rows = self._rows("send_grad", stage, self.into)
        for state, gradient in zip(d_first, self.d_received, strict=True):
            gradient[rows] = state[self.into[rows]]
            state[self.into[rows]] = 0

    def _rows(self, event: str, stage: int, slots: Tensor) -> Tensor:
        self.events.append((event, stage))
        return torch.nonzero((slots >= self.cuts[stage]) & (slots < self.cuts[stage + 1]))[:, 0]


@pytest.mark.parametrize("presence", PRESENCES)
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_stages_receive_and_send_states_in_order(kind: str, presence: str) -> None:
    sequences, (inputs, hidden) = _sequences(presence), (3, 17)
    slots, num_states = sequences.num_slots, 1 if kind == "gru" else 2
    cuts, order = (0, slots // 5, slots // 2, slots), (2, 0, 1)
    third = -(-slots // 3), len(range(1, slots, 3))
    x, weights = _random(sequences.num_cells, inputs), _weights(2 + num_states, inputs, hidden)[: 5 - num_states]
    first, received, d_sent = ([_random(n, hidden) for _ in range(num_states)] for n in (slots, *third))
    toward = _random(sequences.num_cells, hidden), _random(slots, hidden)

    def run(stage: Sequences, x: Tensor, states: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        if kind == "gru":
            out, last = gru(x, states[0], stage, *weights)
            return out, [last]
        out, (last_states,) = lstm_stack([x], [(states[0], states[1])], stage, [(weights[0], weights[1], weights[2])])
        return out, list(last_states)

    def leaves(dtype: torch.dtype) -> list[Tensor]:
        return [each.float().to(dtype).requires_grad_() for each in (x, *first, *received, *weights)]

    def split(given: list[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        return given[1 : num_states + 1], given[num_states + 1 : 2 * num_states + 1], given[2 * num_states + 1 :]

    exact = leaves(torch.float64)
    states, new, of = split(exact)
    into = torch.arange(0, slots, 3, device=DEVICE)
    out, last = run(sequences, exact[0], [h.index_copy(0, into, rows) for h, rows in zip(states, new, strict=True)], of)
    loss = (out * toward[0]).sum() + (last[0] * toward[1]).sum()
    for state, gradient in zip(last, d_sent, strict=True):
        loss = loss + (state[1::3] * gradient.float().double()).sum()
    expected = [out, last[0], *(state[1::3] for state in last), *torch.autograd.grad(loss, exact)]

    rounded = leaves(torch.float32)
    states, new, of = split(rounded)
    transfers = _Transfers(cuts, order, [each.detach() for each in new], [each.float() for each in d_sent])
    _poison()
    out, last = run(replace(sequences, transport=transfers), rounded[0], states, of)
    assert _kernel(out) or kind == "lstm"  # concatenated
    loss = (out * toward[0].float()).sum() + (last[0] * toward[1].float()).sum()
    gradients = torch.autograd.grad(loss, [rounded[0], *states, *of])
    gradients = (*gradients[: 1 + num_states], *transfers.d_received, *gradients[1 + num_states :])
    for found, right in zip([out, last[0], *transfers.sent, *gradients], expected, strict=True):
        assert _distance(found, right) < ERRORS["highest"]
    forward = [(event, stage) for stage in order for event in ("recv", "send")]
    backward = [(event, stage) for stage in reversed(order) for event in ("recv_grad", "send_grad")]
    assert transfers.events == [*forward, ("backward", 0), *backward]


def test_gru_without_cells_passes_states_and_gradients_on() -> None:
    sequences = Sequences.of([np.arange(0)] * 3, 9, DEVICE)
    x, h, *weights = (tensor.float() for tensor in _gru(sequences, 2, 8)[2])
    h.requires_grad_()
    out, last = gru(x, h, sequences, *weights)
    assert out.shape == (0, 8)
    assert torch.equal(last, h)
    (gradient,) = torch.autograd.grad(last.sum(), h)
    assert torch.equal(gradient, torch.ones_like(h))


def test_only_final_states_may_have_a_gradient() -> None:
    run, plain, given = _gru(_sequences("always"), 2, 32)
    assert _error(lambda *x: run(*x)[1:], lambda *x: plain(*x)[1:], given) < ERRORS["highest"]


def _matrix(*, weighted: bool, longest: int = 600 if INTERPRETED else 5000) -> Sparse:
    """30 × 90 with an empty row, rows of one piece and of one chunk exactly, one entry more, and many of them."""
    rng = np.random.default_rng(int(torch.randint(2**31, ())))
    degree = rng.integers(0, 6, 30)
    degree[[0, 1, 2, 3, 4, 5, 6, 29]] = np.minimum([0, 32, 33, 128, 129, 512, 513, longest], longest)
    row_ptr = np.concatenate(([0], np.cumsum(degree)))
    col = rng.integers(0, 90, int(row_ptr[-1])).astype(np.int32)
    weight = rng.normal(size=len(col)) if weighted else None
    return Sparse.vstack([(row_ptr, col, weight)], 90, dtype=torch.float64, device=DEVICE)


def _in(matrix: Sparse, dtype: torch.dtype) -> Sparse:
    weight = None if matrix.weight is None else matrix.weight.to(dtype)
    return Sparse(matrix.row_ptr, matrix.col, weight, matrix.num_cols)


def _product(width: int, *, weighted: bool = True, dtype: torch.dtype = torch.float32) -> Case:
    matrix = _in(_matrix(weighted=weighted), dtype)
    exact = _in(matrix, torch.float64)
    return lambda x: (spmm(matrix, x),), lambda x: (spmm_reference(exact, x),), [_random(90, width)]


@pytest.mark.parametrize(
    ("width", "weighted"),
    _cases(_some(1, 3, 100, 2, 16, 32, 40, 256), [True, False]),
)
def test_spmm_equals_gathering_and_adding(width: int, weighted: bool) -> None:
    assert _error(*_product(width, weighted=weighted)) < ERRORS["highest"]


@pytest.mark.parametrize("weighted", _some(True, False, least=1))
def test_leading_blocks_are_multiplied_in_place(weighted: bool) -> None:
    """The second and third have long rows."""
    matrix = _matrix(weighted=weighted)
    order = torch.argsort(matrix.rows * matrix.num_cols + matrix.col)  # ascending columns in each row
    weight = None if matrix.weight is None else matrix.weight[order].float().double()
    ascending = Sparse(matrix.row_ptr, matrix.col[order], weight, matrix.num_cols)
    scales = [_random(size).float() for size in (40, 30)]

    def blocks(dtype: torch.dtype) -> LeadingBlocks:
        sizes = [(7, 9), (30, 40), (30, 90), (0, 4), (15, 60)]
        made = [LeadingBlock(_in(ascending, dtype), *size) for size in sizes]
        made[1] = LeadingBlock(_in(ascending, dtype), 30, 40, *(scale.to(dtype) for scale in scales))
        return LeadingBlocks(tuple(made))

    exact, single = blocks(torch.float64).to_sparse(_random(0)), blocks(torch.float32)
    given = [_random(exact.num_cols, 3)]
    assert _error(lambda x: (spmm(single, x),), lambda x: (spmm_reference(exact, x),), given) < ERRORS["highest"]


@pytest.mark.parametrize("rows", [0, 3])
def test_a_matrix_without_rows_or_entries_works(rows: int) -> None:
    no_entries = np.zeros(rows + 1, np.int64), np.empty(0, np.int32), None
    matrix = Sparse.vstack([no_entries], 4, dtype=torch.float32, device=DEVICE)
    x = torch.ones(4, 5, device=DEVICE, requires_grad=True)
    _poison()
    out = spmm(matrix, x)
    assert torch.equal(out, torch.zeros(rows, 5, device=DEVICE))
    assert not torch.autograd.grad(out.sum(), x)[0].any()


@pytest.mark.parametrize(("heads", "depth"), _some((1, 1), (3, 5), (1, 64), (4, 8), (2, 32), least=2))
def test_attention_equals_gathering_scores_and_values(heads: int, depth: int) -> None:
    matrix = _matrix(weighted=False, longest=130 if INTERPRETED else 5000)
    given = [_random(30, heads, scale=3), _random(90, heads, scale=3), _random(90, heads * depth)]
    error = _error(lambda *x: (attend(matrix, *x),), lambda *x: (attend_reference(matrix, *x),), given)
    assert error < 2 * ERRORS["highest"]


@pytest.mark.parametrize(
    ("shape", "some"), _cases([(1, 1, 1), (200, 32, 2), (300, 20, 4), (130, 40, 17)], [True, False]), ids=str
)
def test_readout_equals_plain_torch(shape: tuple[int, int, int], some: bool) -> None:
    count, width, answers = shape
    rows = torch.arange(0, count, 2, device=DEVICE) if some else None
    given = [_random(count, width), _random(answers, width), _random(answers)]
    error = _error(
        lambda z, w, b: (readout(z, w, b, rows),), lambda z, w, b: (readout_reference(z, w, b, rows),), given
    )
    assert error < ERRORS["highest"]


@pytest.fixture
def _two_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs run through all tiles in backward, several each."""
    from strobe.ops.triton import linear, readout, time_attention

    for kernels in (linear, readout, time_attention):
        monkeypatch.setattr(kernels, "PROGRAMS", 2)
        monkeypatch.setattr(kernels, "num_multiprocessors", lambda _: 1)


def _linear(count: int, inputs: int, outputs: int, *, relu: bool = False, biased: bool = True) -> Case:
    """A linear map, plain torch in float64; integers where signs decide, so that rounding cannot change them."""
    given = [_random(count, inputs), _random(outputs, inputs), *[_random(outputs)] * biased]
    given = [each.round() for each in given] if relu else given

    def run(*given: Tensor) -> tuple[Tensor, ...]:
        return (linear(*given, relu=relu),)

    return run, run, given


@pytest.mark.parametrize(
    ("columns", "count", "relu", "biased", "exact"),
    _cases(
        _some((1, 1), (3, 33), (64, 32), (33, 3), (32, 96), (32, 32)),
        _some(0, 1, 130, 65),
        [True, False],
        [True, False],
        EXACT,
    ),
    ids=str,
)
@pytest.mark.usefixtures("_two_programs")
def test_linear_equals_plain_torch(columns: tuple[int, int], count: int, relu: bool, biased: bool, exact: str) -> None:
    torch.set_float32_matmul_precision(exact)
    case = _linear(count, *columns, relu=relu, biased=biased)
    assert _error(*case, kernel="_Linear") < ERRORS[exact]


def test_linear_of_every_other_column_without_a_gradient_equals_plain_torch() -> None:
    x = _random(65, 64).float()[:, ::2]
    run, _, (_, *weights) = _linear(65, 32, 8)
    assert _error(lambda *w: run(x.to(w[0].dtype), *w), lambda *w: run(x.double(), *w), weights) < ERRORS["highest"]


def test_relu_of_nan_is_nan() -> None:
    x = torch.full((1, 2), torch.nan, device=DEVICE)
    assert linear(x, torch.ones(3, 2, device=DEVICE), relu=True).isnan().all()


def _feed_forward(count: int, width: int, *, shifted: bool = True) -> Case:
    """Integers where signs decide, so that rounding cannot change them."""
    y, weight, bias = _random(count, width).round(), _random(width, width).round(), _random(width).round()
    given = [y, _random(count, width), weight, bias, *[_random(width)] * shifted]
    return lambda *given: (feed_forward(*given),), lambda *given: (feed_forward_reference(*given),), given


@pytest.mark.parametrize(
    ("count", "width", "shifted", "exact"),
    _cases([0, 1, 65], _some(1, 20, 32, 64, least=2), [True, False], EXACT),
    ids=str,
)
@pytest.mark.usefixtures("_two_programs")
def test_feed_forward_equals_plain_torch(count: int, width: int, shifted: bool, exact: str) -> None:
    torch.set_float32_matmul_precision(exact)
    case = _feed_forward(count, width, shifted=shifted)
    assert _error(*case, kernel="_FeedForward") < ERRORS[exact]


def test_feed_forward_of_bfloat16_and_float32_is_float32() -> None:
    y, x, *weights = (each.float() for each in _feed_forward(65, 32)[2])
    leaves = [y.bfloat16().requires_grad_(), x.requires_grad_()]
    out = feed_forward(*leaves, *weights)
    torch.testing.assert_close(out, feed_forward_reference(y, x, *weights))
    gradients = torch.autograd.grad(out.sum(), leaves)
    assert [each.dtype for each in (out, *gradients)] == [torch.float32, torch.bfloat16, torch.float32]


def _segment_readout(counts: tuple[int, ...], inputs: int, outputs: int, answers: int) -> Case:
    """A readout of products, plain torch in float64; integers where signs decide."""
    ptr = tuple(np.cumsum([0, *counts]).tolist())
    given = [_random(ptr[-1], inputs).round(), _random(len(counts), inputs, outputs).round()]
    given += [_random(answers, outputs), _random(answers)]

    def run(x: Tensor, matrices: Tensor, *head: Tensor) -> tuple[Tensor, ...]:
        return (segment_readout(x, matrices, ptr, *head),)

    return run, run, given


@pytest.mark.parametrize(
    ("counts", "columns", "answers", "exact"),
    _cases([(65, 0, 3, 130), (1,), (0, 0), ()], _some((3, 33), (1, 1), (32, 32), (64, 20)), [1, 2, 3, 4], EXACT),
    ids=str,
)
@pytest.mark.usefixtures("_two_programs")
def test_segment_readout_equals_plain_torch(
    counts: tuple[int, ...], columns: tuple[int, int], answers: int, exact: str
) -> None:
    torch.set_float32_matmul_precision(exact)
    case = _segment_readout(counts, *columns, answers)
    assert _error(*case, kernel="_SegmentReadout") < ERRORS[exact]


def test_segment_readout_without_a_gradient_of_rows_has_the_same_other_gradients() -> None:
    run, _, given = _segment_readout((130, 40), 32, 32, 2)
    x, *leaves = (tensor.float().requires_grad_() for tensor in given)
    outs = [run(rows, *leaves)[0] for rows in (x, x.detach())]
    assert all(map(torch.equal, *(torch.autograd.grad(out.square().sum(), leaves) for out in outs)))


@pytest.mark.parametrize(("snapshots", "by_kernel"), [(65_535, True), (65_536, False)])
def test_more_snapshots_than_a_launch_has_room_for_run_in_plain_torch(snapshots: int, by_kernel: bool) -> None:
    run, _, given = _segment_readout((0,) * snapshots, 1, 1, 1)
    (out,) = run(*(tensor.float().requires_grad_() for tensor in given))
    assert (_kernel(out) == "_SegmentReadout") == by_kernel


HEADS = _some((1, 1), (3, 5), (4, 8), (2, 16))
LOOKS = [(None, 0), (1, 0), (3, 0), (None, 2), (3, 2 if INTERPRETED else 4)]
"""Spans, and snapshots that are past."""


def _time_attention(
    sequences: Sequences,
    heads: int,
    depth: int,
    span: int | None = None,
    past: int = 0,
    positions: int | None = None,
    *,
    packed: bool = False,
) -> Case:
    """Attention over time, plain torch in float64, which reads separate queries, keys and values."""
    cells, width, begin = sequences.num_cells, heads * depth, sequences.cell_ptr[past]
    rows = [_random(cells - begin, width, scale=2), _random(cells, width), _random(cells, width)]
    rows = [_random(cells, 3 * width)] if packed else rows
    given = [*rows, *(_random(positions, width) for _ in range(2) if positions)]

    def run(*given: Tensor) -> tuple[Tensor, ...]:
        rows, tables = given[:-2] if positions else given, given[-2:] if positions else ()
        pair = (tables[0], tables[1]) if tables else None
        return (time_attention(rows, sequences, heads, span=span, past=past, positions=pair),)

    def plain(qkv: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
        q, k, v = qkv.chunk(3, 1)
        return run(q[begin:], k, v, *tables)

    return run, plain if packed else run, given


@pytest.mark.parametrize(
    ("heads", "presence", "look", "positions", "packed"),
    _cases(HEADS, ["always", "gaps", "few"], LOOKS, _some(None, 2, 16, 3), [True, False]),
    ids=str,
)
@pytest.mark.usefixtures("_two_programs")
def test_attention_over_time_equals_plain_torch(
    heads: tuple[int, int], presence: str, look: tuple[int | None, int], positions: int | None, packed: bool
) -> None:
    case = _time_attention(_sequences(presence), *heads, *look, positions, packed=packed)
    assert _error(*case, kernel="_TimeAttention") < 2 * ERRORS["highest"]


@pytest.mark.parametrize(("nodes", "snapshots"), [(1, 1), (2, 33), (0, 3), (3, 0)])
def test_attention_over_time_of_very_few_or_many_snapshots_works(nodes: int, snapshots: int) -> None:
    case = _time_attention(Sequences.of([np.arange(nodes)] * snapshots, nodes, DEVICE), 2, 4, positions=5)
    assert _error(*case, kernel="_TimeAttention") < 2 * ERRORS["highest"]


@pytest.mark.parametrize(
    "make",
    [
        *(partial(_linear, 3, *columns) for columns in ((129, 4), (4, 129), (96, 96))),
        *(partial(_segment_readout, (3, 2), *sizes) for sizes in ((129, 4, 1), (96, 96, 1), (4, 4, 5))),
    ],
)
def test_sizes_without_kernels_run_in_plain_torch(make: Callable[[], Case]) -> None:
    run, _, given = make()
    assert _error(*make()) < ERRORS["highest"]
    assert _kernel(run(*(tensor.float().requires_grad_() for tensor in given))[0]) in (None, "_Readout")


def test_attention_over_time_without_kernels_runs_in_plain_torch() -> None:
    long = Sequences.of([np.arange(2)] * 40, 2, DEVICE)
    rare = Sequences.of([np.arange(t == 0) for t in range(9)], 1, DEVICE)

    def by_kernel(*sizes: Any, **options: Any) -> bool:
        run, _, given = _time_attention(*sizes, **options)
        return _kernel(run(*(tensor.float().requires_grad_() for tensor in given))[0]) is not None

    assert not by_kernel(long, 4, 64)
    assert by_kernel(long, 4, 64, span=32, past=39)
    assert not by_kernel(rare, 4, 8)
    q = _random(80, 8).float().requires_grad_()
    assert type(time_attention((q, q, q), long, 2, dropout=0.5).grad_fn).__name__ == "_PiecesBackward"


OPS: dict[str, Callable[..., Case]] = {
    **{f"gru, {kind}": lambda kind=kind: _gru(_sequences(kind), 2, 32) for kind in _some(*PRESENCES, least=1)},
    **{
        f"readout, {kind}": lambda kind=kind: _gru_readout(_sequences(kind), 2, 32)
        for kind in _some(*PRESENCES, least=1)
    },
    "spmm": partial(_product, 32),
    "linear": partial(_linear, 65, 32, 33, relu=True),
    "segment_readout": partial(_segment_readout, (65, 70), 32, 32, 2),
    "time_attention": lambda: _time_attention(_sequences("gaps"), 4, 8, positions=3),
}


@pytest.mark.parametrize("op", OPS)
def test_rows_stored_as_bfloat16_are_summed_in_float32(op: str) -> None:
    case = _product(32, dtype=torch.bfloat16) if op == "spmm" else OPS[op]()
    limit = 1e-2 if op == "spmm" else ERRORS["bfloat16"]  # results are rounded once, pieces of long rows before
    assert _error(*case, torch.bfloat16) < limit


@pytest.mark.parametrize("op", ["linear"] if INTERPRETED else list(OPS))
def test_runs_repeat_to_the_bit(op: str) -> None:
    run, _, given = OPS[op]()
    leaves = [tensor.float().requires_grad_() for tensor in given]
    both = []
    for _ in range(2):
        out = run(*leaves)
        loss = torch.stack([part.square().sum() for part in out]).sum()
        both.append([*out, *torch.autograd.grad(loss, leaves)])
    assert all(map(torch.equal, *both))


@pytest.mark.parametrize(
    ("model", "rows"),
    _some(
        *(("dysat", "float32"), ("wd-gcn", "bf16"), ("tgcn", "bf16"), ("mpnn-lstm", "float32"), ("gat-lstm", "bf16")),
        least=2,
    ),
)
def test_models_train_with_kernels_as_without(model: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots, window, epochs = (4, 2, 1) if INTERPRETED else (8, 3, 2)
    graph = Social(nodes=20, snapshots=snapshots, edges=60, away=0.2, communities=2).write()
    given: dict[str, Any] = {"epochs": epochs, "window": window, "device": DEVICE.type, "model_options": {"hidden": 8}}
    given |= {"optimizer": "sgd", "lr": 0.05}  # Adam amplifies gradients that are nothing but rounding
    with_kernels = strobe.train(graph, model, "regression", precision=rows, **given)
    monkeypatch.setattr(triton, "usable", lambda *tensors: False)
    without = strobe.train(graph, model, "regression", **given)
    first, second = ([line["loss"] for line in run.history] for run in (with_kernels, without))
    assert first == pytest.approx(second, rel=1e-5 if rows == "float32" else 0.03)
