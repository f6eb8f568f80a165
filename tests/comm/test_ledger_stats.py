from __future__ import annotations

from typing import Any

import pytest

from strobe.comm.ledger_stats import (
    PipelineSpans,
    imbalance,
    mean_rank_stats,
    pipeline_busy_fraction,
    sent_by_kind,
    significant_kinds,
)


def ledger(**more: Any) -> dict[str, Any]:
    """Two epochs of a rank."""
    return {
        "sent": {"forward/halo": 4000, "backward/halo": 2000, "sync/gradients": 1000, "evaluate/halo": 600},
        "seconds": {"forward": 2.0, "exposed_comm_s": 0.5, "straggler_wait_s": 1.5, "overlapped_comm_s": 0.25},
        "total_s": 6.0,
        "cells": 20,
        "arcs": 40,
        "memory_bytes": 1 << 20,
        **more,
    }


def test_seconds_of_an_epoch_are_computing_exposed_and_straggler_wait() -> None:
    mean = mean_rank_stats(ledger(), 2)
    assert (mean.computing_s, mean.exposed_comm_s, mean.straggler_wait_s, mean.overlapped_comm_s) == (
        2.0,
        0.25,
        0.75,
        0.125,
    )
    assert mean.seconds == 3.0
    assert (mean.cells, mean.arcs, mean.work) == (10, 20, 30)
    assert mean.sent_bytes == 3800


def test_peak_bytes_prefer_the_device() -> None:
    assert mean_rank_stats(ledger(), 2).peak_bytes == 1 << 20
    assert mean_rank_stats(ledger(device_bytes=5), 2).peak_bytes == 5


def test_sent_bytes_are_summed_by_kind_and_phase() -> None:
    ledgers = [ledger(), ledger()]
    assert sent_by_kind(ledgers, 2) == {"halo": 6600, "gradients": 1000}
    assert list(sent_by_kind(ledgers, 2)) == ["halo", "gradients"]
    assert sent_by_kind(ledgers, 2, "evaluate") == {"halo": 600}
    assert sum(sent_by_kind(ledgers, 2).values()) == sum(mean_rank_stats(each, 2).sent_bytes for each in ledgers)


def test_coordination_and_small_kinds_are_not_significant() -> None:
    kinds = {"relay": 9000.0, "scalars": 900.0, "predictions": 99.0, "carry": 1.0, "halo": 0.0}
    assert significant_kinds(kinds) == ["relay"]
    assert significant_kinds({"relay": 9000.0, "predictions": 500.0}) == ["relay", "predictions"]
    assert significant_kinds({}) == []


@pytest.mark.parametrize(("values", "factor"), [([2.0, 3.0], 1.5), ([4.0], 1.0), ([0.0, 1.0], None), ([], None)])
def test_imbalance_is_the_ratio_of_largest_to_smallest(values: list[float], factor: float | None) -> None:
    assert imbalance(values) == factor


SPANS: PipelineSpans = [
    [("forward", 1, 0, 0.0, 1.0), ("forward", 1, 1, 1.0, 2.0), ("backward", 1, 1, 4.0, 5.0)],
    [("forward", 1, 1, 1.0, 2.0), ("forward", 1, 2, 2.0, 3.0), ("backward", 1, 2, 3.0, 4.0)],
]


def test_pipeline_busy_fraction_excludes_evaluation() -> None:
    # Forward: two ranks have 3 seconds each and compute 2 each; backward: 2 each and compute 1 each.
    assert pipeline_busy_fraction(SPANS) == (4 + 2) / (2 * 3 + 2 * 2)
    evaluated = [[*row, ("evaluate", 2, 0, 10.0, 99.0)] for row in SPANS]
    assert pipeline_busy_fraction(evaluated) == pipeline_busy_fraction(SPANS)


@pytest.mark.parametrize("spans", [[], [[], []]])
def test_pipeline_busy_fraction_without_relay_is_none(spans: PipelineSpans) -> None:
    assert pipeline_busy_fraction(spans) is None
