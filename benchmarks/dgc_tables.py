"""Tables of benchmarks/dgc.py for the documents, from its record."""

from __future__ import annotations

from typing import Any

FIGURES = {
    "bytes_vs_best_mean": "bytes of chunks for 1 of the best of pss, pts and pss-ts, mean",
    "bytes_vs_best_worst": "the same, worst",
    "load_max_min": "load of the fullest rank for 1 of the emptiest, worst",
    "predictor_error": "error of predicted seconds on chunks held out",
    "rows_saved": "rows that fusing saves from being loaded again",
    "padding_left": "padding left in lanes, worst",
    "stale_bytes_saved": "bytes that staleness saves, threshold as described",
    "stale_metric_loss": "what the test metric loses by that",
    "stale_bytes_saved_printed": "bytes that staleness saves, threshold as printed",
    "stale_metric_loss_printed": "what the test metric loses by that",
    "partition_share": "placing, as a part of 100 epochs",
    "lp_edges_per_s": "edges that label propagation looks at in a second",
    "lp_peak_gib": "peak memory of that, 50M cells and 100M edges, GiB",
    "epoch_speedup_1gbit": "times as fast as the best baseline, two hosts, 1 Gb/s",
}


def sent(record: dict[str, Any]) -> list[str]:
    """Megabytes by graph, model and number of ranks."""
    found = record["samples"]["traffic"]
    plans = [plan for plan in next(iter(found.values())) if plan != "load"]
    rows = [
        f"| {' | '.join(key.split('/'))} | {' | '.join(f'{sent[plan] / 1e6:,.1f}' for plan in plans)} "
        f"| {sent['load']:.2f} |"
        for key, sent in found.items()
    ]
    header = f"| graph | model | ranks | {', MB | '.join(plans)}, MB | load max/min of chunks |"
    return [header, "|---" * (len(plans) + 4) + "|", *rows]


def ways(record: dict[str, Any]) -> list[str]:
    """Ways to assign chunks."""
    found = record["samples"]["ways"]
    graphs = list(next(iter(found.values())))
    rows = [
        f"| {way} | "
        + " | ".join(f"{sent / 1e6:.1f} MB, {load:.2f}, {seconds:.1f} s" for sent, load, seconds in by_graph.values())
        + " |"
        for way, by_graph in found.items()
    ]
    note = "Megabytes of an epoch with a row of 32 numbers along edges and in time, load max/min, seconds to place."
    return [f"| 4 ranks | {' | '.join(graphs)} |", "|---" * (len(graphs) + 1) + "|", *rows, "", note]


def labels(record: dict[str, Any]) -> list[str]:
    """Label propagation by size."""
    found = record["samples"]["labels"].values()
    rows = [
        f"| {each['cells']:,} | {each['edges']:,} | {each['rate'] / 1e6:.0f} million "
        f"| {each['peak_bytes'] / 2**30:.2f} |"
        for each in found
    ]
    return ["| cells | edges | edges looked at per second | peak GiB |", "|---|---|---|---|", *rows]


def stale(record: dict[str, Any]) -> list[str]:
    """Staleness by model and form."""
    rows = [
        f"| {' | '.join(key.split('/'))} | {saved:.1%} | {lost:+.2%} |"
        for key, (saved, lost) in record["samples"]["staleness"].items()
    ]
    return ["| graph | model | form | bytes saved | test error |", "|---|---|---|---|---|", *rows]


def link(record: dict[str, Any]) -> list[str]:
    """Epochs of two hosts."""
    seconds = record["samples"]["link"]
    rows = [f"| {plan} | {each:.3f} | {each / seconds['dgc']:.2f} |" for plan, each in seconds.items()]
    return ["| plan | s an epoch | times as long as dgc |", "|---|---|---|", *rows]
