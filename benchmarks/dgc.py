"""Chunks, fusion and staleness: what do they save, against the ways of DGC's baselines, and what do they cost?

- Bytes of an epoch, both ways, on the training snapshots of real graphs (edges read from both sides) and of generated
  ones that are more or less uneven: chunks against whole snapshots in turn that fetch every temporal input (pss), nodes
  by hash (pts) and snapshots, then sequences (pss-ts), as the paper runs them; and against time blocks with relay, our
  own. Counted from who owns which cell, which one real run must confirm to the byte.
- Loads are a model's seconds as learned on this machine, per rank; the error is on chunks that were not learned from.
- Rows loaded, by the ledger, chunk by chunk and fused under a budget.
- Padding of sequences of one rank, in lanes.
- Staleness: bytes and test metric of trained models, for both forms of the threshold.
- Label propagation on 50M cells and 100M edges: links looked at per second, and memory.
- Epochs of two hosts with a link of 1 Gb/s.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

import strobe
from benchmarks import hosts
from benchmarks.parts import run_parts
from benchmarks.real_graphs import real_graphs
from benchmarks.record import Record, child, options, table, tell
from strobe.batching import Fused
from strobe.engine import Run
from strobe.engine.inputs.model_choice import ModelChoice, choose_model
from strobe.engine.model_costs import measure_model_costs
from strobe.exchange import Exchange, Halo, Relay, Stale
from strobe.exchange.stale import Adapt
from strobe.graph import DynamicGraph
from strobe.graph.features import Degrees
from strobe.graph.synthetic import Uneven
from strobe.io.cache import Cache
from strobe.ops.time.packing import PackedSequences
from strobe.ops.time.sequences import Sequences
from strobe.placement import Chunks, Hash, ModelCosts, Partition, TimeBlocks
from strobe.placement.algorithms.chunk_graph import sizes_of_chunks
from strobe.placement.model_costs import count_load
from strobe.plan import Plan
from strobe.planner import get_predicted_loads
from strobe.presets import preset
from tests.support.hosts import NoHostsError, two_hosts

MODULE = "benchmarks.dgc"
MODELS: dict[str, dict[str, Any]] = {"tgcn": {"layers": 2}, "dysat": {"layers": 2}, "mpnn-lstm": {}}
"""With two convolutions each: what the first reads has no weights before it, and never travels."""

REAL = ("mathoverflow_monthly", "as733", "rust_git", "icews18")
TRAIN = 0.7
SMALL = Uneven(cells=4_000, edges=6_000, snapshots=20, mean_length=10.0, length_spread=3.0, edge_spread=50.0)
PAPER: dict[str, float] = {
    "load_max_min": 1.23,
    "predictor_error": 0.10,
    "rows_saved": 0.606,
    "stale_bytes_saved": 0.8026,
    "stale_metric_loss": 0.0156,
    "partition_share": 0.04,
    "epoch_speedup_1gbit": 1.25,
}
"""What the paper reports of its own machine and graphs; of ranges the less favourable end."""


def main() -> None:
    """Measures and prints everything."""
    chosen = options(__doc__ or "")
    if chosen.child:
        return label_rate(float(chosen.child[0]))
    record = Record("dgc", chosen.quick)
    parts = (traffic, ways, prediction, fusion, padding, staleness, overhead, labels, link)
    run_parts(record, {part.__name__: partial(part, record, chosen.quick) for part in parts}, chosen, PAPER)
    return None


def graphs(quick: bool) -> Iterator[tuple[str, DynamicGraph]]:
    """Training snapshots of real graphs, then of generated ones, from even to uneven."""
    for name, graph in real_graphs(REAL[: 1 if quick else None]):
        yield name, _training(graph)
    kinds = (("in length", 0.0, 0.8), ("in edges", 0.8, 0.0), ("even", 0.0, 0.0))
    for unevenness, edge_spread, length_spread in kinds[: 1 if quick else None]:
        size = 20_000 if quick else 500_000
        made = Uneven(
            cells=size,
            edges=2 * size // 5,
            edge_spread=edge_spread * size / 250,
            mean_length=50.0,
            length_spread=50.0 * length_spread,
        )
        yield f"uneven, {unevenness}", made.write()


def traffic(record: Record, quick: bool) -> None:
    """Bytes between ranks and loads, by graph, model and number of ranks."""
    lines, shares, loads = [], [], []
    for name, graph in graphs(quick):
        for model, model_options in MODELS.items():
            for ranks in (4,) if quick else (4, 8):
                sent, load = _bytes_by_plan(graph, choose_model(model, model_options), ranks, quick)
                best = min(sent[plan] for plan in ("pss", "pts", "pss-ts"))
                share = sent["chunks"] / best
                shares.append(share)
                loads.append(load)
                record.samples.setdefault("traffic", {})[f"{name}/{model}/{ranks}"] = sent | {"load": load}
                millions = [f"{value / 1e6:.2f}" for value in sent.values()]
                lines.append([name, model, ranks, *millions, f"{share:.2f}", f"{load:.2f}"])
    table(["graph", "model", "ranks", "chunks", "pss", "pts", "pss-ts", "time blocks", "ours / best", "load"], lines)
    record.figures |= {
        "bytes_vs_best_mean": statistics.mean(shares),
        "bytes_vs_best_worst": max(shares),
        "load_max_min": max(loads),
    }
    _confirm()


def _bytes_by_plan(graph: DynamicGraph, choice: ModelChoice, ranks: int, quick: bool) -> tuple[dict[str, float], float]:
    """Megabytes of an epoch by plan; the largest load of chunks for 1 of the smallest."""
    work = _work(graph, choice, quick)
    whole = [range(len(graph))]
    chunks = Chunks(loads="predicted").place(graph, whole, ranks, costs=work).with_sequence_owner(graph)
    snapshots = preset("pss").placement.place(graph, whole, ranks)
    placed = {
        "chunks": chunks,
        "pss": snapshots.with_sequence_owner(graph),
        "pts": Hash().place(graph, whole, ranks),
        "pss-ts": preset("pss-ts").placement.place(graph, whole, ranks),
        "time blocks": TimeBlocks().place(graph, whole, ranks).with_sequence_owner(graph),
    }
    in_time = {"pss-ts": _shuffled(graph, choice)}
    sent = {name: 2 * forward_bytes(graph, each, in_time.get(name, work)) for name, each in placed.items()}
    if work.cell_bytes:  # attention fetches every cell that a later one elsewhere looks back at; results stay
        sent["pss"] = 2 * work.cell_bytes / 2 * _looked_back_at(graph, snapshots, ranks)
    assert chunks.cell_owner is not None
    seconds = work.load_model(sizes_of_chunks(graph, chunks.cell_owner, ranks))
    return sent, float(seconds.max() / seconds.min())


def _work(graph: DynamicGraph, choice: ModelChoice, quick: bool) -> ModelCosts:
    """What a model sends along edges and, relayed or shuffled as it can be, in time; seconds as learned."""
    graph = graph.with_features(Degrees(log=True))
    loads = count_load if quick else get_predicted_loads(choice, graph)
    return measure_model_costs(choice, graph, Exchange(structure=Halo(), time=Relay()), torch.float32, loads)


def _shuffled(graph: DynamicGraph, choice: ModelChoice) -> ModelCosts:
    """The same where everything in time is shuffled."""
    return measure_model_costs(choice, graph.with_features(Degrees(log=True)), preset("pss-ts").exchange, torch.float32)


def forward_bytes(graph: DynamicGraph, placed: Partition, work: ModelCosts) -> float:
    """What all ranks send in a pass forward over a graph, counted from who owns what."""
    halo = cuts = away = 0
    home = np.full(graph.num_nodes, -1, np.int64)
    assert placed.sequence_owner is not None
    for snapshot in graph:
        owner = placed.owners(graph, snapshot.t).astype(np.int64)
        read, reader = snapshot.arcs()
        cut = owner[read] != owner[reader]
        halo += len(np.unique(read[cut].astype(np.int64) * placed.num_ranks + owner[reader[cut]]))
        was = home[snapshot.nodes]
        cuts += int(((was >= 0) & (was != owner)).sum())
        away += int((placed.sequence_owner[snapshot.nodes] != owner).sum())
        home[snapshot.nodes] = owner
    return work.arc_bytes * halo + work.state_bytes * cuts + work.cell_bytes * away


def _looked_back_at(graph: DynamicGraph, placed: Partition, ranks: int) -> int:
    """Pairs of a cell and another rank that has a later cell of its node."""
    later = np.zeros((graph.num_nodes, ranks), bool)
    pairs = 0
    for t in reversed(range(len(graph))):
        nodes, owner = graph[t].nodes, placed.owners(graph, t)
        pairs += int(later[nodes].sum() - later[nodes, owner].sum())
        later[nodes, owner] = True
    return pairs


def _confirm() -> None:
    """Real ranks must send what was counted."""
    made = SMALL.write()
    plan = Plan(placement=Chunks(), exchange=Exchange(structure=Halo(), time=Relay()))
    run = trained(made, "tgcn", 1, plan=plan, ranks=2)
    graph, split = run.job.problem.graph, run.job.problem.split
    work = measure_model_costs(run.job.choice, graph, plan.exchange, torch.float32)
    placed = plan.placement.place(graph, [split.train, split.validation, split.test], 2, costs=work)
    assert placed.cell_owner is not None
    part = replace(
        placed.with_sequence_owner(graph), cell_owner=placed.cell_owner[: int(graph.cell_ptr[split.train.stop])]
    )
    counted = 2 * forward_bytes(graph[: split.train.stop], part, work)
    sent = sum(
        number
        for rank in run.ranks
        for name, number in rank["sent"].items()
        if name.split("/")[0] in ("forward", "backward") and name.split("/")[1] in ("halo", "relay")
    )
    assert sent == counted, f"ranks sent {sent:,} bytes, counted were {counted:,}"


def ways(record: Record, quick: bool) -> None:
    """How chunks may be assigned: bytes, loads and seconds, for a row each along edges and in time, on 4 ranks."""
    choices = {
        "METIS on chunks": Chunks(),
        "METIS on chunks, cells stay": Chunks(refine=False),
        "METIS on cells": Chunks(assign="cells"),
        "Algorithm 1": Chunks(assign="score", refine=False),
        "Algorithm 1, cells move": Chunks(assign="score"),
    }
    lines = []
    for name, graph in real_graphs(REAL[: 1 if quick else None]):
        part = _training(graph)
        for way, chunks in choices.items():
            began = perf_counter()
            placed = chunks.place(part, [range(len(part))], 4, costs=ModelCosts()).with_sequence_owner(part)
            seconds = perf_counter() - began
            assert placed.cell_owner is not None
            loads = ModelCosts().load_model(sizes_of_chunks(part, placed.cell_owner, 4))
            found = [2 * forward_bytes(part, placed, ModelCosts()), float(loads.max() / loads.min()), seconds]
            record.samples.setdefault("ways", {}).setdefault(way, {})[name] = found
            lines.append([name, way, f"{found[0] / 1e6:.2f}", f"{found[1]:.2f}", f"{seconds:.1f}"])
    table(["graph", "way", "MB", "load", "s"], lines)


def prediction(record: Record, quick: bool) -> None:
    """The error of what was learned about each model on chunks that were held out."""
    from strobe.planner import get_predictor

    with tempfile.TemporaryDirectory() as folder:
        seconds = 4.0 if quick else 25.0
        errors = {
            model: get_predictor(
                choose_model(model, given),
                2,
                directed=False,
                threads=1,
                seconds=seconds,
                cache=Cache(folder=Path(folder)),
            ).error
            for model, given in list(MODELS.items())[: 1 if quick else None]
        }
    record.samples["prediction"] = errors
    record.figures["predictor_error"] = statistics.mean(errors.values())
    table(["model", "error"], [[model, f"{error:.1%}"] for model, error in errors.items()])


def fusion(record: Record, quick: bool) -> None:
    """Rows that convolutions load in an epoch, chunk by chunk and fused."""
    lines, saved = [], []
    chosen = [("uneven", SMALL.write())] if quick else real_graphs(("mathoverflow_monthly", "as733", "icews18"))
    for name, graph in chosen:
        loaded = {}
        for memory in (0.0, 1024.0) if quick else (0.0, 64.0, 1024.0):
            plan = Plan(placement=Chunks(), batching=Fused(memory=memory))
            run = trained(graph, "mpnn-lstm", 2, plan=plan, ranks=2)
            loaded[memory] = sum(rank["rows_loaded"] for rank in run.history[-1]["ranks"])
        saved.append(1 - loaded[1024.0] / loaded[0.0])
        record.samples.setdefault("fusion", {})[name] = loaded
        lines.append([name, *(f"{rows:,}" for rows in loaded.values()), f"{saved[-1]:.0%}"])
    if not saved:
        record.missing["rows_saved"] = "no real graph was found: set STROBE_DATA"
        return
    table(["graph", *(f"{memory:.0f} MiB" for memory in loaded), "saved"], lines)
    record.figures["rows_saved"] = statistics.mean(saved)


def padding(record: Record, quick: bool) -> None:
    """Empty places of lanes, for the sequences that a rank has pieces of."""
    lines, left = [], []
    for name, graph in graphs(quick):
        placed = Chunks().place(graph, [range(len(graph))], 4)
        owners = [placed.owners(graph, t) for t in range(len(graph))]
        for rank in range(4):
            mine = [graph[t].nodes[owner == rank] for t, owner in enumerate(owners)]
            lanes = PackedSequences.of(Sequences.of(mine, graph.num_nodes))
            left.append(lanes.padding)
            lines.append([name, rank, f"{lanes.padding_unpacked:.1%}", f"{lanes.padding:.2%}"])
    record.figures["padding_left"] = max(left)
    record.samples["padding"] = left
    table(["graph", "rank", "a lane each", "in lanes"], lines)


def staleness(record: Record, quick: bool) -> None:
    """Bytes saved and what it does to the test metric, after training with either form of the threshold.

    Nodes are placed by hash, so that there are rows to save: chunks leave hardly any to recurrent models.
    """
    lines: list[list[object]] = []
    forms: dict[str, Adapt] = {"described": "grow"} if quick else {"described": "grow", "printed": "shrink"}
    saved: dict[str, list[float]] = {form: [] for form in forms}
    lost: dict[str, list[float]] = {form: [] for form in forms}
    epochs, base = 2 if quick else 80, preset("hash")
    for name, graph in real_graphs(("mathoverflow_monthly",)):
        for model in list(MODELS)[: 1 if quick else None]:
            fresh = trained(graph, model, epochs, plan=base, ranks=2)
            for form, adapt in forms.items():
                stale = replace(base, exchange=replace(base.exchange, structure=Stale(adapt=adapt)))
                run = trained(graph, model, epochs, plan=stale, ranks=2)
                less = 1 - _moved_bytes(run) / _moved_bytes(fresh)
                worse = run.test[run.job.problem.metric] / fresh.test[fresh.job.problem.metric] - 1
                saved[form].append(less)
                lost[form].append(-worse if run.job.problem.higher_is_better else worse)
                lines.append([name, model, form, f"{less:.1%}", f"{lost[form][-1]:+.2%}"])
                record.samples.setdefault("staleness", {})[f"{name}/{model}/{form}"] = [less, lost[form][-1]]
    if not lines:
        record.missing["stale_bytes_saved"] = "no real graph was found: set STROBE_DATA"
        return
    table(["graph", "model", "form", "bytes saved", "test metric worse by"], lines)
    for form in forms:
        record.figures[f"stale_bytes_saved_{form}"] = statistics.mean(saved[form])
        record.figures[f"stale_metric_loss_{form}"] = statistics.mean(lost[form])
    record.figures["stale_bytes_saved"] = record.figures["stale_bytes_saved_described"]
    record.figures["stale_metric_loss"] = record.figures["stale_metric_loss_described"]


def _moved_bytes(run: Run) -> int:
    """Bytes of rows of other ranks' cells, marks included, both ways."""
    kinds = ("halo", "shuffle", "masks")
    return sum(
        number
        for rank in run.ranks
        for name, number in rank["sent"].items()
        if name.split("/")[0] in ("forward", "backward") and name.split("/")[1] in kinds
    )


def overhead(record: Record, quick: bool) -> None:
    """Seconds to place cells, as a share of 100 epochs of two ranks."""
    shares = []
    for name, graph in real_graphs(() if quick else REAL[:3]):
        plan = Plan(placement=Chunks())
        run = trained(graph, "tgcn", 4, plan=plan, ranks=2)
        epoch = statistics.median(line["train_s"] for line in run.history[1:])
        part = run.job.problem.graph
        split = run.job.problem.split
        work = _work(part, run.job.choice, quick)
        began = perf_counter()
        plan.placement.place(part, [split.train, split.validation, split.test], 2, costs=work)
        seconds = perf_counter() - began
        shares.append(seconds / (100 * epoch + seconds))
        print(f"{name}: placed in {seconds:.2f} s, an epoch takes {epoch:.2f} s: {shares[-1]:.1%} of 100 epochs")
    if shares:
        record.figures["partition_share"] = statistics.mean(shares)
        record.samples["overhead"] = shares
    else:
        record.missing["partition_share"] = "not in a quick run" if quick else "no real graph: set STROBE_DATA"


def labels(record: Record, quick: bool) -> None:
    """Label propagation by size."""
    scales = (0.01,) if quick else (0.01, 0.1, 1.0)
    found = {scale: child(MODULE, scale) for scale in scales}
    lines = [
        [f"{each['cells']:,}", f"{each['edges']:,}", f"{each['rate'] / 1e6:.1f}M", f"{each['peak_bytes'] / 2**30:.2f}"]
        for each in found.values()
    ]
    table(["cells", "edges", "edges a second", "peak GiB"], lines)
    record.samples["labels"] = found
    record.figures["lp_edges_per_s"] = found[scales[-1]]["rate"]
    record.figures["lp_peak_gib"] = found[scales[-1]]["peak_bytes"] / 2**30


def label_rate(scale: float) -> None:
    """Child: one level of label propagation, all its rounds; edges are spatial and temporal, once per round."""
    from strobe.ops.graph.label_propagation import Links, propagate
    from strobe.placement.algorithms.chunk_graph import count_cell_loads, link_cells

    cells, edges = int(50e6 * scale), int(100e6 * scale)
    graph = Uneven(cells=cells, edges=edges, snapshots=100, edge_spread=edges / 400).write()
    links, size = link_cells(graph, 128, 128), count_cell_loads(graph)
    one = Links(
        np.zeros(2, np.int64), links.col[:0], links.weight, links.before[:1] * 0 - 1, links.after[:1] * 0 - 1, 128
    )
    propagate(one, size[:1], 1, rounds=1)  # compiles
    began = perf_counter()
    _, rounds = propagate(links, size, int(size.sum()) // 64)
    seconds = perf_counter() - began
    tell(cells=cells, edges=edges, seconds=seconds, rounds=rounds, rate=links.num_links / 2 * rounds / seconds)


def link(record: Record, quick: bool) -> None:
    """Epochs of two hosts with 1 Gb/s between them."""
    plans = ("dgc", "pss", "pts", "pss-ts")
    found = [] if quick else list(real_graphs(("mathoverflow_monthly",)))
    if not found:
        record.missing["epoch_speedup_1gbit"] = "not in a quick run" if quick else "no real graph: set STROBE_DATA"
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found[0][1].save(folder / "graph")
        try:
            with two_hosts(folder / "disk", "1gbit") as pair:
                runs = hosts.measure(pair, folder / "graph", 8, 2, folder, plans=plans)
        except NoHostsError as error:
            record.missing["epoch_speedup_1gbit"] = f"no hosts: {error}"
            return
    seconds = {
        plan: statistics.median(each for run in runs if run["plan"] == plan for each in run["seconds"])
        for plan in plans
    }
    lines = [[plan, f"{each:.3f}", f"{each / seconds['dgc']:.2f}"] for plan, each in seconds.items()]
    table(["plan", "s per epoch", "times as long as dgc"], lines)
    record.samples["link"] = seconds
    record.figures["epoch_speedup_1gbit"] = min(seconds[plan] for plan in plans[1:]) / seconds["dgc"]


def trained(graph: DynamicGraph, model: str, epochs: int, *, plan: Plan, ranks: int) -> Run:
    """A run that is not scored in between, one thread per rank."""
    settings: dict[str, Any] = {"threads": 1, "evaluate_every": epochs + 1, "patience": 0, "epochs": epochs}
    return strobe.train(
        graph, model, "regression", model_options=MODELS[model], plan=plan, ranks=ranks, deadline_s=600, **settings
    )


def _training(graph: DynamicGraph) -> DynamicGraph:
    return graph[: int(TRAIN * len(graph))]


if __name__ == "__main__":
    main()
