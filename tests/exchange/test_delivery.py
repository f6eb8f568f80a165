from __future__ import annotations

import torch
from torch import Tensor

from strobe.comm import Alone, Comm
from strobe.comm.rows import Route, exchange, tied
from strobe.exchange.delivery import Fresh, FreshRows, arrivals
from tests.comm.jobs import NUM_RANKS, all_inputs, route_of
from tests.ranks import as_threads


def test_fresh_rows_and_their_gradients_are_those_of_an_exchange_to_the_bit() -> None:
    def work(comm: Comm) -> list[tuple[Tensor, Tensor, dict[tuple[str, str], int]]]:
        route, found = route_of(comm.rank), []
        for delivers in (True, False):
            comm.ledger.clear()
            x = all_inputs()[0][comm.rank].requires_grad_()
            delivery = Fresh(comm).delivery(route, x, kind="halo")
            assert delivery is not None
            rows, token = arrivals(delivery, x) if delivers else exchange(comm, route, x, kind="halo")
            tied((torch.cat([x, rows]) ** 3).sum(), [token]).backward()
            assert x.grad is not None
            found.append((rows.detach(), x.grad, dict(comm.ledger.sent)))
        return found

    for delivered, exchanged in as_threads(work, NUM_RANKS):
        assert torch.equal(delivered[0], exchanged[0])
        assert torch.equal(delivered[1], exchanged[1])
        assert delivered[2] == exchanged[2]


def test_a_rank_with_nobody_to_talk_to_gets_no_delivery() -> None:
    x = torch.ones(2, 3)
    assert Fresh(Alone()).delivery(Route({}, {}), x, kind="halo") is None


def test_what_is_fresh_remembers_nothing() -> None:
    courier = Fresh(Alone())
    courier.pass_begins()
    courier.epoch_begins(None, None)
    assert courier.remembered() == []
    courier.remember([])


def test_nothing_arrives_as_no_rows_of_the_same_width() -> None:
    x = torch.ones(2, 3, dtype=torch.float64)
    arrived = FreshRows(Alone(), Route({}, {}), "halo").send(x)()
    assert (arrived.shape, arrived.dtype) == ((0, 3), torch.float64)
