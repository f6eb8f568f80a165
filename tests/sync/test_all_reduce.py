from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from strobe.comm import Comm, SingleRankComm, Work
from strobe.comm.base import CompletedWork
from strobe.errors import OptionError
from strobe.sync import AllReduce
from strobe.sync.all_reduce import _AllReduceSync, _make_buckets
from tests.support.partitions import among_threads
from tests.support.ranks import as_threads

KINDS = (torch.float32, torch.float64)
Weights = list[nn.Parameter]


def weights(
    sizes: Sequence[int], kinds: Sequence[torch.dtype] = (torch.float64,), frozen: Sequence[int] = ()
) -> Weights:
    """Parameters of these sizes, of the given kinds in turn; some do not learn."""
    torch.manual_seed(0)
    made = [torch.randn(size, 1, dtype=kinds[k % len(kinds)]) for k, size in enumerate(sizes)]
    return [nn.Parameter(each, requires_grad=k not in frozen) for k, each in enumerate(made)]


def loss_of(parameters: Weights, rank: int, touched: Sequence[int]) -> Tensor:
    """Something that depends on some of the parameters, on every rank in another way."""
    total = torch.zeros((), dtype=torch.float64, requires_grad=True)
    for k in touched:
        total = total + (rank + 2) * (k + 1) * parameters[k].double().square().sum()
    return total


class Listening(SingleRankComm):
    """One of two ranks, the other of which has nothing to say; counts the sums that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.num_ranks = 2
        self.sums: list[Tensor] = []

    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work:
        assert kind == "gradients"
        self.sums.append(values.clone())
        return CompletedWork(values)


@st.composite
def steps(draw: st.DrawFn, /) -> tuple[list[int], list[int], list[list[list[int]]], int]:
    """Sizes of parameters, which of them are frozen, what every backward of every rank touches, size of a bucket."""
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    frozen = draw(st.sets(st.sampled_from(range(len(sizes))), max_size=2))
    free = [k for k in range(len(sizes)) if k not in frozen]
    touched = st.lists(st.sampled_from(free), unique=True) if free else st.just([])
    ranks, backwards = draw(st.integers(2, 3)), draw(st.integers(1, 3))
    ways = st.lists(st.lists(touched, min_size=backwards, max_size=backwards), min_size=ranks, max_size=ranks)
    return sizes, sorted(frozen), draw(ways), draw(st.integers(1, 100))


@among_threads(40)
@given(steps(), st.sampled_from([KINDS[1:], KINDS, KINDS[::-1]]))
def test_gradients_are_the_sums_of_all_ranks(
    drawn: tuple[list[int], list[int], list[list[list[int]]], int], kinds: Sequence[torch.dtype]
) -> None:
    """Buckets of any size, several kinds of numbers, several backwards in a step, ranks that touch other weights."""
    sizes, frozen, ways, bucket_bytes = drawn
    made = weights(sizes, kinds, frozen)

    def work(comm: Comm) -> list[list[Tensor | None]]:
        mine = deepcopy(made)
        syncing = _AllReduceSync(mine, comm, bucket_bytes)
        found = []
        for _ in range(2):  # and the same once more: nothing is left of the step before
            for k, touched in enumerate(ways[comm.rank], 1):
                syncing.begin_backward(last=k == len(ways[comm.rank]))
                loss_of(mine, comm.rank, touched).backward()
            syncing.end_backward()
            found.append([each.grad for each in mine])
            for each in mine:
                each.grad = None
        return found

    expected = deepcopy(made)
    for rank, backwards in enumerate(ways):
        for touched in backwards:
            loss_of(expected, rank, touched).backward()
    wanted = [torch.zeros_like(each) if each.grad is None else each.grad for each in expected]
    for found in as_threads(work, len(ways)):
        for step in found:
            assert all(step[k] is None for k in frozen)
            gradients = [
                zeros if grad is None else grad for grad, zeros in zip(step, map(torch.zeros_like, made), strict=True)
            ]
            torch.testing.assert_close(gradients, wanted, rtol=1e-6, atol=1e-12)


def run_once(syncing: Any, parameters: Weights, touched: Sequence[int]) -> None:
    syncing.begin_backward()
    loss_of(parameters, 0, touched).backward()
    syncing.end_backward()


def test_a_bucket_leaves_while_backward_goes_on_with_the_others() -> None:
    parameters, comm = weights([3, 2, 4]), Listening()
    syncing = _AllReduceSync(parameters, comm, 1)  # a bucket each
    syncing.begin_backward()
    when: list[int] = []
    x = parameters[0].sum()
    for k in (1, 2):
        x.register_hook(lambda _: when.append(len(comm.sums)))
        x = x * parameters[k].sum()
    x.backward()
    assert when == [1, 2], "the last parameter's had left when backward came to the second, and so on"
    assert [len(each) for each in comm.sums] == [4, 2, 3]


def test_buckets_leave_in_one_order_whatever_is_ready_first() -> None:
    """Ranks touch different weights: a bucket that is ready waits for those before it."""
    parameters, comm = weights([3, 2, 4]), Listening()
    syncing = _AllReduceSync(parameters, comm, 1)
    syncing.begin_backward()
    loss_of(parameters, 0, [0, 1]).backward()
    assert comm.sums == []
    syncing.end_backward()
    assert [len(each) for each in comm.sums] == [4, 2, 3]
    assert not comm.sums[0].any()


def test_after_close_nothing_is_sent_any_more() -> None:
    parameters, comm = weights([3]), Listening()
    syncing = AllReduce().start(parameters, comm)
    run_once(syncing, parameters, [0])
    assert len(comm.sums) == 1
    syncing.begin_backward()
    syncing.close()
    loss_of(parameters, 0, [0]).backward()
    assert len(comm.sums) == 1
    assert not parameters[0]._post_accumulate_grad_hooks


def test_outside_a_step_backward_sends_nothing() -> None:
    parameters, comm = weights([3]), Listening()
    syncing = AllReduce().start(parameters, comm)
    loss_of(parameters, 0, [0]).backward()
    run_once(syncing, parameters, [0])
    loss_of(parameters, 0, [0]).backward()
    assert len(comm.sums) == 1


def test_one_rank_sends_nothing_and_keeps_its_gradients() -> None:
    parameters = weights([3, 2])
    syncing = AllReduce().start(parameters, SingleRankComm())
    run_once(syncing, parameters, [1])
    assert parameters[0].grad is None
    torch.testing.assert_close(parameters[1].grad, 8 * parameters[1].detach())
    assert syncing.loss_scale == 1.0
    assert not parameters[1]._post_accumulate_grad_hooks


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(KINDS)), max_size=10),
    st.integers(1, 120),
)
def test_buckets_are_as_full_as_they_may_be_from_the_last_parameter_to_the_first(
    shapes: list[tuple[int, torch.dtype]], bucket_bytes: int
) -> None:
    parameters = [nn.Parameter(torch.zeros(size, dtype=kind)) for size, kind in shapes]
    buckets = [bucket.parameters for bucket in _make_buckets(parameters, bucket_bytes)]
    order = [id(each) for bucket in buckets for each in bucket]
    assert order == [id(each) for each in reversed(parameters)]

    def num_bytes(bucket: Sequence[nn.Parameter]) -> int:
        return sum(each.numel() * each.element_size() for each in bucket)

    for bucket in buckets:
        assert len({each.dtype for each in bucket}) == 1
        assert len(bucket) == 1 or num_bytes(bucket) <= bucket_bytes
    for bucket, following in pairwise(buckets):
        fits = num_bytes([*bucket, following[0]]) <= bucket_bytes
        assert not fits or following[0].dtype != bucket[0].dtype


def test_bucket_size_is_in_kibibytes() -> None:
    parameters, comm = weights([100, 100, 60]), Listening()  # 8 bytes each
    run_once(AllReduce(bucket_kb=1).start(parameters, comm), parameters, [0])
    assert [len(each) for each in comm.sums] == [60, 100, 100]
    comm.sums.clear()
    run_once(AllReduce(bucket_kb=2).start(weights([100, 100, 60]), comm), parameters, [])
    assert [len(each) for each in comm.sums] == [160, 100]


def test_empty_buckets_are_refused() -> None:
    with pytest.raises(OptionError, match="at least 1 KiB, not 0"):
        AllReduce(bucket_kb=0)
