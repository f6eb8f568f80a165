"""Tables of benchmarks/dynahb.py for the documents, from its record."""

from __future__ import annotations

from typing import Any

from benchmarks.dynahb import ALWAYS, OURS, SYSTEMS

FIGURES = {
    "speedup_vs_dbos_mean": "as soon as dbos at the same loss, times, mean",
    "speedup_vs_dbos_geometric_mean": "the same, geometric mean",
    "speedup_vs_dbos_min": "the same, least",
    "speedup_vs_full": "as soon as full batch, times, mean",
    "speedup_vs_dbov": "as soon as dbov, T-GCN",
    "speedup_vs_bvr": "as soon as bvr, T-GCN",
    "speedup_vs_1%": "as soon as 1% of the vertices in 20% of the snapshots, T-GCN",
    "speedup_vs_5%": "5% of the vertices",
    "speedup_vs_10%": "10%",
    "speedup_vs_20%": "20%",
    "learner_vs_random": "as soon as random sizes, T-GCN",
    "loss_vs_full_worst": "lowest loss for 1 of full batch's, highest",
    "generation_exposed_share": "steps waiting for batches, as a part of training",
    "step_memory_ratio": "tensors of a step for 1 of full batch's, T-GCN",
    "rank_speedup_2": "two ranks, as soon as one, T-GCN",
    "batch_build_speedup": "cutting out a batch, as fast as PyTorch Geometric, least",
    "batch_build_edges_per_s": "edges per second of that",
}


def races(record: dict[str, Any]) -> list[str]:
    """Seconds of each model on each graph."""
    rows = []
    for key, ran in record["samples"]["races"].items():
        full, dbos, ours = (ran[name] for name in ALWAYS)
        if any("failed" in each for each in (full, dbos, ours)):
            continue
        steps = " | ".join(f"{each['step_ms']:.1f}" for each in (full, dbos, ours))
        soon = " | ".join(
            "–" if each["to_full_s"] is None else f"{each['to_full_s']:.1f}" for each in (full, dbos, ours)
        )
        rows.append(
            f"| {' | '.join(key.split('/'))} | {steps} | {full['faster']:.1f} | {dbos['faster']:.1f} "
            f"| {dbos['loss_vs_full']:.2f} | {ours['loss_vs_full']:.2f} | {soon} |"
        )
    head = (
        "| graph | model | step of full, ms | of dbos | of dynahb | as soon as full, times | as soon as dbos "
        "| loss of dbos for 1 of full | of dynahb | s to full's loss, full | dbos | dynahb |"
    )
    return [head, "|---" * 12 + "|", *rows]


def sizes(record: dict[str, Any]) -> list[str]:
    """T-GCN with every system: how many times as long it took as the preset."""
    races = {key: ran for key, ran in record["samples"]["races"].items() if key.endswith("/tgcn")}
    names = [name for name in SYSTEMS if name != OURS]
    rows = [
        f"| {key.removesuffix('/tgcn')} | "
        + " | ".join(f"{ran[name]['faster']:.1f}" if "faster" in ran.get(name, {}) else "–" for name in names)
        + " |"
        for key, ran in races.items()
    ]
    return [f"| graph | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|", *rows]


def classes(record: dict[str, Any]) -> list[str]:
    """Accuracies beside the paper's."""
    rows = [
        f"| {name} | {way} | {each['accuracy']:.2%} | {each['seconds']:.1f} | {_share(each['paper'])} |"
        for name, found in record["samples"]["classes"].items()
        for way, each in found.items()
    ]
    return ["| graph | system | accuracy | after s | paper |", "|---|---|---|---|---|", *rows]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"
