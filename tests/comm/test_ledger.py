from __future__ import annotations

import json

import pytest

from strobe.comm import Ledger
from strobe.comm.ledger import merged


def test_bytes_rows_and_messages_are_counted_by_phase_and_kind() -> None:
    ledger = Ledger()
    with ledger.phase("forward"):
        ledger.count_sent("halo", 100, 5)
        with ledger.phase("sync"):
            ledger.count_sent("gradients", 8, 0)
        ledger.count_sent("halo", 20, 1)
        ledger.count_received("relay", 7)
    told = ledger.cut()
    assert told["sent"] == {"forward/halo": 120, "sync/gradients": 8}
    assert told["rows_sent"] == {"forward/halo": 6, "sync/gradients": 0}
    assert told["messages"] == {"forward/halo": 2, "sync/gradients": 1}
    assert told["received"] == {"forward/relay": 7}


def test_what_did_not_have_to_be_sent_is_counted_beside_what_was() -> None:
    ledger = Ledger()
    with ledger.phase("forward"):
        ledger.count_sent("halo", 100, 5)
        ledger.count_spared("halo", 40, 2)
        ledger.count_spared("halo", 60, 3)
    first, second = ledger.cut(), ledger.cut()
    assert (first["spared"], first["rows_spared"]) == ({"forward/halo": 100}, {"forward/halo": 5})
    assert first["sent"] == {"forward/halo": 100}
    assert second["spared"] == second["rows_spared"] == {}
    assert merged([first, first])["rows_spared"] == {"forward/halo": 10}


def test_a_cut_is_json_and_begins_anew() -> None:
    ledger = Ledger()
    ledger.count(cells=3, arcs=4)
    ledger.count(cells=2)
    told = json.loads(json.dumps(ledger.cut()))
    assert (told["cells"], told["arcs"]) == (5, 4)
    assert "cells" not in ledger.cut()


def test_an_error_ends_its_phase() -> None:
    ledger = Ledger()
    with pytest.raises(ValueError, match="boom"), ledger.phase("backward"):
        raise ValueError("boom")
    assert ledger.phase_now == "prepare"
    assert ledger.seconds["backward"] > 0


def test_who_watches_hears_of_every_step_and_phase() -> None:
    ledger, heard = Ledger(), []
    ledger.watch = lambda epoch, step, phase, alone: heard.append((epoch, step, phase, alone))
    ledger.at(2, 7)
    with ledger.phase("forward"):
        pass
    assert heard == [(2, 7, "train", False), (2, 7, "forward", False), (2, 7, "train", False)]


def test_ledgers_of_epochs_add_up() -> None:
    ledger, parts = Ledger(), []
    for num_bytes, kind in ((10, "halo"), (5, "halo"), (1, "relay")):
        with ledger.phase("forward"):
            ledger.count_sent(kind, num_bytes, 1)
        ledger.count(cells=num_bytes)
        parts.append(ledger.cut())
    total = merged(parts)
    assert total["sent"] == {"forward/halo": 15, "forward/relay": 1}
    assert total["cells"] == 16
    assert total["total_s"] == pytest.approx(sum(part["total_s"] for part in parts))


def test_relayed_stages_are_numbered_from_one_in_each_cut() -> None:
    ledger = Ledger()
    assert [ledger.next_stage(), ledger.next_stage()] == [1, 2]
    ledger.cut()
    assert ledger.next_stage() == 1
