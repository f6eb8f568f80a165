from __future__ import annotations

import pytest
import torch

from strobe.comm import SingleRankComm


def test_collectives_of_a_single_rank_return_their_input() -> None:
    comm = SingleRankComm()
    values = torch.tensor([1.0, 2.0])
    assert comm.all_reduce(values, kind="loss").tolist() == [1.0, 2.0]
    assert comm.all_reduce_async(values, kind="loss").wait().tolist() == [1.0, 2.0]
    assert comm.all_gather_object("a", kind="x") == comm.gather_object("a", kind="x") == ["a"]
    assert comm.broadcast_object("a", kind="x") == "a"
    assert comm.all_reduce_scalars([3, 0.5]) == [3.0, 0.5]
    assert comm.all_reduce_max([3, -0.5], kind="scalars") == [3.0, -0.5]
    assert comm.all_to_all_rows({}, {}, values, kind="halo") == []
    comm.wait_sends()
    comm.close()
    ledger = comm.ledger.drain()
    assert ledger["sent"] == ledger["received"] == ledger["messages"] == {}


def test_a_single_rank_cannot_send_or_receive() -> None:
    rows = torch.ones(1, 1)
    with pytest.raises(AssertionError, match="cannot send"):
        SingleRankComm().all_to_all_rows({0: rows}, {}, rows, kind="halo")
    with pytest.raises(AssertionError, match="cannot receive"):
        SingleRankComm().all_to_all_rows({}, {0: 1}, rows, kind="halo")
