from __future__ import annotations

from typing import Any

import pytest

from strobe.engine.ledger_table import load, matters, sent_by_kind, spent


def ledger(**more: Any) -> dict[str, Any]:
    """Two epochs of a rank."""
    return {
        "sent": {"forward/halo": 4000, "backward/halo": 2000, "sync/gradients": 1000, "evaluate/halo": 600},
        "seconds": {"forward": 2.0, "backward": 1.0, "exposed": 0.5, "waiting": 1.5, "hidden": 0.25},
        "total_s": 6.0,
        "cells": 20,
        "arcs": 40,
        "memory_bytes": 1 << 20,
        **more,
    }


def test_an_epoch_is_computing_exposed_and_waiting() -> None:
    mean = spent(ledger(), 2)
    assert (mean.computing_s, mean.exposed_s, mean.waiting_s, mean.hidden_s) == (2.0, 0.25, 0.75, 0.125)
    assert mean.seconds == 3.0
    assert (mean.cells, mean.arcs, mean.work) == (10, 20, 30)
    assert mean.sent_bytes == 3800


def test_memory_is_a_peak_and_that_of_the_device_goes_first() -> None:
    assert spent(ledger(), 2).peak_bytes == 1 << 20
    assert spent(ledger(device_bytes=5), 2).peak_bytes == 5


def test_a_rank_with_nothing_to_do_is_all_zeros() -> None:
    idle = spent({"sent": {}, "seconds": {}, "total_s": 0.0}, 0)
    assert (idle.work, idle.seconds, idle.sent_bytes, idle.peak_bytes) == (0, 0, 0, 0)


def test_bytes_of_all_ranks_are_told_by_kind_and_phase() -> None:
    ledgers = [ledger(), ledger()]
    assert sent_by_kind(ledgers, 2) == {"halo": 6600, "gradients": 1000}
    assert list(sent_by_kind(ledgers, 2)) == ["halo", "gradients"]
    assert sent_by_kind(ledgers, 2, "evaluate") == {"halo": 600}
    assert sum(sent_by_kind(ledgers, 2).values()) == sum(spent(each, 2).sent_bytes for each in ledgers)


def test_talk_and_crumbs_are_not_what_a_plan_is_judged_by() -> None:
    assert matters({"relay": 9000.0, "agree": 900.0, "answers": 99.0, "carry": 1.0, "halo": 0.0}) == ["relay"]
    assert matters({"relay": 9000.0, "answers": 500.0}) == ["relay", "answers"]
    assert matters({}) == []


@pytest.mark.parametrize(("values", "factor"), [([2.0, 3.0], 1.5), ([4.0], 1.0), ([0.0, 1.0], None), ([], None)])
def test_load_is_the_most_for_one_of_the_least(values: list[float], factor: float | None) -> None:
    assert load(values) == factor
