from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from strobe.comm import Comm, SingleRankComm
from strobe.sync.average import StateAverager, average_tensors
from tests.support.partitions import among_threads
from tests.support.ranks import as_threads

KINDS = (torch.float32, torch.float64)


def numbers(seed: int, size: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(size, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", KINDS)
def test_equal_numbers_keep_their_bits(num_ranks: int, dtype: torch.dtype) -> None:
    """Their sum, divided, does not always."""
    before = numbers(0, 1000, dtype)

    def work(comm: Comm) -> tuple[Tensor, Tensor]:
        mine = before.clone()
        assert not average_tensors(comm, [mine[:300], mine[300:]], kind="weights")
        return mine, comm.all_reduce(before, kind="weights") / num_ranks

    for mine, divided in as_threads(work, num_ranks):
        assert torch.equal(mine, before)
        assert torch.equal(divided, before) == (num_ranks in (2, 4))


@among_threads(40)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(2, 4), st.data())
def test_tensors_of_any_shape_and_kind_become_the_mean(sizes: list[int], num_ranks: int, data: st.DataObject) -> None:
    kinds = [data.draw(st.sampled_from(KINDS)) for _ in sizes]
    drawn = list(enumerate(zip(sizes, kinds, strict=True)))
    marked = data.draw(st.integers(-1, num_ranks - 1))
    everyone = [
        [numbers(10 * rank + k, 2 * size, kind).view(size, 2) for k, (size, kind) in drawn] for rank in range(num_ranks)
    ]

    def work(comm: Comm) -> tuple[list[Tensor], bool]:
        mine = deepcopy(everyone[comm.rank])
        return mine, average_tensors(comm, mine, kind="weights", flag=comm.rank == marked)

    results = as_threads(work, num_ranks)
    for mine, any_marked in results:
        assert any_marked == (marked >= 0)
        for k, each in enumerate(mine):
            torch.testing.assert_close(each, torch.stack([rank[k] for rank in everyone]).mean(0), rtol=1e-5, atol=1e-6)
            assert torch.equal(each, results[0][0][k]), "the same bits on every rank"


def two_weights() -> list[nn.Parameter]:
    return [nn.Parameter(torch.arange(3.0)), nn.Parameter(torch.ones(2, 2))]


def step(weights: list[nn.Parameter], optimizer: Optimizer, touched: list[int], factor: float = 1.0) -> None:
    for k in touched:
        weights[k].grad = torch.full_like(weights[k], factor * (k + 1))
    optimizer.step()
    optimizer.zero_grad()


def states(weights: list[nn.Parameter], optimizer: Optimizer) -> list[dict[str, Tensor]]:
    return [dict(optimizer.state.get(weight, {})) for weight in weights]


def averaged(
    make: Callable[[list[nn.Parameter]], Optimizer], touched: list[list[list[int]]]
) -> list[tuple[list[Tensor], list[dict[str, Tensor]], list[dict[str, Tensor]]]]:
    """Every rank touches weights in one step after the other, all average, rank by rank: weights, and what the
    optimizer kept for them before and after."""

    def work(comm: Comm) -> tuple[list[Tensor], list[dict[str, Tensor]], list[dict[str, Tensor]]]:
        weights = two_weights()
        optimizer = make(weights)
        means = StateAverager(weights, optimizer, comm)
        for mine in touched[comm.rank]:
            step(weights, optimizer, mine, 1.0 + comm.rank)
        before = deepcopy(states(weights, optimizer))
        means.average()
        return [each.detach() for each in weights], before, states(weights, optimizer)

    return as_threads(work, len(touched))


def adam(weights: list[nn.Parameter]) -> Optimizer:
    return Adam(weights, lr=0.1)


def momentum(weights: list[nn.Parameter]) -> Optimizer:
    return SGD(weights, lr=0.1, momentum=0.9)


TOUCHED = {
    "all ranks alike": [[[0, 1], [0, 1]]] * 3,
    "no step anywhere": [[], [], []],
    "a rank without a step": [[[0, 1]], [], [[0, 1], [0]]],
    "a weight that one rank never touches": [[[0, 1]], [[0]], [[0, 1]]],
    "weights that only one rank touches": [[[0]], [], [[1]]],
}


@pytest.mark.parametrize("make", [adam, momentum])
@pytest.mark.parametrize("touched", TOUCHED.values(), ids=TOUCHED.keys())
def test_optimizer_state_is_averaged_and_missing_state_counts_as_zeros(
    make: Callable[[list[nn.Parameter]], Optimizer], touched: list[list[list[int]]]
) -> None:
    results = averaged(make, touched)
    for weights, _, after in results:
        assert all(torch.equal(a, b) for a, b in zip(weights, results[0][0], strict=True))
        for k, kept in enumerate(after):
            names = {name for _, before, _ in results for name in before[k]}
            assert set(kept) == names, "every rank has what any has"
            for name in names:
                known = next(before[k][name] for _, before, _ in results if name in before[k])
                parts = [before[k].get(name, torch.zeros_like(known)) for _, before, _ in results]
                torch.testing.assert_close(kept[name], torch.stack(parts).mean(0))


def test_the_layout_of_optimizer_state_is_sent_once() -> None:
    def work(comm: Comm) -> list[int]:
        asked: list[int] = []
        gather = comm.all_gather_object

        def counted(value: Any, *, kind: str) -> list[Any]:
            asked[-1] += not isinstance(value, Tensor)  # ranks in threads gather tensors to add them up
            return gather(value, kind=kind)

        comm.all_gather_object = counted  # type: ignore[method-assign]
        weights = two_weights()
        optimizer = adam(weights)
        means = StateAverager(weights, optimizer, comm)
        for touched in ([], [0], [0], [0, 1], [0, 1]):
            step(weights, optimizer, touched, 1.0 + comm.rank)
            asked.append(0)
            means.average()
        return asked

    assert as_threads(work, 2) == [[0, 1, 0, 1, 0]] * 2


def test_a_loaded_state_is_what_is_averaged() -> None:
    def work(comm: Comm) -> float:
        weights = two_weights()
        optimizer = momentum(weights)
        means = StateAverager(weights, optimizer, comm)
        step(weights, optimizer, [0, 1], 1.0)
        means.average()
        step(weights, optimizer, [0, 1], 1.0 + comm.rank)
        optimizer.load_state_dict(deepcopy(optimizer.state_dict()))
        means.average()
        return float(optimizer.state[weights[0]]["momentum_buffer"][0])

    assert as_threads(work, 2) == [pytest.approx(0.9 + 1.5)] * 2


def test_without_optimizer_state_only_weights_are_averaged() -> None:
    def work(comm: Comm) -> list[float]:
        found = []
        for keeps in (True, False):
            weights = two_weights()
            optimizer = SGD(weights, lr=1.0)
            step(weights, optimizer, [0, 1], float(comm.rank))
            StateAverager(weights, optimizer if keeps else None, comm).average()
            found.append(weights[0][0].item())
            assert not any(states(weights, optimizer))
        return found

    assert as_threads(work, 3) == [[-1.0, -1.0]] * 3


def test_one_rank_and_no_weights_send_nothing() -> None:
    weights = two_weights()
    optimizer = adam(weights)
    step(weights, optimizer, [0])
    before = deepcopy(weights)
    StateAverager(weights, optimizer, SingleRankComm()).average()
    assert all(torch.equal(a, b) for a, b in zip(weights, before, strict=True))
    as_threads(lambda comm: StateAverager([], None, comm).average(), 2)
