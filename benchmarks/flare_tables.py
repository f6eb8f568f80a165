"""Tables of benchmarks/flare.py for the documents, from its record."""

from __future__ import annotations

from typing import Any

from benchmarks.flare_runs import CUT, DBOS, DYNAHB, FULL, OURS, RECENT

FIGURES = {
    "memory_vs_full": "memory of a process that trains, for 1 of full history's, mean",
    "tensors_vs_full": "bytes of tensors, for 1 of full history's, mean",
    "time_vs_full": "seconds of a pass, for 1 of full history's, mean",
    "time_vs_full_worst": "the same, highest",
    "rows_vs_full": "cells computed, for 1 of full history's, mean",
    "sooner_than_full": "as soon as full history at the same error, times, mean",
    "mse_vs_full_worst": "test error for 1 of full history's, highest",
    "mse_vs_full_mean": "the same, mean",
    "mse_vs_recent_only_best": "test error for 1 of recent-only's, lowest",
    "mse_vs_inherited_best": "test error for 1 of K = 2 with inherited states, lowest",
    "shrink_gain": "what renumbering in every step takes more, mean",
    "overlap_gain": "exposed communication saved by overlap, 1 Gb/s",
    "chunking_share": "placing in chunks, as a part of the run, most",
    "shuffle_share": "drawing their order, as a part of the run, most",
    "memory_per_rank_2": "memory of each of two ranks for 1 of one alone",
    "memory_per_rank_4": "of each of four",
    "youtube_peak_gib": "soc-youtube at 100%, two ranks: GiB of both",
    "youtube_step_s": "seconds of a step there",
    "youtube_loss_fall": "by how much its loss falls from the first pass to the second",
    "peer_memory_ratio": "peak memory for 1 of the public code's, MPNN-LSTM",
    "peer_cpu_ratio": "CPU seconds of an epoch for 1 of the public code's",
}
"""In words."""


def errors(record: dict[str, Any]) -> list[str]:
    """Test errors of all systems, for 1 of full history's."""
    systems = (OURS, RECENT, CUT, DBOS, DYNAHB)
    rows = []
    for key, found in record["samples"]["history"].items():
        if "failed" in found[FULL]:
            continue
        full = found[FULL]["test_mse"]
        cells = [_ratio(found.get(name, {}).get("test_mse"), full) for name in systems]
        rows.append(f"| {' | '.join(key.split('/'))} | {full:.4f} | {' | '.join(cells)} |")
    head = "| graph | model | full history's error | " + " | ".join(systems) + " |"
    return [head, "|---" * (3 + len(systems)) + "|", *rows]


def savings(record: dict[str, Any]) -> list[str]:
    """Seconds, rows and memory of ours and of full history."""
    memory = record["samples"].get("memory", {}).get("measured", {})
    seconds = record["samples"].get("passes", {}).get("for_1", {})
    rows = []
    for key, found in record["samples"]["history"].items():
        if "ours_for_1" not in found[FULL]:
            continue
        beside = found[FULL]["ours_for_1"]
        sooner = "–" if beside["sooner"] is None else f"{beside['sooner']:.1f}"
        weighed = [memory.get(key, {}).get(name, {}).get("added_bytes") for name in (OURS, FULL)]
        megabytes = " | ".join("–" if each is None else f"{each / 2**20:,.0f}" for each in weighed)
        rows.append(
            f"| {' | '.join(key.split('/'))} | {beside['rows']:.2f} | {_ratio(seconds.get(key), 1.0)} | {sooner} "
            f"| {megabytes} | {_ratio(*weighed)} |"
        )
    head = (
        "| graph | model | cells for 1 of full history | seconds of a pass | as soon, times "
        "| MiB, ours | full history's | for 1 |"
    )
    return [head, "|---" * 8 + "|", *rows]


def peers(record: dict[str, Any]) -> list[str]:
    """MPNN-LSTM beside the public code of the paper."""
    rows = [
        f"| {hidden} | {each['ours']['cpu_s']:.2f} | {each['peer']['cpu_s']:.1f} | {each['ours']['peak_gb']:.2f} "
        f"| {each['peer']['peak_gb']:.1f} |"
        for hidden, each in record["samples"].get("peers", {}).items()
    ]
    return ["| hidden columns | CPU s of an epoch | public code's | peak GB | public code's |", "|---" * 5 + "|", *rows]


def _ratio(value: float | None, whole: float | None) -> str:
    return "–" if value is None or not whole else f"{value / whole:.2f}"
