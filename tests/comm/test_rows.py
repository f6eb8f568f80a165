from __future__ import annotations

import torch
from torch import Tensor

from strobe.comm import SingleRankComm
from strobe.comm.rows import Route, all_reduce_rows, attach_tokens, exchange
from tests.comm.conftest import Job
from tests.support.comm_jobs import NUM_RANKS, SENDS, all_inputs, part_of_loss, route_of


def _arrivals(rows: list[Tensor]) -> list[Tensor]:
    """The rows that each rank receives, from the rows of all ranks."""
    return [
        torch.cat([rows[source][sent] for (source, to), sent in sorted(SENDS.items()) if to == rank])
        for rank in range(NUM_RANKS)
    ]


def _in_one_process() -> tuple[list[Tensor], list[Tensor], Tensor]:
    """``rows`` of jobs.py without messages: parts of the loss, gradients of the rows and of the weight."""
    inputs, weight = all_inputs()
    for x in inputs:
        x.requires_grad_()
    h = [torch.tanh(x @ weight) for x in inputs]
    features = _arrivals([x.detach() for x in inputs])
    arrived = _arrivals(h)
    total = torch.stack([own.sum(0) + others.sum(0) for own, others in zip(h, arrived, strict=True)]).sum(0)
    again = _arrivals([own * total for own in h])
    parts = [
        part_of_loss(rank, h[rank], features[rank] @ weight, arrived[rank], total, again[rank])
        for rank in range(NUM_RANKS)
    ]
    gradients = torch.autograd.grad(torch.stack(parts).sum(), [*inputs, weight])
    return [part.detach() for part in parts], list(gradients[:-1]), gradients[-1]


def test_losses_and_gradients_equal_those_of_one_process(job: Job) -> None:
    losses, of_rows, of_weight = _in_one_process()
    for rank, result in enumerate(job["rows"]):
        torch.testing.assert_close(result["loss"], losses[rank], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(result["x"], of_rows[rank], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(result["weight"], of_weight, rtol=1e-12, atol=1e-12)


def test_rows_are_exchanged_without_gradients(job: Job) -> None:
    wanted = _arrivals(all_inputs()[0])
    for rank, result in enumerate(job["rows"]):
        torch.testing.assert_close(result["plain"], wanted[rank], rtol=0, atol=0)
        assert not result["plain requires grad"]


def test_gradients_travel_in_the_opposite_direction(job: Job) -> None:
    for rank, result in enumerate(job["rows"]):
        ledger, route = result["ledger"], route_of(rank)
        forward = 3 * route.rows_sent * 2 * 8  # three exchanges, also of rows that require no gradient
        backward = 3 * route.rows_received * 2 * 8
        assert ledger["sent"].get("forward/halo", 0) == ledger["received"].get("backward/halo", 0) == forward
        assert ledger["received"].get("forward/halo", 0) == ledger["sent"].get("backward/halo", 0) == backward


def test_a_single_rank_exchanges_without_messages() -> None:
    comm = SingleRankComm()
    assert Route({}, {}).is_empty
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    arrived, token = exchange(comm, Route({}, {}), x, kind="halo")
    total, other = all_reduce_rows(comm, x, kind="moments")
    attach_tokens((total**2).sum(), [token, other]).backward()
    assert arrived.shape == (0, 2)
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0, 4.0]]
    assert not comm.ledger.messages


def test_an_unused_operation_takes_part_in_backward_through_its_token() -> None:
    kinds = []

    class Counting(SingleRankComm):
        def all_reduce(self, values: Tensor, *, kind: str) -> Tensor:
            kinds.append(kind)
            return values

    for with_token in (False, True):
        kinds.clear()
        x = torch.ones(2, 2, requires_grad=True)
        _, token = all_reduce_rows(Counting(), x, kind="moments")
        attach_tokens(x.sum(), [token] if with_token else []).backward()
        assert kinds == ["moments"] * (2 if with_token else 1)
        assert x.grad is not None
        assert x.grad.tolist() == [[1.0, 1.0]] * 2
