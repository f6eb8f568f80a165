from __future__ import annotations

import pytest
import torch

from strobe.comm import Alone


def test_one_rank_hears_itself_and_sends_nothing() -> None:
    comm = Alone()
    values = torch.tensor([1.0, 2.0])
    assert comm.sum(values, kind="loss").tolist() == [1.0, 2.0]
    assert comm.sum_later(values, kind="loss").wait().tolist() == [1.0, 2.0]
    assert comm.gather("a", kind="x") == comm.collect("a", kind="x") == ["a"]
    assert comm.share("a", kind="x") == "a"
    assert comm.agree([3, 0.5]) == [3.0, 0.5]
    assert comm.largest([3, -0.5], kind="agree") == [3.0, -0.5]
    assert comm.swap({}, {}, values, kind="halo") == []
    comm.settle()
    comm.close()
    told = comm.ledger.cut()
    assert told["sent"] == told["received"] == told["messages"] == {}


def test_one_rank_has_nobody_to_talk_to() -> None:
    rows = torch.ones(1, 1)
    with pytest.raises(AssertionError, match="nobody"):
        Alone().send(0, rows, kind="halo")
    with pytest.raises(AssertionError, match="nobody"):
        Alone().receive(0, rows, 1, kind="halo")
