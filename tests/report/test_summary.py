from __future__ import annotations

from typing import Any

import pytest

from strobe.plan import Plan
from strobe.presets import preset
from strobe.report.summary import (
    compare_scores,
    compare_with_baselines,
    format_choice,
    format_option,
    format_plan,
    rank_table,
    run_summary,
    score_table,
)


@pytest.mark.parametrize(
    ("score", "baseline", "higher", "words"),
    [
        (0.62, 1.0, False, "38% better than"),
        (1.05, 1.0, False, "5.0% worse than"),
        (0.9, 0.6, True, "50% better than"),
        (0.3, 0.6, True, "50% worse than"),
        (0.99999, 1.0, False, "<0.1% better than"),
        (1.0, 1.0, True, "no better than"),
        (0.5, 0.0, True, "better than"),
        (50.0, 1.0, False, "50 times as bad as"),
        (0.8, 0.01, True, "80 times as good as"),
        (None, 1.0, True, ""),
        (float("nan"), 1.0, True, ""),
    ],
)
def test_compare_scores(score: float | None, baseline: float, higher: bool, words: str) -> None:
    assert compare_scores(score, baseline, higher) == words


def test_score_table_has_a_row_per_model_and_baseline() -> None:
    lines = score_table("test", "tgcn", {"mse": 0.5, "mae": 12.0}, {"last value": {"mse": 1.0}})
    assert [line.split() for line in lines] == [
        ["test", "mse", "mae"],
        ["tgcn", "0.5000", "12.00"],
        ["last", "value", "1.0000", "–"],
    ]
    assert len({len(line) for line in lines}) == 1
    assert score_table("test", "tgcn", {}, {}) == ["test: no examples to score"]


def test_comparison_names_every_baseline() -> None:
    comparison = compare_with_baselines({"ap": 0.9}, {"popularity": {"ap": 0.6}, "odd": {}}, "ap", True)
    assert comparison == "ap: 50% better than popularity"


def ledger(rank: int) -> dict[str, Any]:
    """Two epochs of a rank."""
    return {
        "sent": {
            "forward/relay": 4096 * (rank + 1),
            "sync/gradients": 2048,
            "evaluate/relay": 1024,
            "sync/scalars": 16,
        },
        "seconds": {"exposed_comm_s": 0.2, "straggler_wait_s": 0.1, "overlapped_comm_s": 0.04},
        "total_s": 1.0,
        "cells": 2000 + 1000 * rank,
        "arcs": 8000,
        "memory_bytes": 3 << 20,
    }


def test_rank_table_has_a_mean_epoch_of_every_rank() -> None:
    lines = rank_table([ledger(0), ledger(1)], 2)
    assert [line.split() for line in lines[1:4]] == [
        ["rank", "cells", "arcs", "computing", "exposed", "waiting", "overlap", "sent", "memory"],
        ["0", "1,000", "4,000", "350", "ms", "100", "ms", "50", "ms", "20", "ms", "3.5", "KiB", "3.0", "MiB"],
        ["1", "1,500", "4,000", "350", "ms", "100", "ms", "50", "ms", "20", "ms", "5.5", "KiB", "3.0", "MiB"],
    ]
    assert lines[4:6] == [
        "sent in an epoch: relay 7.0 KiB, gradients 2.0 KiB, the rest 16 B;",
        "  1.0 KiB of it to evaluate",
    ]
    assert lines[-1] == "fullest rank to emptiest: cells and arcs 1.10 times, computing 1.00 times"


def test_rank_table_has_suppressed_bytes() -> None:
    suppressed = ledger(0) | {"suppressed_bytes": {"forward/halo": 3 << 20, "backward/halo": 1 << 20}}
    assert "2.0 MiB more without suppressed rows" in " ".join(rank_table([suppressed, ledger(1)], 2))


def test_rank_table_names_idle_ranks() -> None:
    idle = ledger(0) | {"cells": 0, "arcs": 0}
    assert rank_table([ledger(0), idle], 2)[-1] == "load: some ranks have nothing to compute"


def test_rank_table_omits_the_middle_of_many_ranks() -> None:
    lines = rank_table([ledger(0)] * 40, 2)
    shown = [line.split()[0] for line in lines[2:19]]
    assert shown == [*map(str, range(15)), "…", "39"]


def test_summary_of_ranks_names_the_plan_and_fits_80_columns() -> None:
    result: dict[str, Any] = {"model": "tgcn", "graph": "town", "task": "regression", "parameters": 9, "epochs": 2}
    result |= {"seconds": 3.0, "seconds_per_epoch": 0.5, "best_epoch": 2, "stopped_early": False, "device": "cuda:0"}
    result |= {"test": {"mse": 0.5}, "baselines": {}, "metric": "mse", "higher_is_better": False, "threads": 4}
    alone = run_summary(result)
    assert "cuda:0, 4 threads" in alone
    assert "rank" not in alone
    result |= {"ranks": [ledger(0), ledger(1)], "plan": preset("pss").to_json(), "backend": "nccl"}
    several = run_summary(result)
    assert max(map(len, several.splitlines())) <= 80
    assert "2 ranks on cuda over nccl: store full, placement by-snapshot, batching full," in several
    assert "time relay:pipeline_groups=1" in several
    assert "threads" not in several


def test_choices_are_formatted_as_the_command_line_takes_them() -> None:
    assert format_choice("time", {"name": "relay", "pipeline_groups": 16}) == "relay"
    assert format_choice("time", {"name": "relay", "pipeline_groups": 4}) == "relay:pipeline_groups=4"
    assert format_choice("placement", {"name": "by-snapshot", "round_robin": False}) == "by-snapshot:round_robin=false"
    assert format_choice("placement", {"name": "custom", "seed": 3, "of": None}) == "custom:seed=3,of=none"
    axes = ["store full", "placement time-blocks", "batching full", "structure halo", "time relay"]
    assert format_plan(Plan().to_json()) == ", ".join([*axes, "schedule in-order", "sync all-reduce"])


def test_options_are_formatted_as_the_command_line_takes_them() -> None:
    assert [format_option(value) for value in (None, True, 3, (1, 2), "x")] == ["none", "true", "3", "1,2", "x"]
