"""Tables of benchmarks/dygnex.py for the documents, from its record."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.dygnex import PAPER_GREEDY, SCHEDULES

FIGURES = {
    "greedy_10000_s": "greedy, 10,000 groups, s",
    "optimal_100_s": "optimal, 100 groups, s",
    "optimal_100_gap": "how far that is above the bound, at most",
    "imbalance_optimal": "fullest rank for 1 of the emptiest, 4 ranks, optimal",
    "imbalance_greedy": "the same, greedy",
    "imbalance_in_order": "the same, in order",
    "length_optimal": "an epoch for 1 of ranks that never wait, optimal",
    "length_greedy": "the same, greedy",
    "length_in_order": "the same, in order",
    "efficiency_512": "simulated efficiency of greedy, 512 ranks",
    "efficiency_1024": "the same, 1,024 ranks",
    "linear_error": "error of a line about groups it has not seen",
    "epoch_speedup": "epochs in order for 1 of optimal, real ranks",
    "overhead_share": "timing and solving, as a part of 100 epochs",
    "metric_difference": "test metric beside groups in order, largest difference",
    "simulator_error": "simulated epochs beside measured ones, mean over plans",
    "simulator_error_worst": "the same, worst plan",
}


def solving(record: dict[str, Any]) -> list[str]:
    """Seconds to solve."""
    samples = record["samples"]
    rows = [
        f"| greedy | {int(count):,} | – | {seconds:.4f} | {gap:.1%} | greedy | {PAPER_GREEDY[int(count)]:.3f} |"
        for count, (seconds, gap) in samples["greedy"].items()
    ]
    rows += [
        f"| optimal | {count} | {float(wanted):.0%} | {seconds:.3f} | {gap:.2%} | {by} "
        f"| {f'{said:.2f}' if said < 30 else 'over 30'} |"
        for key, (seconds, gap, by, said) in samples["optimal"].items()
        for wanted, count in [key.split("/")]
    ]
    return [
        "| schedule | groups | wanted gap | s | above the bound | found by | paper, s |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]


def balance(record: dict[str, Any]) -> list[str]:
    """Imbalance and length by graph, model and schedule."""
    found = record["samples"]["balance"]
    ways = list(SCHEDULES)
    rows = [
        f"| {' | '.join(key.split('/'))} | "
        + " | ".join(f"{case[way][0]:.2f} | {case[way][1]:.3f}" for way in ways)
        + f" | {case['error']:.1%} | {case['noise']:.1%} |"
        for key, case in found.items()
    ]
    header = " | ".join(f"{way}: imbalance | length" for way in ways)
    columns = 2 * len(ways) + 4
    return [f"| graph | model | {header} | error of the line | both times apart |", "|---" * columns + "|", *rows]


def epochs(*records: dict[str, Any]) -> list[str]:
    """Epochs of real ranks, of a record for each machine."""
    rows = []
    for record in records:
        for name, case in record["samples"]["epochs"].items():
            took = {way: statistics.median(each) for way, each in case["seconds"].items()}
            told = " | ".join(f"{each:.3f}" for each in took.values())
            rows.append(
                f"| {name} | {record['hardware']['cores']} | {case['ranks']} | {told} "
                f"| {took['in order'] / took['optimal']:.2f} |"
            )
    header = "| graph | cores | ranks | in order, s | greedy, s | optimal, s | in order / optimal |"
    return [header, "|---" * 7 + "|", *rows]


def efficiency(record: dict[str, Any]) -> list[str]:
    """Efficiency by schedule, network and ranks."""
    found = record["samples"]["efficiency"]
    ranks = list(next(iter(found.values())))
    rows = [
        f"| {name} | " + " | ".join(f"{rows[r][0]:.1%}, {rows[r][1]:.2f}" for r in ranks) + " |"
        for name, rows in found.items()
    ]
    return [f"| ranks | {' | '.join(ranks)} |", "|---" * (len(ranks) + 1) + "|", *rows]


def quality(record: dict[str, Any]) -> list[str]:
    """Test metrics by set and schedule."""
    found = record["samples"]["quality"]
    ways = list(next(iter(found.values())))
    rows = [
        f"| {' | '.join(key.split('/'))} | "
        + " | ".join(f"{statistics.mean(scores[way]):.4g} ± {statistics.stdev(scores[way]):.2g}" for way in ways)
        + " |"
        for key, scores in found.items()
    ]
    return [f"| set | task | {' | '.join(ways)} |", "|---" * (len(ways) + 2) + "|", *rows]


def validation(record: dict[str, Any]) -> list[str]:
    """The simulator against real ranks."""
    samples = record["samples"]
    found = samples["validation"]
    rows = [
        f"| {name} | {told:.3f} | {true:.3f} | {told / true - 1:+.1%} |"
        for name, both in found.items()
        for told, true in [map(statistics.median, both)]
    ]
    return [
        f"| plan, {samples['validation_ranks']} ranks | simulated, s | measured, s | error |",
        "|---|---|---|---|",
        *rows,
    ]
