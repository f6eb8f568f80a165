"""Tables of benchmarks with a table or two, from their records, and what all tables share."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.protocols import METHODS
from strobe.graph.datasets import DATASETS
from strobe.protocols import PublishedRow, find_protocol

_PEER_NAMES = {"tgcn": "T-GCN", "evolvegcno": "EvolveGCN-O", "evolvegcnh": "EvolveGCN-H", "mpnnlstm": "MPNN-LSTM"}


def beside_paper(record: dict[str, Any], said: dict[str, str], paper: dict[str, float]) -> list[str]:
    """Figures of a benchmark in words, beside what a paper reports."""
    figures = record["figures"]
    rows = [
        f"| {told} | {_short(figures[figure])} | {_short(paper[figure]) if figure in paper else '–'} |"
        for figure, told in said.items()
        if figure in figures
    ]
    return ["| figure | here | paper |", "|---|---|---|", *rows]


def ingest(record: dict[str, Any]) -> list[str]:
    """The table of benchmarks/ingest.py."""
    figures, samples = record["figures"], record["samples"]
    written, opened = samples["write"], samples["open"]
    return [
        "| question | answer |",
        "|---|---|",
        f"| {samples['events']:,} events, CSV to graph on disk | {figures['ingest_rows_per_s']:,.0f} rows/s, "
        f"{figures['ingest_speedup']:.1f} times as fast as pandas |",
        f"| its peak memory | {figures['ingest_peak_gib']:.2f} GiB, "
        f"{figures['ingest_memory_ratio']:.2f} of what pandas takes |",
        f"| generate and write {written['nodes']:,} nodes, {written['edges']:,} edges | {written['seconds']:.0f} s, "
        f"peak memory {figures['big_write_gib']:.2f} GiB |",
        f"| open it ({opened['bytes'] / 2**30:.2f} GiB) | {1000 * figures['big_open_s']:.1f} ms, "
        f"{figures['big_open_mib']:.1f} MiB |",
    ]


def peers(record: dict[str, Any]) -> list[str]:
    """The table of benchmarks/peers.py."""
    rows = []
    for model, name in _PEER_NAMES.items():
        ours, theirs = record["samples"][model]["strobe"], record["samples"][model]["pygt"]
        speedup = record["figures"][f"{model}_speedup"]
        rows.append(
            f"| {name} | {ours['median_s']:.2f} s | {theirs['median_s']:.2f} s | {speedup:.1f} "
            f"| {ours['peak_bytes'] / 2**20:,.0f} MiB | {theirs['peak_bytes'] / 2**20:,.0f} MiB |"
        )
    graph = record["samples"]["graph"]
    size = f"{graph['nodes']:,} nodes, {graph['snapshots']} snapshots of {graph['edges_per_snapshot']:,} edges"
    return [
        f"| an epoch on {size} | Strobe | the peer | times as fast | memory | the peer's |",
        "|---|---|---|---|---|---|",
        *rows,
    ]


def epoch(record: dict[str, Any]) -> list[str]:
    """The tables of benchmarks/epoch.py as one."""
    figures = record["figures"]
    rows = []
    for key, stage in record["samples"].items():
        model, name = key.split(" ")
        floor = stage["floor_s"]
        against = f"{1000 * floor:.0f} | {stage['seconds'] / floor:.1f}" if floor else "– | –"
        rows.append(
            f"| {model} | `{name.lstrip('_')}` | {1000 * stage['seconds']:.0f} | {stage['share']:.0%} | {against} |"
        )
    return [
        f"Copying: {figures['copy_gb_per_s']:.1f} GB/s. Multiplying: {figures['multiply_gflop_per_s']:.0f} GFLOP/s.",
        "",
        "| model | stage | ms | share | floor, ms | times the floor |",
        "|---|---|---|---|---|---|",
        *rows,
    ]


_STARTUP = {
    "cpu_setup_epochs": "50,000 nodes, 20 snapshots of 150,000 edges, CPU: all before the first epoch, in epochs",
    "tiny_cpu_vs_torch": "`strobe train england_covid --epochs 2`: CPU seconds, of those of `import torch`",
    "tiny_mib_above_torch": "the same: MiB above `import torch`",
    "metr_disk_mb": "a graph of the shape of METR-LA: MB on disk",
    "metr_step_vs_before": "a step on it, of that at a34e82b",
    "evaluate_share_small": "evaluation on chickenpox, of training",
    "link_snapshot_ms": "link prediction, 10,000 tiny snapshots: CPU ms a snapshot and epoch",
    "link_epoch_speedup": "link prediction, 20,000 nodes, 8 × 60,000 edges: epochs, times as fast as at a34e82b",
    "link_around_epochs": "the same: all but the passes of three epochs, in epochs",
    "link_around_epochs_1m": "the same on 1M nodes",
    "gpu_run_s": "H200, 17.6M cells, four epochs of T-GCN in a fresh process, kernels compiled before: s",
    "gpu_run_cached_s": "the same once more, with the cache: s",
    "gpu_run_worst_s": "the same, the slowest of seven other models: s",
    "gpu_first_epoch_worst": "the same: first epoch in later ones, the worst",
}


def startup(record: dict[str, Any]) -> list[str]:
    """The figures of benchmarks/startup.py, and why others are missing."""
    lines = ["| what | value |", "|---|---|"]
    for name, what in _STARTUP.items():
        value = f"{record['figures'][name]:.3g}" if name in record["figures"] else record["missing"].get(name, "")
        lines.append(f"| {what} | {value} |")
    return lines


def linear(record: dict[str, Any]) -> list[str]:
    """The tables of benchmarks/linear.py: epochs, then whole runs."""
    rows = [
        f"| {row['model']} | {row['nodes']:,} | {row['cells']:,} | {row['arcs']:,} | {row['ns_per_touch']:.1f} "
        f"| {row['bytes_per_cell']:,.0f} |"
        for row in record["samples"]["rows"]
    ]
    runs = [
        f"| {row['task']} | {row['preset']} | {row['nodes']:,} × {row['snapshots']:,} | {row['cells']:,} "
        f"| {row['run_s']:.2f} | {row['run_s'] / row['product_s']:.1f} "
        f"| {1e9 * row['run_s'] / (row['cells'] + row['arcs']):,.0f} | {1e9 * row['product_s'] / row['arcs']:.1f} |"
        for row in record["samples"].get("runs", [])
    ]
    return [
        "| model | nodes | cells | arcs | ns per cell and arc | bytes per cell |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "| task | preset | nodes × snapshots | cells | CPU s a run | products of its size | ns per cell and arc "
        "| product, ns an arc |",
        "|---|---|---|---|---|---|---|---|",
        *runs,
    ]


def ranks(record: dict[str, Any]) -> list[str]:
    """The table of benchmarks/scaling.py: how well ranks share the work."""
    figures, speed = record["figures"], record["samples"]["speed"]
    rows = [
        f"| {name} | {count} | {statistics.median(speed[name]['1']):.3f} | {statistics.median(speed[name][count]):.3f} "
        f"| {found['efficiency']:.2f} | {found['exposed']:.1%} | {found['waiting']:.1%} | {found['load']:.2f} "
        f"| {found['sent'] / 1e6:.1f} |"
        for key, found in speed.items()
        if "/" in key
        for name, count in [key.split("/")]
    ]
    return [
        "| plan | ranks | one rank, s | s an epoch | efficiency | exposed | waiting | load max/min | MB sent |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"Two processes that share nothing but the machine reach {figures['ceiling_2']:.2f}: no plan can do better. "
        f"In relayed time stages of two ranks, {figures['relay_busy_share']:.0%} of the ranks' time is computing. What "
        f"ledgers count is {figures['ledger_vs_kernel_bytes']:.3f} of the bytes that the kernel saw between two hosts.",
    ]


def relay_rows(record: dict[str, Any]) -> list[str]:
    """The rows on the wire of benchmarks/scaling.py."""
    found = record["samples"]["rows"]
    plans = list(next(iter(found.values())))
    rows = [
        f"| {name} | " + " | ".join(f"**{sent[p]:,}**" if p == "relay" else f"{sent[p]:,}" for p in plans) + " |"
        for name, sent in found.items()
    ]
    share = record["figures"]["relay_rows_vs_best_paper_mean"]
    return [
        "| graph, ranks | " + " | ".join(plans) + " |",
        "|---" * (len(plans) + 1) + "|",
        *rows,
        "",
        f"Relay sends {share:.2f} of the rows of the best of pss, pts, pss-ts and metis, on average. `pss in blocks` "
        "has consecutive snapshots per rank: about the rows of relay, but blocks of equal number, not of equal load, "
        "and no pipeline.",
    ]


def hosts(record: dict[str, Any]) -> list[str]:
    """The table of benchmarks/hosts.py."""
    figures = record["figures"]
    rows = [
        f"| {plan} | {figures[f'{plan}_megabytes']:.1f} | {figures[f'{plan}_seconds_1gb']:.3f} "
        f"| {figures[f'{plan}_exposed_1gb']:.0%} | {figures[f'{plan}_seconds_100mb']:.3f} "
        f"| {figures[f'{plan}_exposed_100mb']:.0%} |"
        for plan in ("relay", "metis", "hash")
    ]
    return [
        "| plan | MB a rank sends an epoch | 1 Gb/s: s an epoch | exposed | 100 Mb/s: s an epoch | exposed |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        f"One rank alone: {figures['one_rank_seconds']:.3f} s an epoch.",
    ]


def datasets() -> list[str]:
    """The catalogue of data sets."""
    rows = [
        f"| `{known.name}` | {known.title} | {known.nodes:,} | {known.edges:,} | {known.snapshots:,} "
        f"| {', '.join(known.tasks)} |"
        for known in sorted(DATASETS.values(), key=lambda known: known.name)
    ]
    return ["| name | what | nodes | edges | snapshots | tasks |", "|---|---|---|---|---|---|", *rows]


def _short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}"


def graphs(record: dict[str, Any]) -> list[str]:
    """What was trained on."""
    rows = [
        f"| {name} | {each['said']} | {each['nodes']:,} | {each['training_snapshots']} | {each['training_cells']:,} "
        f"| {each['training_arcs']:,} |"
        for name, each in record["samples"]["graphs"].items()
    ]
    return ["| graph | cut | nodes | training snapshots | cells | arcs |", "|---" * 6 + "|", *rows]


def protocols(record: dict[str, Any]) -> list[str]:
    """The table of benchmarks/protocols.py: every protocol and data set, beside the published rows."""
    by_set: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in record["samples"].values():
        by_set.setdefault((each["protocol"], each["data"]), []).append(each)
    lines = []
    for (name, data), found in sorted(by_set.items()):
        protocol = find_protocol(name)
        more = [name for name in protocol.more_metrics if any(name in each.get("more", {}) for each in found)]
        trained = METHODS[name].get(data, ())
        rows = [(each["mean"], _protocol_row(each, more, trained=each["method"] in trained)) for each in found]
        rows += [(row.test, _published_row(row, more)) for row in protocol.published(data)]
        rows.sort(key=lambda row: row[0], reverse=protocol.higher_is_better)
        names = ["method", "from", "seeds", "validation", "test", *more]
        lines += [
            f"`strobe benchmark {name} --data {data}`, {protocol.metric}:",
            "",
            f"| {' | '.join(names)} |",
            f"|{'---|' * len(names)}",
            *(row for _, row in rows),
            "",
        ]
    return lines


def _protocol_row(each: dict[str, Any], more: list[str], *, trained: bool) -> str:
    validation, test = f"{each['validation_mean']:.4f}", f"{each['mean']:.4f}{_spread(each['deviation'])}"
    values = each.get("more", {})
    others = [f"{sum(values[name]) / len(values[name]):.4f}" if name in values else "–" for name in more]
    if trained:
        cells = [f"**{each['method']}**", "Strobe", str(len(each["seeds"])), validation, f"**{test}**", *others]
    else:
        cells = [each["method"], "baseline", "–", validation, test, *others]
    return f"| {' | '.join(cells)} |"


def _published_row(row: PublishedRow, more: list[str]) -> str:
    others = [f"{row.more[name]:.4g}" if name in row.more else "–" for name in more]
    seeds, test = str(row.seeds or "–"), f"{row.test:.4g}{_spread(row.deviation)}"
    return f"| {' | '.join([row.method, row.confidence, seeds, '–', test, *others])} |"


def _spread(deviation: float | None) -> str:
    return "" if deviation is None else f" ± {deviation:.4f}"


def tied_ranks(record: dict[str, Any]) -> list[str]:
    """The table of benchmarks/tied_ranks.py beside the published values."""
    lines = [
        "| ROLAND-GRU as its authors train it | published | their order of ties | mean over orders, probabilities | "
        "mean over orders, logits | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for data in dict.fromkeys(each["data"] for each in record["samples"].values()):
        samples = [each for each in record["samples"].values() if each["data"] == data]
        columns = [
            [each[rule] for each in samples] for rule in ("authors_order", "expected_probability", "expected_logit")
        ]
        published = next(
            row for row in find_protocol("roland-fixed").published(data) if row.method.startswith("ROLAND")
        )
        values = [f"{statistics.fmean(each):.3f}{_spread(statistics.stdev(each))}" for each in columns]
        lines.append(f"| `{data}` | {' | '.join([f'{published.test:.4g}', *values])} | {len(samples)} |")
    return lines
