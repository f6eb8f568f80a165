from __future__ import annotations

from typing import Any

import pytest

from strobe.engine.summary import (
    aligned,
    choice_in_short,
    compared,
    duration,
    figure,
    folded,
    plan_in_short,
    rank_table,
    run_summary,
    score_table,
    verdict,
    word,
)
from strobe.plan import Plan
from strobe.presets import preset


@pytest.mark.parametrize(
    ("ours", "theirs", "higher", "words"),
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
def test_comparisons_are_words(ours: float | None, theirs: float, higher: bool, words: str) -> None:
    assert compared(ours, theirs, higher) == words


def test_a_table_has_a_row_for_everybody() -> None:
    lines = score_table("test", "tgcn", {"mse": 0.5, "mae": 12.0}, {"last value": {"mse": 1.0}})
    assert [line.split() for line in lines] == [
        ["test", "mse", "mae"],
        ["tgcn", "0.5000", "12.00"],
        ["last", "value", "1.0000", "–"],
    ]
    assert len({len(line) for line in lines}) == 1
    assert score_table("test", "tgcn", {}, {}) == ["test: nothing could be asked"]


def test_a_verdict_names_every_baseline() -> None:
    said = verdict({"ap": 0.9}, {"popularity": {"ap": 0.6}, "odd": {}}, "ap", True)
    assert said == "ap: 50% better than popularity"


def test_numbers_and_durations_are_short() -> None:
    assert [figure(v) for v in (0.12345, 12.345, 1e-5, 123456.0, None)] == ["0.1235", "12.35", "1e-05", "1.23e+05", "–"]
    assert [duration(s) for s in (0.0012, 0.035, 4.21, 205, 7380)] == ["1.2 ms", "35 ms", "4.2 s", "3:25 min", "2:03 h"]
    assert [duration(s) for s in (0.00994, 0.00996, 0.9994, 0.9996)] == ["9.9 ms", "10 ms", "999 ms", "1.0 s"]
    assert [duration(s) for s in (59.94, 59.96)] == ["59.9 s", "1:00 min"]


def ledger(rank: int) -> dict[str, Any]:
    """Two epochs of a rank."""
    return {
        "sent": {"forward/relay": 4096 * (rank + 1), "sync/gradients": 2048, "evaluate/relay": 1024, "sync/agree": 16},
        "seconds": {"exposed": 0.2, "waiting": 0.1, "hidden": 0.04},
        "total_s": 1.0,
        "cells": 2000 + 1000 * rank,
        "arcs": 8000,
        "memory_bytes": 3 << 20,
    }


def test_ranks_have_a_row_each_for_a_mean_epoch() -> None:
    lines = rank_table([ledger(0), ledger(1)], 2)
    assert [line.split() for line in lines[1:4]] == [
        ["rank", "cells", "arcs", "computing", "exposed", "waiting", "hidden", "sent", "memory"],
        ["0", "1,000", "4,000", "350", "ms", "100", "ms", "50", "ms", "20", "ms", "3.5", "KiB", "3.0", "MiB"],
        ["1", "1,500", "4,000", "350", "ms", "100", "ms", "50", "ms", "20", "ms", "5.5", "KiB", "3.0", "MiB"],
    ]
    assert lines[4:6] == [
        "sent in an epoch: relay 7.0 KiB, gradients 2.0 KiB, the rest 16 B;",
        "  1.0 KiB of it to evaluate",
    ]
    assert lines[-1] == "fullest rank to emptiest: cells and arcs 1.10 times, computing 1.00 times"


def test_what_was_not_sent_is_told() -> None:
    spared = ledger(0) | {"spared": {"forward/halo": 3 << 20, "backward/halo": 1 << 20}}
    assert "2.0 MiB more if every row had travelled" in " ".join(rank_table([spared, ledger(1)], 2))


def test_a_rank_that_computes_nothing_is_said_to() -> None:
    idle = ledger(0) | {"cells": 0, "arcs": 0}
    assert rank_table([ledger(0), idle], 2)[-1] == "load: some ranks have nothing to compute"


def test_many_ranks_are_cut_in_the_middle() -> None:
    lines = rank_table([ledger(0)] * 40, 2)
    shown = [line.split()[0] for line in lines[2:19]]
    assert shown == [*map(str, range(15)), "…", "39"]


def test_a_summary_of_ranks_names_the_plan_and_fits_80_columns() -> None:
    result: dict[str, Any] = {"model": "tgcn", "graph": "town", "task": "regression", "parameters": 9, "epochs": 2}
    result |= {"seconds": 3.0, "seconds_per_epoch": 0.5, "best_epoch": 2, "stopped_early": False, "device": "cuda:0"}
    result |= {"test": {"mse": 0.5}, "baselines": {}, "metric": "mse", "higher_is_better": False, "threads": 4}
    alone = run_summary(result)
    assert "cuda:0, 4 threads" in alone
    assert "rank" not in alone
    several = run_summary(result | {"ranks": [ledger(0), ledger(1)], "plan": preset("pss").to_json()})
    assert max(map(len, several.splitlines())) <= 80
    assert "2 ranks on cuda: store full, placement by-snapshot, batching full," in several
    assert "time relay:groups=1" in several
    assert "threads" not in several


def test_choices_are_told_as_the_command_line_takes_them() -> None:
    assert choice_in_short("time", {"name": "relay", "groups": 16}) == "relay"
    assert choice_in_short("time", {"name": "relay", "groups": 4}) == "relay:groups=4"
    assert choice_in_short("placement", {"name": "by-snapshot", "dealt": False}) == "by-snapshot:dealt=false"
    assert choice_in_short("placement", {"name": "mine", "seed": 3, "of": None}) == "mine:seed=3,of=none"
    axes = ["store full", "placement time-blocks", "batching full", "structure halo", "time relay"]
    assert plan_in_short(Plan().to_json()) == ", ".join([*axes, "schedule in-order", "sync all-reduce"])


def test_words_are_values_the_command_line_reads_again() -> None:
    assert [word(value) for value in (None, True, 3, (1, 2), "x")] == ["none", "true", "3", "1,2", "x"]


def test_long_lines_are_broken_between_their_parts() -> None:
    text = "sent: " + ", ".join(f"kind number {k} {k}.5 KiB" for k in range(9))
    lines = folded(text)
    assert max(map(len, lines)) <= 80
    assert len(lines) > 1
    assert all(line.endswith((",", "KiB")) for line in lines)
    assert " ".join(line.strip() for line in lines) == text


def test_columns_of_numbers_end_together() -> None:
    assert aligned([["a", "1"], ["long", "234"]], words=1, gap=2) == ["a       1", "long  234"]
