"""Writes the figures of the newest records, and the catalogue, into the documents: ``python -m benchmarks.render``.

A document says where, between ``<!-- figures: NAME -->`` and ``<!-- end -->``; numbers there are never typed.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks import dgc as dgc_benchmark
from benchmarks import distdy as distdy_benchmark
from benchmarks import distdy_tables, flare_tables, gpu_tables
from benchmarks import dygnex as dygnex_benchmark
from benchmarks import dynahb as dynahb_benchmark
from benchmarks import flare as flare_benchmark
from benchmarks.quality import START, best_baseline, gain
from benchmarks.record import RESULTS
from strobe.graph.datasets import DATA_SETS

ROOT = RESULTS.parent.parent
DOCUMENTS = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in ("data", "tasks", "training", "online", "measuring", "results", "clusters", "architecture", "gpu")
    ),
    *(f"docs/axes/{axis}.md" for axis in ("store", "placement", "batching", "exchange", "schedule", "sync")),
    "docs/presets/dgc.md",
    "docs/presets/distdy.md",
    "docs/presets/dygnex.md",
    "docs/presets/dynahb.md",
    "docs/presets/flare.md",
)
PICTURE = ROOT / "docs/online.svg"
_MARKED = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def ingest() -> list[str]:
    """The table of benchmarks/ingest.py."""
    record = _record("ingest")
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


def datasets() -> list[str]:
    """The catalogue of data sets."""
    rows = [
        f"| `{known.name}` | {known.title} | {known.nodes:,} | {known.edges:,} | {known.snapshots:,} "
        f"| {', '.join(known.tasks)} |"
        for known in sorted(DATA_SETS.values(), key=lambda known: known.name)
    ]
    return ["| name | what | nodes | edges | snapshots | tasks |", "|---|---|---|---|---|---|", *rows]


def _record(name: str) -> dict[str, Any]:
    """The newest record of a benchmark."""
    record: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return record


_PEER_NAMES = {"tgcn": "T-GCN", "evolvegcno": "EvolveGCN-O", "evolvegcnh": "EvolveGCN-H", "mpnnlstm": "MPNN-LSTM"}


def peers() -> list[str]:
    """The table of benchmarks/peers.py."""
    record = _record("peers")
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


def epoch() -> list[str]:
    """The tables of benchmarks/epoch.py as one."""
    record = _record("epoch")
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


def linear() -> list[str]:
    """The table of benchmarks/linear.py."""
    record = _record("linear")
    rows = [
        f"| {row['model']} | {row['nodes']:,} | {row['cells']:,} | {row['arcs']:,} | {row['ns_per_touch']:.1f} "
        f"| {row['bytes_per_cell']:,.0f} |"
        for row in record["samples"]["rows"]
    ]
    return [
        "| model | nodes | cells | arcs | ns per cell and arc | bytes per cell |",
        "|---|---|---|---|---|---|",
        *rows,
    ]


def quality() -> list[str]:
    """The table of benchmarks/quality.py: bold where a model beats every baseline, the fitted one included."""
    record = _record("quality")
    figures, sets = record["figures"], record["samples"]
    models = list(next(iter(sets.values()))["models"])
    columns = ["data set", "task", "metric", "best trivial answer", "start", *models, "seeds", "s"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for name, found in sets.items():
        trivial = best_baseline(found, with_start=False)
        start = found["baselines"].get(START)
        cells = [f"`{name}`", found["task"], found["metric"], f"{trivial}: {_short(found['baselines'][trivial])}"]
        cells.append("–" if start is None else _short(start))
        for model in models:
            value = _short(found["models"][model])
            cells.append(f"**{value}**" if gain(found, model) > 1 else value)
        seconds = sum(run["seconds"] for runs in found["runs"].values() for run in runs)
        lines.append("| " + " | ".join([*cells, str(len(found["seeds"])), f"{seconds:.0f}"]) + " |")
    pairs = len(sets) * len(models)
    return [
        *lines,
        "",
        f"Of {pairs} pairs of data set and model {round(pairs * figures['beaten_unfitted'])} beat the best trivial "
        f"answer, {round(pairs * figures['beaten'])} also the start. The whole run took "
        f"{figures['seconds'] / 60:.0f} minutes on one core of an {record['hardware']['cpu']}.",
    ]


def _short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}"


def ranks() -> list[str]:
    """The table of benchmarks/scaling.py: how well ranks share the work."""
    record = _record("scaling")
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


def relay_rows() -> list[str]:
    """The rows on the wire of benchmarks/scaling.py."""
    record = _record("scaling")
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


def hosts() -> list[str]:
    """The table of benchmarks/hosts.py."""
    figures = _record("hosts")["figures"]
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


_DGC = {
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


def dgc() -> list[str]:
    """The figures of benchmarks/dgc.py."""
    return _beside_paper("dgc", _DGC, dgc_benchmark.PAPER)


def _beside_paper(name: str, said: dict[str, str], paper: dict[str, float]) -> list[str]:
    """Figures of a benchmark in words, beside what a paper reports."""
    figures = _record(name)["figures"]
    rows = [
        f"| {told} | {_short(figures[figure])} | {_short(paper[figure]) if figure in paper else '–'} |"
        for figure, told in said.items()
        if figure in figures
    ]
    return ["| figure | here | paper |", "|---|---|---|", *rows]


def dgc_bytes() -> list[str]:
    """Megabytes by graph, model and number of ranks."""
    found = _record("dgc")["samples"]["traffic"]
    plans = [plan for plan in next(iter(found.values())) if plan != "load"]
    rows = [
        f"| {' | '.join(key.split('/'))} | {' | '.join(f'{sent[plan] / 1e6:,.1f}' for plan in plans)} "
        f"| {sent['load']:.2f} |"
        for key, sent in found.items()
    ]
    header = f"| graph | model | ranks | {', MB | '.join(plans)}, MB | load max/min of chunks |"
    return [header, "|---" * (len(plans) + 4) + "|", *rows]


def dgc_ways() -> list[str]:
    """Ways to assign chunks."""
    found = _record("dgc")["samples"]["ways"]
    graphs = list(next(iter(found.values())))
    rows = [
        f"| {way} | "
        + " | ".join(f"{sent / 1e6:.1f} MB, {load:.2f}, {seconds:.1f} s" for sent, load, seconds in by_graph.values())
        + " |"
        for way, by_graph in found.items()
    ]
    note = "Megabytes of an epoch with a row of 32 numbers along edges and in time, load max/min, seconds to place."
    return [f"| 4 ranks | {' | '.join(graphs)} |", "|---" * (len(graphs) + 1) + "|", *rows, "", note]


def dgc_labels() -> list[str]:
    """Label propagation by size."""
    found = _record("dgc")["samples"]["labels"].values()
    rows = [
        f"| {each['cells']:,} | {each['edges']:,} | {each['rate'] / 1e6:.0f} million "
        f"| {each['peak_bytes'] / 2**30:.2f} |"
        for each in found
    ]
    return ["| cells | edges | edges looked at per second | peak GiB |", "|---|---|---|---|", *rows]


def dgc_stale() -> list[str]:
    """Staleness by model and form."""
    rows = [
        f"| {' | '.join(key.split('/'))} | {saved:.1%} | {lost:+.2%} |"
        for key, (saved, lost) in _record("dgc")["samples"]["staleness"].items()
    ]
    return ["| graph | model | form | bytes saved | test error |", "|---|---|---|---|---|", *rows]


def dgc_link() -> list[str]:
    """Epochs of two hosts."""
    seconds = _record("dgc")["samples"]["link"]
    rows = [f"| {plan} | {each:.3f} | {each / seconds['dgc']:.2f} |" for plan, each in seconds.items()]
    return ["| plan | s an epoch | times as long as dgc |", "|---|---|---|", *rows]


_DYGNEX = {
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


def dygnex() -> list[str]:
    """The figures of benchmarks/dygnex.py."""
    return _beside_paper("dygnex", _DYGNEX, dygnex_benchmark.PAPER)


def dygnex_solving() -> list[str]:
    """Seconds to solve."""
    samples = _record("dygnex")["samples"]
    paper = dygnex_benchmark.PAPER_GREEDY
    rows = [
        f"| greedy | {int(count):,} | – | {seconds:.4f} | {gap:.1%} | greedy | {paper[int(count)]:.3f} |"
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


def dygnex_balance() -> list[str]:
    """Imbalance and length by graph, model and schedule."""
    found = _record("dygnex")["samples"]["balance"]
    ways = list(dygnex_benchmark.SCHEDULES)
    rows = [
        f"| {' | '.join(key.split('/'))} | "
        + " | ".join(f"{case[way][0]:.2f} | {case[way][1]:.3f}" for way in ways)
        + f" | {case['error']:.1%} | {case['noise']:.1%} |"
        for key, case in found.items()
    ]
    header = " | ".join(f"{way}: imbalance | length" for way in ways)
    columns = 2 * len(ways) + 4
    return [f"| graph | model | {header} | error of the line | both times apart |", "|---" * columns + "|", *rows]


def dygnex_epochs() -> list[str]:
    """Epochs of real ranks, on two machines."""
    rows = []
    for record in (_record("dygnex"), _record("dygnex_16_cores")):
        for name, case in record["samples"]["epochs"].items():
            took = {way: statistics.median(each) for way, each in case["seconds"].items()}
            told = " | ".join(f"{each:.3f}" for each in took.values())
            rows.append(
                f"| {name} | {record['hardware']['cores']} | {case['ranks']} | {told} "
                f"| {took['in order'] / took['optimal']:.2f} |"
            )
    header = "| graph | cores | ranks | in order, s | greedy, s | optimal, s | in order / optimal |"
    return [header, "|---" * 7 + "|", *rows]


def dygnex_efficiency() -> list[str]:
    """Efficiency by schedule, network and ranks."""
    found = _record("dygnex")["samples"]["efficiency"]
    ranks = list(next(iter(found.values())))
    rows = [
        f"| {name} | " + " | ".join(f"{rows[r][0]:.1%}, {rows[r][1]:.2f}" for r in ranks) + " |"
        for name, rows in found.items()
    ]
    return [f"| ranks | {' | '.join(ranks)} |", "|---" * (len(ranks) + 1) + "|", *rows]


def dygnex_quality() -> list[str]:
    """Test metrics by set and schedule."""
    found = _record("dygnex")["samples"]["quality"]
    ways = list(next(iter(found.values())))
    rows = [
        f"| {' | '.join(key.split('/'))} | "
        + " | ".join(f"{statistics.mean(scores[way]):.4g} ± {statistics.stdev(scores[way]):.2g}" for way in ways)
        + " |"
        for key, scores in found.items()
    ]
    return [f"| set | task | {' | '.join(ways)} |", "|---" * (len(ways) + 2) + "|", *rows]


def dygnex_validation() -> list[str]:
    """The simulator against real ranks."""
    samples = _record("dygnex")["samples"]
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


_DYNAHB = {
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
    "learner_vs_random": "as soon as sizes by lot, T-GCN",
    "loss_vs_full_worst": "lowest loss for 1 of full batch's, highest",
    "generation_exposed_share": "steps waiting for batches, as a part of training",
    "step_memory_ratio": "tensors of a step for 1 of full batch's, T-GCN",
    "rank_speedup_2": "two ranks, as soon as one, T-GCN",
    "batch_build_speedup": "cutting out a batch, as fast as PyTorch Geometric, least",
    "batch_build_edges_per_s": "edges per second of that",
}


def dynahb() -> list[str]:
    """The figures of benchmarks/dynahb.py."""
    return _beside_paper("dynahb", _DYNAHB, dynahb_benchmark.PAPER)


def dynahb_graphs() -> list[str]:
    """What was trained on."""
    rows = [
        f"| {name} | {each['said']} | {each['nodes']:,} | {each['training_snapshots']} | {each['training_cells']:,} "
        f"| {each['training_arcs']:,} |"
        for name, each in _record("dynahb")["samples"]["graphs"].items()
    ]
    return ["| graph | cut | nodes | training snapshots | cells | arcs |", "|---|---|---|---|---|---|", *rows]


def dynahb_races() -> list[str]:
    """Seconds of each model on each graph."""
    rows = []
    for key, ran in _record("dynahb")["samples"]["races"].items():
        full, dbos, ours = (ran[name] for name in dynahb_benchmark.ALWAYS)
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


def dynahb_sizes() -> list[str]:
    """T-GCN with every system: how many times as long it took as the preset."""
    races = {key: ran for key, ran in _record("dynahb")["samples"]["races"].items() if key.endswith("/tgcn")}
    names = [name for name in dynahb_benchmark.SYSTEMS if name != dynahb_benchmark.OURS]
    rows = [
        f"| {key.removesuffix('/tgcn')} | "
        + " | ".join(f"{ran[name]['faster']:.1f}" if "faster" in ran.get(name, {}) else "–" for name in names)
        + " |"
        for key, ran in races.items()
    ]
    return [f"| graph | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|", *rows]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def dynahb_classes() -> list[str]:
    """Accuracies beside the paper's."""
    rows = [
        f"| {name} | {way} | {each['accuracy']:.2%} | {each['seconds']:.1f} | {_share(each['paper'])} |"
        for name, found in _record("dynahb")["samples"]["classes"].items()
        for way, each in found.items()
    ]
    return ["| graph | system | accuracy | after s | paper |", "|---|---|---|---|---|", *rows]


def flare() -> list[str]:
    """The figures of benchmarks/flare.py."""
    return _beside_paper("flare", flare_tables.FIGURES, flare_benchmark.PAPER)


def distdy() -> list[str]:
    """The figures of benchmarks/distdy.py."""
    return _beside_paper("distdy", distdy_tables.FIGURES, distdy_benchmark.PAPER)


TABLES: dict[str, Callable[[], list[str]]] = {
    "gpu": lambda: gpu_tables.figures(_record("gpu")),
    "gpu_products": lambda: gpu_tables.products(_record("gpu")),
    "gpu_steps": lambda: gpu_tables.steps(_record("gpu")),
    "quality": quality,
    "peers": peers,
    "epoch": epoch,
    "linear": linear,
    "ranks": ranks,
    "relay_rows": relay_rows,
    "hosts": hosts,
    "dgc": dgc,
    "dgc_bytes": dgc_bytes,
    "dgc_ways": dgc_ways,
    "dgc_labels": dgc_labels,
    "dgc_stale": dgc_stale,
    "dgc_link": dgc_link,
    "dygnex": dygnex,
    "dygnex_solving": dygnex_solving,
    "dygnex_balance": dygnex_balance,
    "dygnex_epochs": dygnex_epochs,
    "dygnex_efficiency": dygnex_efficiency,
    "dygnex_quality": dygnex_quality,
    "dygnex_validation": dygnex_validation,
    "dynahb": dynahb,
    "dynahb_graphs": dynahb_graphs,
    "dynahb_races": dynahb_races,
    "dynahb_sizes": dynahb_sizes,
    "dynahb_classes": dynahb_classes,
    "flare": flare,
    "flare_graphs": lambda: flare_tables.graphs(_record("flare")),
    "flare_errors": lambda: flare_tables.errors(_record("flare")),
    "flare_savings": lambda: flare_tables.savings(_record("flare")),
    "flare_peers": lambda: flare_tables.peers(_record("flare")),
    "distdy": distdy,
    "distdy_real": lambda: distdy_tables.real(_record("distdy")),
    "distdy_synthetic": lambda: distdy_tables.synthetic(_record("distdy")),
    "distdy_changes": lambda: distdy_tables.changes(_record("distdy")),
    "distdy_settings": lambda: distdy_tables.settings(_record("distdy")),
    "distdy_partition": lambda: distdy_tables.partition(_record("distdy")),
    "distdy_rebuild": lambda: distdy_tables.rebuild(_record("distdy")),
    "distdy_epochs": lambda: distdy_tables.epochs(_record("distdy")),
    "online": lambda: distdy_tables.online(_record("distdy")),
    "online_kills": lambda: distdy_tables.kills(_record("distdy")),
    "ingest": ingest,
    "datasets": datasets,
}


def rendered(text: str) -> str:
    """The document with its figures as the records have them."""
    return _MARKED.sub(lambda match: match[1] + "\n".join(TABLES[match[2]]()) + "\n" + match[3], text)


def main() -> None:
    """Renders all documents."""
    for name in DOCUMENTS:
        document = ROOT / name
        document.write_text(rendered(document.read_text()))
        print(f"rendered {name}")
    PICTURE.write_text(distdy_tables.picture(_record("distdy")))


if __name__ == "__main__":
    main()
