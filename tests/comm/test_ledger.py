from __future__ import annotations

import json

import pytest

from strobe.comm import Ledger
from strobe.comm.ledger import merge_ledgers


def test_bytes_rows_and_messages_are_counted_by_phase_and_kind() -> None:
    ledger = Ledger()
    with ledger.phase("forward"):
        ledger.count_sent("halo", 100, 5)
        with ledger.phase("sync"):
            ledger.count_sent("gradients", 8, 0)
        ledger.count_sent("halo", 20, 1)
        ledger.count_received("relay", 7)
        ledger.count_suppressed("halo", 40, 2)
    counters = ledger.drain()
    assert counters["sent"] == {"forward/halo": 120, "sync/gradients": 8}
    assert counters["rows_sent"] == {"forward/halo": 6, "sync/gradients": 0}
    assert counters["messages"] == {"forward/halo": 2, "sync/gradients": 1}
    assert counters["received"] == {"forward/relay": 7}
    assert (counters["suppressed_bytes"], counters["suppressed_rows"]) == ({"forward/halo": 40}, {"forward/halo": 2})


def test_drain_returns_json_and_resets() -> None:
    ledger = Ledger()
    ledger.count(cells=3, arcs=4)
    ledger.count(cells=2)
    counters = json.loads(json.dumps(ledger.drain()))
    assert (counters["cells"], counters["arcs"]) == (5, 4)
    assert "cells" not in ledger.drain()


def test_an_error_ends_its_phase() -> None:
    ledger = Ledger()
    with pytest.raises(ValueError, match="boom"), ledger.phase("backward"):
        raise ValueError("boom")
    assert ledger.phase_now == "prepare"
    assert ledger.seconds["backward"] > 0


def test_on_change_is_called_for_every_step_and_phase() -> None:
    ledger, positions = Ledger(), []
    ledger.on_change = lambda epoch, step, phase, alone: positions.append((epoch, step, phase, alone))
    ledger.at(2, 7)
    with ledger.phase("forward"):
        pass
    assert positions == [(2, 7, "train", False), (2, 7, "forward", False), (2, 7, "train", False)]


def test_merge_ledgers_adds_up_epochs() -> None:
    ledger, parts = Ledger(), []
    for num_bytes, kind in ((10, "halo"), (5, "halo"), (1, "relay")):
        with ledger.phase("forward"):
            ledger.count_sent(kind, num_bytes, 1)
        ledger.count(cells=num_bytes)
        parts.append(ledger.drain())
    total = merge_ledgers(parts)
    assert total["sent"] == {"forward/halo": 15, "forward/relay": 1}
    assert total["cells"] == 16
    assert total["total_s"] == pytest.approx(sum(part["total_s"] for part in parts))


def test_stage_numbers_restart_after_drain() -> None:
    ledger = Ledger()
    assert [ledger.next_stage(), ledger.next_stage()] == [1, 2]
    ledger.drain()
    assert ledger.next_stage() == 1
