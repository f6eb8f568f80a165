"""The GPU kernels against plain torch in float64: fresh random inputs, memory full of NaN, awkward shapes.

They need a GPU, or Triton's interpreter: ``TRITON_INTERPRET=1 python -m pytest tests/ops/test_triton.py``, which is
what test_interpreted.py runs where there is no GPU: smaller shapes, and every pair of options, not all combinations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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
from strobe.ops.time.attention import time_attention, time_attention_qkvpacked
from strobe.ops.time.gru import gru, gru_readout, gru_step
from strobe.ops.time.lstm import lstm_stack, lstm_stack_readout, lstm_stack_reference
from strobe.ops.time.recurrent import run_reference
from strobe.ops.time.sequences import Sequences

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
if not triton.available() or not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("the kernels need Triton and a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

Run = Callable[..., tuple[Tensor, ...]]
ERRORS = {"highest": 1e-5, "high": 1e-2, "bfloat16": 3e-2}
"""Of norms, of results and all gradients: products as exact as float32, products in TF32, rows stored as bfloat16."""

SHARE = 1e-2
"""Of the largest norm among results and gradients: a gradient's error is measured against no less."""


def _cases(*axes: list[Any]) -> list[tuple[Any, ...]]:
    """All combinations of options; by the interpreter so many that every two options meet."""
    left = list(product(*axes))
    if not INTERPRETED:
        return left
    cases, met = [], set[tuple[Any, ...]]()
    while left:
        case = max(left, key=lambda each: len(_pairs(each) - met))
        cases.append(case)
        met |= _pairs(case)
        left = [each for each in left if _pairs(each) - met]
    return cases


def _pairs(case: tuple[Any, ...]) -> set[tuple[Any, ...]]:
    return set(combinations(enumerate(case), 2))


@pytest.fixture(autouse=True)
def _drawn(request: pytest.FixtureRequest) -> None:
    """Fresh random numbers on a GPU; by the interpreter, which is to say the same of the same code, those of a test."""
    torch.manual_seed(crc32(request.node.name.encode()) if INTERPRETED else torch.seed())


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture(autouse=True)
def _poisoned() -> Iterator[None]:
    """On the CPU torch itself fills memory that it hands out with NaN."""
    torch.use_deterministic_algorithms(DEVICE.type == "cpu")
    yield
    torch.use_deterministic_algorithms(False)


def _poison() -> None:
    """Fills memory of the GPU that is about to be handed out with NaN."""
    if DEVICE.type == "cuda":
        blocks = [torch.full((1 << size,), torch.nan, device=DEVICE) for size in range(6, 20) for _ in range(4)]
        del blocks


def _error(run: Run, plain: Run, given: list[Tensor], dtype: torch.dtype = torch.float32) -> float:
    """The largest error of results and gradients, relative to those of plain torch in float64.

    Gradients that cancel are rounded all the same: where a cell sees itself alone, those of queries and keys are 0, and
    what is found is the rounding of what cancelled. So a gradient is judged against a share of the largest norm at
    least: one that is smaller hardly matters beside the others, which go through the same sums.
    """
    results, seed = [], int(torch.randint(2**31, ()))
    for each, kind in ((run, dtype), (plain, torch.float64)):
        leaves = [tensor.to(dtype).to(kind).requires_grad_() for tensor in given]
        _poison()
        out = each(*leaves)
        draws = torch.Generator().manual_seed(seed)
        towards = [torch.randn(part.shape, generator=draws).to(DEVICE, dtype).double() for part in out]
        loss = torch.stack([(part.double() * to).sum() for part, to in zip(out, towards, strict=True)]).sum()
        _poison()
        results.append([*out, *torch.autograd.grad(loss, leaves, materialize_grads=True)])
    largest = max(float(right.detach().norm()) for right in results[1])
    least = [0.0] * len(out) + [SHARE * largest] * len(given)
    return max(map(_apart, *results, least))


def _apart(found: Tensor, right: Tensor, least: float = 0.0) -> float:
    """How far off it is, relative to what is right, or to ``least`` where that is more."""
    assert found.shape == right.shape
    distance = (found.detach().double() - right.detach()).norm() / right.detach().norm().clamp(min=max(least, 1e-9))
    return float("inf") if bool(distance.isnan()) else float(distance)


def _random(*shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, device=DEVICE)


def _sequences(kind: str, fewer: int = 2) -> Sequences:
    """Sequences of over a hundred nodes; by the interpreter of so many times fewer."""
    rng = np.random.default_rng(int(torch.randint(2**31, ())))
    sizes = {"everybody": (150, 5, 1.0), "gaps": (150, 6, 0.7), "few": (130, 9, 0.3), "lanes": (200, 12, 0.1)}
    sizes["nobody"] = (9, 3, 0.0)
    nodes, snapshots, share = sizes[kind]
    nodes = nodes // fewer if INTERPRETED else nodes
    shots = [np.flatnonzero(rng.random(nodes) < share) for _ in range(snapshots)]
    return Sequences.of(shots, nodes, DEVICE)


PRESENCES = ["everybody", "gaps", "lanes"]
WIDTHS = [(1, 3), (2, 32), (3, 17), (20, 16), (64, 32)]
EXACT = ["highest", "high"]


@pytest.mark.parametrize(
    ("width", "presence", "reset_state", "exact"), _cases(WIDTHS, PRESENCES, [True, False], EXACT), ids=str
)
def test_a_gru_equals_plain_torch(width: tuple[int, int], presence: str, reset_state: bool, exact: str) -> None:
    torch.set_float32_matmul_precision(exact)
    inputs, hidden = width
    sequences = _sequences(presence)
    given = [_random(sequences.num_cells, inputs), _random(sequences.num_slots, hidden), *_weights(3, inputs, hidden)]

    def run(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return gru(x, h, sequences, *weights, reset_state=reset_state)

    def plain(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        out, (last,) = run_reference(partial(gru_step, weights, reset_state), x, (h,), sequences)
        return out, last

    assert _error(run, plain, given) < ERRORS[exact]


@pytest.mark.parametrize(
    ("width", "presence", "reset_state", "answers", "begins"),
    _cases(WIDTHS, PRESENCES, [True, False], [1, 2, 4, 5], ["anywhere", "at zero"]),
    ids=str,
)
def test_answers_of_a_gru_equal_a_readout_of_its_states(
    width: tuple[int, int], presence: str, reset_state: bool, answers: int, begins: str
) -> None:
    torch.set_float32_matmul_precision("highest")  # or other states than in float64 would be positive
    inputs, hidden = width
    sequences = _sequences(presence)

    def drawn() -> list[Tensor]:
        given = [_random(sequences.num_cells, inputs), _random(sequences.num_slots, hidden)]
        return [*given, *_weights(3, inputs, hidden)[:3], _random(answers, hidden), _random(answers)]

    def run(x: Tensor, h: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        weights, head = (rest[0], rest[1], rest[2]), (rest[3], rest[4])
        first = h if begins == "anywhere" else None
        return gru_readout(x, first, sequences, weights, head, reset_state=reset_state)

    def states(x: Tensor, h: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        weights, first = (*rest[:3], torch.zeros_like(rest[2])), h if begins == "anywhere" else torch.zeros_like(h)
        out, (last,) = run_reference(partial(gru_step, weights, reset_state), x, (first,), sequences)
        return out, last

    def plain(*given: Tensor) -> tuple[Tensor, ...]:
        out, last = states(*given)
        return readout_reference(out, *given[5:]), last

    assert _error(run, plain, _off_zero(drawn, states)) < ERRORS["highest"]


def _off_zero(drawn: Callable[[], list[Tensor]], states: Run) -> list[Tensor]:
    """Inputs of which no state comes so near zero that rounding could make it positive, or not."""
    while True:
        given = drawn()
        out = states(*(tensor.float().double() for tensor in given))[0]
        if not len(out) or float(out.abs().min()) > 1e-6:
            return given


@pytest.mark.parametrize("presence", PRESENCES)
def test_answers_in_tf32_are_those_of_the_same_states(presence: str) -> None:
    torch.set_float32_matmul_precision("high")
    sequences = _sequences(presence)
    given = [_random(sequences.num_cells, 2), *_weights(3, 2, 32)[:3], _random(2, 32), _random(2)]
    results = []
    for fused in (True, False):
        x, *rest = (tensor.float().requires_grad_() for tensor in given)
        weights, head = (rest[0], rest[1], rest[2]), (rest[3], rest[4])
        if fused:
            said, _ = gru_readout(x, None, sequences, weights, head, reset_state=True)
        else:
            said = readout(gru(x, None, sequences, *weights, reset_state=True)[0], *head)
        results.append([said, *torch.autograd.grad(said.square().sum(), [x, *rest])])
    for one, other in zip(*results, strict=True):
        assert _apart(one, other.double()) < 1e-3


@pytest.mark.parametrize(
    ("width", "presence", "exact"), _cases(WIDTHS[::2] if INTERPRETED else WIDTHS, PRESENCES, EXACT), ids=str
)
def test_a_stack_of_lstms_equals_plain_torch(width: tuple[int, int], presence: str, exact: str) -> None:
    torch.set_float32_matmul_precision(exact)
    inputs, hidden = width
    sequences = _sequences(presence)
    cells, slots = sequences.num_cells, sequences.num_slots

    def drawn() -> list[Tensor]:
        given = [_random(cells, inputs), _random(cells, 2), *(_random(slots, hidden) for _ in range(4))]
        return [*given, *_weights(4, inputs, hidden)[:3], *_weights(4, hidden, hidden)[:3]]

    def stack(run: Any, x: Tensor, extra: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        states, layers = [rest[:2], rest[2:4]], [rest[4:7], rest[7:10]]
        out, lasts = run([x], states, sequences, layers, extra_columns=extra)
        return out, *(each for last in lasts for each in last)

    plain = partial(stack, lstm_stack_reference)
    given = _off_zero(drawn, plain)
    assert _error(partial(stack, lstm_stack), plain, given) < ERRORS[exact]
    if exact != "highest":
        return  # other states than in float64 would be positive

    def answered(x: Tensor, extra: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        states, layers, head = [rest[:2], rest[2:4]], [rest[4:7], rest[7:10]], (rest[10], rest[11])
        out, lasts = lstm_stack_readout([x], states, sequences, layers, head, extra_columns=extra)  # type: ignore[arg-type]
        return out, *(each for last in lasts for each in last)

    def plainly(*given: Tensor) -> tuple[Tensor, ...]:
        out, *lasts = plain(*given)
        return readout_reference(out, *given[12:]), *lasts

    given += [_random(2, 2 * hidden + 2), _random(2)]
    assert _error(answered, plainly, given) < ERRORS[exact]


def _weights(gates: int, inputs: int, hidden: int) -> list[Tensor]:
    wide = _random(gates * hidden, inputs, scale=inputs**-0.5), _random(gates * hidden, hidden, scale=hidden**-0.5)
    return [*wide, _random(gates * hidden), _random(gates * hidden)]


@pytest.mark.parametrize("presence", PRESENCES)
def test_rows_stored_as_bfloat16_are_added_up_in_float32(presence: str) -> None:
    sequences = _sequences(presence)
    given = [_random(sequences.num_cells, 2), _random(sequences.num_slots, 32), *_weights(3, 2, 32)]

    def run(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return gru(x, h, sequences, *weights, reset_state=True)

    def plain(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        out, (last,) = run_reference(partial(gru_step, weights, True), x, (h,), sequences)
        return out, last

    assert _error(run, plain, given, torch.bfloat16) < ERRORS["bfloat16"]

    def answered(x: Tensor, h: Tensor, weight: Tensor, bias: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return gru_readout(x, h, sequences, (weights[0], weights[1], weights[2]), (weight, bias), reset_state=True)

    def plainly(x: Tensor, h: Tensor, weight: Tensor, bias: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        out, last = plain(x, h, *weights[:3], torch.zeros_like(weights[2]))
        return readout_reference(out, weight, bias), last

    given[2:2] = [_random(2, 32), _random(2)]
    assert _error(answered, plainly, given[:-1], torch.bfloat16) < ERRORS["bfloat16"]


def test_a_stage_without_cells_hands_states_on() -> None:
    sequences = _sequences("nobody")
    given = [_random(0, 2), _random(sequences.num_slots, 8), *_weights(3, 2, 8)]
    h = given[1].float().requires_grad_()
    out, last = gru(given[0].float(), h, sequences, *(weight.float() for weight in given[2:]))
    assert out.shape == (0, 8)
    assert torch.equal(last, h)
    (gradient,) = torch.autograd.grad(last.sum(), h)
    assert torch.equal(gradient, torch.ones_like(h))


def test_only_last_states_may_have_a_gradient() -> None:
    sequences = _sequences("everybody")
    given = [_random(sequences.num_cells, 2), _random(sequences.num_slots, 32), *_weights(3, 2, 32)]

    def run(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return gru(x, h, sequences, *weights, reset_state=True)[1:]

    def plain(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return run_reference(partial(gru_step, weights, True), x, (h,), sequences)[1]

    assert _error(run, plain, given) < ERRORS["highest"]


def _matrix(*, weighted: bool) -> Sparse:
    """60 × 90 with an empty row, rows of one piece exactly, of one chunk exactly, one entry more, and many of them."""
    rng = np.random.default_rng(int(torch.randint(2**31, ())))
    degree = rng.integers(0, 6, 60)
    degree[[0, 1, 2, 3, 4, 5, 6, 59]] = [0, 32, 33, 128, 129, 512, 513, 1200 if INTERPRETED else 5000]
    row_ptr = np.concatenate(([0], np.cumsum(degree)))
    col = rng.integers(0, 90, int(row_ptr[-1])).astype(np.int32)
    weight = rng.normal(size=len(col)) if weighted else None
    return Sparse.vstack([(row_ptr, col, weight)], 90, dtype=torch.float64, device=DEVICE)


def _in(matrix: Sparse, dtype: torch.dtype) -> Sparse:
    weight = None if matrix.weight is None else matrix.weight.to(dtype)
    return Sparse(matrix.row_ptr, matrix.col, weight, matrix.num_cols)


@pytest.mark.parametrize("width", [1, 3, 32, 100] if INTERPRETED else [1, 2, 3, 16, 32, 40, 100, 256])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_product_equals_gathering_and_adding(width: int, weighted: bool) -> None:
    matrix = _matrix(weighted=weighted)
    single = _in(matrix, torch.float32)
    exact = _in(single, torch.float64)
    error = _error(lambda x: (spmm(single, x),), lambda x: (spmm_reference(exact, x),), [_random(90, width)])
    assert error < ERRORS["highest"]


def test_the_product_of_bfloat16_is_added_up_in_float32() -> None:
    matrix = _in(_matrix(weighted=True), torch.bfloat16)
    exact = _in(matrix, torch.float64)
    error = _error(
        lambda x: (spmm(matrix, x),), lambda x: (spmm_reference(exact, x),), [_random(90, 32)], torch.bfloat16
    )
    assert error < 1e-2  # results are rounded once, and pieces of long rows before they are joined


def test_the_same_product_has_the_same_bits() -> None:
    matrix, x = _in(_matrix(weighted=True), torch.float32), _random(90, 32).float()
    assert torch.equal(spmm(matrix, x), spmm(matrix, x))


@pytest.mark.parametrize("weighted", [True, False])
def test_corners_are_multiplied_where_they_stand(weighted: bool) -> None:
    """The second and third have long rows."""
    square = _ascending(_matrix(weighted=weighted))
    scales = [_random(size).float() for size in (40, 60)]
    sizes = [(7, 9), (60, 40), (60, 90), (0, 4), (30, 60)]

    def corners(dtype: torch.dtype) -> LeadingBlocks:
        blocks = [LeadingBlock(_in(square, dtype), *size) for size in sizes]
        blocks[1] = LeadingBlock(_in(square, dtype), 60, 40, *(scale.to(dtype) for scale in scales))
        return LeadingBlocks(tuple(blocks))

    exact = corners(torch.float64).to_sparse(_random(0))
    error = _error(
        lambda x: (spmm(corners(torch.float32), x),),
        lambda x: (spmm_reference(exact, x),),
        [_random(exact.num_cols, 3)],
    )
    assert error < ERRORS["highest"]


def _ascending(matrix: Sparse) -> Sparse:
    """The same matrix, columns in order in each row."""
    order = torch.argsort(matrix.rows * matrix.num_cols + matrix.col)
    weight = None if matrix.weight is None else matrix.weight[order].float().double()
    return Sparse(matrix.row_ptr, matrix.col[order], weight, matrix.num_cols)


def test_a_matrix_without_rows_or_entries_works() -> None:
    for rows in (0, 3):
        nothing = np.zeros(rows + 1, np.int64), np.empty(0, np.int32), None
        matrix = Sparse.vstack([nothing], 4, dtype=torch.float32, device=DEVICE)
        x = torch.ones(4, 5, device=DEVICE, requires_grad=True)
        _poison()
        out = spmm(matrix, x)
        assert torch.equal(out, torch.zeros(rows, 5, device=DEVICE))
        assert not torch.autograd.grad(out.sum(), x)[0].any()


@pytest.mark.parametrize(("heads", "depth"), [(1, 1), (3, 5), (1, 64)] + [(4, 8), (2, 32)] * (not INTERPRETED))
def test_attention_equals_gathering_scores_and_values(heads: int, depth: int) -> None:
    matrix = _matrix(weighted=False)
    given = [_random(60, heads, scale=3), _random(90, heads, scale=3), _random(90, heads * depth)]
    error = _error(lambda *x: (attend(matrix, *x),), lambda *x: (attend_reference(matrix, *x),), given)
    assert error < 2 * ERRORS["highest"]


@pytest.mark.parametrize(("count", "width", "answers"), [(1, 1, 1), (200, 32, 2), (300, 20, 4), (130, 40, 17)])
@pytest.mark.parametrize("some", [True, False])
def test_the_readout_equals_plain_torch(count: int, width: int, answers: int, some: bool) -> None:
    rows = torch.arange(0, count, 2, device=DEVICE) if some else None
    given = [_random(count, width), _random(answers, width), _random(answers)]
    error = _error(
        lambda z, *w: (readout(z, w[0], w[1], rows),), lambda z, *w: (readout_reference(z, w[0], w[1], rows),), given
    )
    assert error < ERRORS["highest"]


@pytest.mark.parametrize(
    ("columns", "count", "relu", "biased", "exact"),
    _cases(
        [(1, 1), (3, 33), (33, 3), (32, 96), (64, 32), (32, 32)], [0, 1, 65, 130], [True, False], [True, False], EXACT
    ),
    ids=str,
)
@pytest.mark.usefixtures("_two_programs")
def test_linear_maps_equal_plain_torch(
    columns: tuple[int, int], count: int, relu: bool, biased: bool, exact: str
) -> None:
    torch.set_float32_matmul_precision(exact)
    run, given = _mapped(count, *columns, relu=relu, biased=biased)
    assert _by_kernel(run, given)
    assert _error(run, run, given) < ERRORS[exact]


def _mapped(
    count: int, inputs: int, outputs: int, *, relu: bool = False, biased: bool = True
) -> tuple[Run, list[Tensor]]:
    """A linear map, which is plain torch in float64, and what it is given; whole numbers where signs decide, which
    rounding is not to change."""
    given = [_random(count, inputs), _random(outputs, inputs), *[_random(outputs)] * biased]
    given = [each.round() for each in given] if relu else given
    return lambda *given: (linear(*given, relu=relu),), given


def test_linear_maps_of_bfloat16_are_added_up_in_float32() -> None:
    run, given = _mapped(65, 32, 33)
    assert _error(run, run, given, torch.bfloat16) < ERRORS["bfloat16"]


def test_linear_maps_of_every_other_column_without_a_gradient_equal_plain_torch() -> None:
    x = _random(65, 64).float()[:, ::2]
    run, (_, *weights) = _mapped(65, 32, 8)
    assert _error(lambda *w: run(x.to(w[0].dtype), *w), lambda *w: run(x.double(), *w), weights) < ERRORS["highest"]


def test_linear_maps_and_their_gradients_have_the_same_bits() -> None:
    run, given = _mapped(130, 32, 32, relu=True)
    leaves = [tensor.float().requires_grad_() for tensor in given]
    both = []
    for _ in range(2):
        (out,) = run(*leaves)
        both.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    assert all(map(torch.equal, *both))


def test_a_positive_part_of_what_is_no_number_is_none() -> None:
    x = torch.full((1, 2), torch.nan, device=DEVICE)
    assert linear(x, torch.ones(3, 2, device=DEVICE), relu=True).isnan().all()


def test_linear_maps_that_kernels_are_not_made_for_are_plain_torch() -> None:
    for columns in ((129, 4), (4, 129), (96, 96)):
        run, given = _mapped(3, *columns)
        assert not _by_kernel(run, given)
        assert _error(run, run, given) < ERRORS["highest"]


@pytest.mark.parametrize(
    ("count", "width", "shifted", "exact"), _cases([0, 1, 65], [1, 20, 32, 64], [True, False], EXACT), ids=str
)
@pytest.mark.usefixtures("_two_programs")
def test_a_feed_forward_layer_equals_plain_torch(count: int, width: int, shifted: bool, exact: str) -> None:
    torch.set_float32_matmul_precision(exact)
    given = _fed_forward(count, width, shifted=shifted)

    def run(*given: Tensor) -> tuple[Tensor, ...]:
        return (feed_forward(*given),)

    assert _by_kernel(run, given)
    assert _error(run, lambda *given: (feed_forward_reference(*given),), given) < ERRORS[exact]


def _fed_forward(count: int, width: int, *, shifted: bool = True) -> list[Tensor]:
    """What a layer is given; whole numbers where signs decide, which rounding is not to change."""
    y, weight, bias = _random(count, width).round(), _random(width, width).round(), _random(width).round()
    return [y, _random(count, width), weight, bias, *[_random(width)] * shifted]


def test_a_feed_forward_layer_of_bfloat16_and_float32_is_float32() -> None:
    y, x, *weights = (each.float() for each in _fed_forward(65, 32))
    leaves = [y.bfloat16().requires_grad_(), x.requires_grad_()]
    out = feed_forward(*leaves, *weights)
    torch.testing.assert_close(out, feed_forward_reference(y, x, *weights))
    gradients = torch.autograd.grad(out.sum(), leaves)
    assert [each.dtype for each in (out, *gradients)] == [torch.float32, torch.bfloat16, torch.float32]


@pytest.mark.parametrize(
    ("counts", "columns", "answers", "exact"),
    _cases([(65, 0, 3, 130), (1,), (0, 0), ()], [(1, 1), (3, 33), (32, 32), (64, 20)], [1, 2, 3, 4], EXACT),
    ids=str,
)
@pytest.mark.usefixtures("_two_programs")
def test_answers_of_products_of_snapshots_equal_plain_torch(
    counts: tuple[int, ...], columns: tuple[int, int], answers: int, exact: str
) -> None:
    torch.set_float32_matmul_precision(exact)
    run, given = _of_products(counts, *columns, answers)
    assert _by_kernel(run, given)
    assert _error(run, run, given) < ERRORS[exact]


def _of_products(counts: tuple[int, ...], inputs: int, outputs: int, answers: int) -> tuple[Run, list[Tensor]]:
    """Answers, which are plain torch's in float64, and what they are of; whole numbers where signs decide."""
    ptr = tuple(np.cumsum([0, *counts]).tolist())
    given = [_random(ptr[-1], inputs).round(), _random(len(counts), inputs, outputs).round()]
    given += [_random(answers, outputs), _random(answers)]
    return lambda x, matrices, *head: (segment_readout(x, matrices, ptr, *head),), given


def test_answers_of_products_of_bfloat16_are_added_up_in_float32() -> None:
    run, given = _of_products((65, 70), 32, 32, 2)
    assert _error(run, run, given, torch.bfloat16) < ERRORS["bfloat16"]


def test_answers_of_products_have_the_same_bits_and_only_the_gradients_that_are_wanted() -> None:
    run, given = _of_products((130, 40), 32, 32, 2)
    x, *leaves = (tensor.float().requires_grad_() for tensor in given)
    both = []
    for rows in (x, x.detach()):
        (out,) = run(rows, *leaves)
        both.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    assert all(map(torch.equal, *both))


def test_products_of_snapshots_that_kernels_are_not_made_for_are_plain_torch() -> None:
    for inputs, outputs, answers in ((129, 4, 1), (96, 96, 1), (4, 4, 5)):
        run, given = _of_products((3, 2), inputs, outputs, answers)
        (out,) = run(*(tensor.float().requires_grad_() for tensor in given))
        assert type(out.grad_fn).__name__ != "_SegmentReadoutBackward"
        assert _error(run, run, given) < ERRORS["highest"]


def test_products_of_more_snapshots_than_a_launch_has_room_for_are_plain_torch() -> None:
    for snapshots, by_kernel in ((65_535, True), (65_536, False)):
        given = [torch.zeros(0, 1), torch.zeros(snapshots, 1, 1), torch.zeros(1, 1), torch.zeros(1)]
        x, matrices, *head = (each.to(DEVICE).requires_grad_() for each in given)
        said = segment_readout(x, matrices, [0] * (snapshots + 1), *head)
        assert (type(said.grad_fn).__name__ == "_SegmentReadoutBackward") == by_kernel


HEADS = [(1, 1), (4, 8), (3, 5), (2, 16)]
LOOKS = [(None, 0), (1, 0), (3, 0), (None, 2), (3, 4)]
"""Spans, and snapshots that are past."""


@pytest.mark.parametrize(
    ("heads", "presence", "look", "positions"),
    _cases(HEADS, ["everybody", "gaps", "few"], LOOKS, [None, 2, 3, 16]),
    ids=str,
)
@pytest.mark.usefixtures("_two_programs")
def test_attention_over_time_equals_plain_torch(
    heads: tuple[int, int], presence: str, look: tuple[int | None, int], positions: int | None
) -> None:
    run, given = _looking_back(_sequences(presence, 7), *heads, *look, positions)
    assert _by_kernel(run, given)
    assert _error(run, run, given) < 2 * ERRORS["highest"]


@pytest.mark.parametrize(
    ("presence", "look", "positions"), _cases(["everybody", "gaps"], [(None, 0), (3, 4)], [None, 3]), ids=str
)
@pytest.mark.usefixtures("_two_programs")
def test_attention_over_time_reads_queries_keys_and_values_where_they_stand(
    presence: str, look: tuple[int | None, int], positions: int | None
) -> None:
    sequences, (span, past) = _sequences(presence, 7), look
    plain, (_, k, _, *tables) = _looking_back(sequences, 3, 5, *look, positions)

    def run(qkv: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
        pair = (tables[0], tables[1]) if tables else None
        return (time_attention_qkvpacked(qkv, sequences, 3, span=span, past=past, positions=pair),)

    def apart(qkv: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
        q, k, v = qkv.chunk(3, 1)
        return plain(q[sequences.cell_ptr[past] :], k, v, *tables)

    given = [_random(len(k), 3 * k.shape[1]), *tables]
    assert _by_kernel(run, given)
    assert _error(run, apart, given) < 2 * ERRORS["highest"]


def _looking_back(
    sequences: Sequences, heads: int, depth: int, span: int | None = None, past: int = 0, positions: int | None = None
) -> tuple[Run, list[Tensor]]:
    """Attention over time, which is plain torch in float64, and what it is given."""
    cells, width = sequences.num_cells, heads * depth
    given = [_random(cells - sequences.cell_ptr[past], width, scale=2), _random(cells, width), _random(cells, width)]
    given += [_random(positions, width) for _ in range(2) if positions]

    def run(q: Tensor, k: Tensor, v: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
        pair = (tables[0], tables[1]) if tables else None
        return (time_attention(q, k, v, sequences, heads, span=span, past=past, positions=pair),)

    return run, given


def _by_kernel(run: Run, given: list[Tensor]) -> bool:
    (out,) = run(*(tensor.float().requires_grad_() for tensor in given))
    function = getattr(type(out.grad_fn), "_forward_cls", None)
    return function is not None and function.__module__.startswith("strobe.ops.triton.")


@pytest.fixture
def _two_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs go through all tiles on the way back, several each."""
    from strobe.ops.triton import feed_forward, linear, segments, time_attention

    for kernels in (feed_forward, linear, segments, time_attention):
        monkeypatch.setattr(kernels, "PROGRAMS", 2)
        monkeypatch.setattr(kernels, "num_multiprocessors", lambda _: 1)


def test_attention_over_time_of_bfloat16_is_added_up_in_float32() -> None:
    run, given = _looking_back(_sequences("gaps", 7), 4, 8, positions=3)
    assert _error(run, run, given, torch.bfloat16) < ERRORS["bfloat16"]


def test_attention_over_time_and_its_gradients_have_the_same_bits() -> None:
    run, given = _looking_back(_sequences("gaps", 7), 4, 8, positions=3)
    leaves = [tensor.float().requires_grad_() for tensor in given]
    both = []
    for _ in range(2):
        (out,) = run(*leaves)
        both.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    assert all(map(torch.equal, *both))


@pytest.mark.parametrize(("nodes", "snapshots"), [(1, 1), (2, 33), (0, 3), (3, 0)])
def test_attention_over_time_of_hardly_any_or_many_snapshots_works(nodes: int, snapshots: int) -> None:
    sequences = Sequences.of([np.arange(nodes)] * snapshots, nodes, DEVICE)
    run, given = _looking_back(sequences, 2, 4, positions=5)
    assert _by_kernel(run, given)
    assert _error(run, run, given) < 2 * ERRORS["highest"]


def test_attention_over_time_that_kernels_are_not_made_for_is_plain_torch() -> None:
    long = Sequences.of([np.arange(2)] * 40, 2, DEVICE)
    assert not _by_kernel(*_looking_back(long, 4, 64))
    assert _by_kernel(*_looking_back(long, 4, 64, span=32, past=39))
    assert not _by_kernel(*_looking_back(_sequences("lanes"), 4, 8))
    q = _random(80, 8).float().requires_grad_()
    assert type(time_attention(q, q, q, long, 2, dropout=0.5).grad_fn).__name__ == "_PiecesBackward"


@pytest.mark.parametrize(
    ("model", "rows"),
    [("tgcn", "bf16"), ("mpnn-lstm", "float32"), ("gat-lstm", "bf16"), ("dysat", "float32"), ("wd-gcn", "bf16")],
)
def test_models_learn_through_the_kernels_what_they_learn_without(
    model: str, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Social(nodes=20, snapshots=8, edges=60, away=0.2, communities=2).write()
    given: dict[str, Any] = {"epochs": 2, "window": 3, "device": DEVICE.type, "model_options": {"hidden": 8}}
    given |= {"optimizer": "sgd", "lr": 0.05}  # Adam makes much of gradients that are nothing but rounding
    through = strobe.train(graph, model, "regression", precision=rows, **given)
    monkeypatch.setattr(triton, "usable", lambda *tensors: False)
    without = strobe.train(graph, model, "regression", **given)
    first, second = ([line["loss"] for line in run.history] for run in (through, without))
    assert first == pytest.approx(second, rel=1e-5 if rows == "float32" else 0.03)
