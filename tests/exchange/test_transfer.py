from __future__ import annotations

import torch
from torch import Tensor

from strobe.comm import Comm, SingleRankComm
from strobe.comm.rows import Route, attach_tokens, exchange
from strobe.exchange.transfer import FreshExchange, FreshTransfer, receive_rows
from tests.support.comm_jobs import NUM_RANKS, all_inputs, route_of
from tests.support.ranks import as_threads


def test_fresh_transfer_equals_exchange_bit_for_bit() -> None:
    def work(comm: Comm) -> list[tuple[Tensor, Tensor, dict[tuple[str, str], int]]]:
        route, results = route_of(comm.rank), []
        for transfers in (True, False):
            comm.ledger.clear()
            x = all_inputs()[0][comm.rank].requires_grad_()
            transfer = FreshExchange(comm).start_transfer(route, x, kind="halo")
            assert transfer is not None
            rows, token = receive_rows(transfer, x) if transfers else exchange(comm, route, x, kind="halo")
            attach_tokens((torch.cat([x, rows]) ** 3).sum(), [token]).backward()
            assert x.grad is not None
            results.append((rows.detach(), x.grad, dict(comm.ledger.sent)))
        return results

    for transferred, exchanged in as_threads(work, NUM_RANKS):
        assert torch.equal(transferred[0], exchanged[0])
        assert torch.equal(transferred[1], exchanged[1])
        assert transferred[2] == exchanged[2]


def test_empty_route_has_no_transfer() -> None:
    x = torch.ones(2, 3)
    assert FreshExchange(SingleRankComm()).start_transfer(Route({}, {}), x, kind="halo") is None


def test_fresh_exchange_has_no_state() -> None:
    fresh = FreshExchange(SingleRankComm())
    fresh.begin_pass()
    fresh.begin_epoch(None, None)
    assert fresh.state_dict() == []
    fresh.load_state_dict([])


def test_transfer_without_receives_returns_no_rows_of_the_same_width() -> None:
    x = torch.ones(2, 3, dtype=torch.float64)
    rows = FreshTransfer(SingleRankComm(), Route({}, {}), "halo").send(x)()
    assert (rows.shape, rows.dtype) == ((0, 3), torch.float64)
