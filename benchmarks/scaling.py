"""How well do several ranks share the work, what do they wait for, and what do they send?

Seconds: one thread per rank, ranks on this machine's cores, runs of one and of several ranks in turns, medians of
epochs after the first. An efficiency of 1 means that W ranks take a W-th of the time of one.

Rows: what all ranks send in a forward pass of WD-GCN with two convolutions (one exchange along edges, one along time),
on real graphs where they were found, edges read from both sides; predicted, which tests hold to be what ledgers count,
and checked with real ranks once. Relay's share is of the fewest rows of the papers' placements.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import strobe
from benchmarks import hosts
from benchmarks.real_graphs import real_graphs
from benchmarks.record import Record, options, table
from strobe.api import SERVICES
from strobe.comm import Comm, SingleRankComm, run_ranks
from strobe.engine import Progress, Run
from strobe.engine.inputs.resolve import TrainRequest, resolve
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.engine.trace import trace_view_calls
from strobe.engine.train import train_on_rank
from strobe.exchange.dry_run import FakeComm
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.planner.comm.volume import comm_volume_of_rank
from tests.support.hosts import NoHostsError, two_hosts

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "halo": ("wd-gcn", {"layers": 2}, {"plan": "metis"}),
    "groups": ("tgcn", {}, {"plan": "psg"}),
    "relay": ("tgcn", {}, {"plan": "relay"}),
    "relay, two convolutions": ("wd-gcn", {"layers": 2}, {"plan": "relay"}),
}
GRAPHS = ("mathoverflow_monthly", "as733", "rust_git")
PAPERS = ("pss", "pts", "pss-ts", "metis")
BLOCKS = "pss in blocks"
KINDS = ("halo", "relay", "shuffle")


def main() -> None:
    """Measures and prints everything."""
    chosen = options(__doc__ or "")
    record = Record("scaling", chosen.quick)
    with graphs(chosen.quick) as folder:
        speed(record, folder, chosen.quick)
        rows(record, chosen.quick)
    wire(record)
    print()
    for name, value in record.figures.items():
        print(f"{name}: {value:.3g}")
    record.write(chosen.json)


@contextmanager
def graphs(quick: bool) -> Iterator[str]:
    """A social network whose communities keep most edges to themselves, saved: every rank reads its part."""
    nodes, snapshots, edges = (10_000, 10, 30_000) if quick else (50_000, 24, 150_000)
    with tempfile.TemporaryDirectory() as folder:
        made = Social(nodes=nodes, snapshots=snapshots, edges=edges, communities=64, inside=0.98, seed=1).write()
        made.save(Path(folder) / "graph")
        yield str(Path(folder) / "graph")


def speed(record: Record, graph: str, quick: bool) -> None:
    """Epochs of one and several ranks in turns."""
    most = 2 if quick else max(2, min(8, (os.cpu_count() or 2) // 2 * 2))
    counts = [ranks for ranks in (1, 2, 4, 8) if ranks <= most]
    rounds, epochs = (1, 4) if quick else (4, 6)
    cases = dict(list(CASES.items())[:2]) if quick else CASES
    lines: list[list[object]] = []
    samples: dict[str, Any] = {}
    for name, (model, model_options, plan) in cases.items():
        runs: dict[int, list[Run]] = {ranks: [] for ranks in counts}
        for _ in range(rounds):
            for ranks in counts:
                runs[ranks].append(trained(graph, model, model_options, epochs, ranks, **plan))
        seconds = {ranks: statistics.median(_epochs(found)) for ranks, found in runs.items()}
        samples[name] = {ranks: _epochs(found) for ranks, found in runs.items()}
        for ranks in counts[1:]:
            efficiency = seconds[1] / (ranks * seconds[ranks])
            exposed, waiting, busy = (statistics.median(part(runs[ranks])) for part in (_exposed, _waiting, _busy))
            load = statistics.median(_load(run) for run in runs[ranks])
            sent = _sent(runs[ranks][0])
            lines.append(
                [
                    name,
                    ranks,
                    f"{seconds[1]:.3f}",
                    f"{seconds[ranks]:.3f}",
                    f"{efficiency:.2f}",
                    f"{exposed:.1%}",
                    f"{waiting:.1%}",
                    f"{load:.2f}",
                    f"{sent / 1e6:.1f} MB",
                ]
            )
            samples[f"{name}/{ranks}"] = {
                "efficiency": efficiency,
                "exposed": exposed,
                "waiting": waiting,
                "busy": busy,
                "load": load,
                "sent": sent,
            }
    record.figures["ceiling_2"] = ceiling(graph, samples["halo"][1], epochs)
    two = {name: samples[f"{name}/2"] for name in cases}
    record.figures["halo_efficiency_2"] = two["halo"]["efficiency"]
    record.figures["groups_efficiency_2"] = two["groups"]["efficiency"]
    record.figures["exposed_comm_share"] = two["halo"]["exposed"]
    if not quick:
        record.figures["relay_efficiency_2"] = two["relay"]["efficiency"]
        record.figures["relay_busy_share"] = two["relay"]["busy"]
    else:
        run = trained(graph, "tgcn", {}, epochs, 2, plan="relay")
        record.figures["relay_busy_share"] = statistics.median(_busy([run]))
    record.samples["speed"] = samples
    table(["plan", "ranks", "1 rank, s", "s", "efficiency", "exposed", "waiting", "load max/min", "sent"], lines)


def ceiling(graph: str, alone: list[float], epochs: int) -> float:
    """What two processes that share nothing but the machine reach: each trains the halo plan's model on all cells."""
    model, model_options, _ = CASES["halo"]

    def work(comm: Comm, tell: Any) -> list[float]:
        given = TrainRequest(graph, model, "regression", model_options, changes=settings(epochs), services=SERVICES)
        return _epochs([train_on_rank(given, OutputConfig(), Progress(), SingleRankComm())])

    both = run_ranks(work, 2, threads=1)
    return statistics.median(alone) / statistics.median(second for seconds in both for second in seconds)


def rows(record: Record, quick: bool) -> None:
    """Rows on the wire of our placement and the papers', as predicted, and checked against ledgers of real ranks."""
    found: dict[str, dict[str, int]] = {}
    shares = []
    for number, (name, graph) in enumerate(real_graphs(GRAPHS[: 1 if quick else None])):
        for ranks in (4, 8):
            sent = {plan: predicted_rows(graph, plan, ranks) for plan in ("relay", *PAPERS, BLOCKS)}
            found[f"{name}, {ranks}"] = sent
            shares.append(sent["relay"] / min(sent[plan] for plan in PAPERS))
            if number == 0 and ranks == 4:
                counted = _rows(trained(graph, "wd-gcn", {"layers": 2}, 1, ranks, plan="relay"))
                assert counted == sent["relay"], "the ledger must count what was predicted"
    if not shares:
        record.missing["relay_rows_vs_best_paper_mean"] = "no real graph was found: set STROBE_DATA"
        return
    record.samples["rows"] = found
    record.figures["relay_rows_vs_best_paper_mean"] = statistics.mean(shares)
    names = list(next(iter(found.values())))
    print()
    table(["graph, ranks", *names], [[name, *(f"{sent[plan]:,}" for plan in names)] for name, sent in found.items()])


def predicted_rows(graph: DynamicGraph, plan: str, ranks: int) -> int:
    """Rows that all ranks send in a forward pass over the training snapshots."""
    given = TrainRequest(graph, "wd-gcn", "regression", {"layers": 2}, None, settings(1), None, _plan(plan))
    job = resolve(given, None, Progress(), num_ranks=ranks)
    whole, split = job.problem.graph, job.problem.split
    parts = [split.train, split.validation, split.test]
    placed = job.plan.placement.place(whole, parts, ranks).with_sequence_owner(whole)
    calls = trace_view_calls(job.make_model()[0], whole[:2])
    total = 0
    for rank in range(ranks):
        share = (
            PartitionedGraph(whole, job.plan, FakeComm(rank, ranks), placed).window_data(split.train).local_partition
        )
        assert share is not None
        rows = comm_volume_of_rank(share, calls).rows_sent
        total += sum(number for (phase, _), number in rows.items() if phase == "forward")
    return total


def wire(record: Record) -> None:
    """What two ranks on two hosts send, by their ledgers and by the kernel's counters."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hosts.make_graph(folder / "graph", 1_000)
        try:
            with two_hosts(folder / "disk", "1gbit") as pair:
                runs = hosts.measure(pair, folder / "graph", 6, 1, folder, plans=("hash",))
        except NoHostsError as error:
            record.missing["ledger_vs_kernel_bytes"] = f"no hosts: {error}"
            return
    ledger, kernel = (sum(sum(run[name]) for run in runs) for name in ("ledger_bytes", "kernel_bytes"))
    record.figures["ledger_vs_kernel_bytes"] = ledger / kernel


def trained(
    graph: str | DynamicGraph, model: str, model_options: dict[str, Any], epochs: int, ranks: int, **chosen: Any
) -> Run:
    """A run that is trained and not scored in between."""
    how = settings(epochs) | chosen
    return strobe.train(graph, model, "regression", model_options=model_options, ranks=ranks, deadline_s=600, **how)


def settings(epochs: int) -> dict[str, Any]:
    """One thread per rank; nothing but training."""
    return {"threads": 1, "evaluate_every": epochs + 1, "patience": 0, "epochs": epochs}


def _plan(name: str) -> Any:
    """A preset; ``pss`` with consecutive snapshots per rank, as some read it."""
    if name != BLOCKS:
        return name
    from dataclasses import replace

    from strobe.placement import BySnapshot
    from strobe.presets import preset

    return replace(preset("pss"), placement=BySnapshot(round_robin=False))


def _epochs(runs: list[Run]) -> list[float]:
    return [line["train_s"] for line in _lines(runs)]


def _lines(runs: list[Run]) -> list[dict[str, Any]]:
    """Epochs after the first, in which everything warms up."""
    return [line for run in runs for line in run.history[1:]]


def _exposed(runs: list[Run]) -> list[float]:
    """The share of training that a rank spends waiting for rows, states or gradients, mean over ranks."""
    return [statistics.mean(_share(rank, "exposed_comm_s") for rank in line["ranks"]) for line in _lines(runs)]


def _waiting(runs: list[Run]) -> list[float]:
    return [statistics.mean(_share(rank, "straggler_wait_s") for rank in line["ranks"]) for line in _lines(runs)]


def _busy(runs: list[Run]) -> list[float]:
    return [line.get("pipeline_busy", 0.0) for line in _lines(runs)]


def _share(rank: dict[str, Any], what: str) -> float:
    seconds = rank["seconds"]
    return float(seconds.get(what, 0.0) / sum(seconds[phase] for phase in ("examples", "forward", "backward", "sync")))


def _load(run: Run) -> float:
    loads = [rank["cells"] + rank["arcs"] for rank in run.ranks]
    return float(max(loads) / max(min(loads), 1))


def _sent(run: Run) -> float:
    """Bytes an epoch, all ranks."""
    return float(sum(sum(rank["sent"].values()) for rank in run.ranks) / run.ranks[0]["epochs"])


def _rows(run: Run) -> int:
    return sum(
        number
        for rank in run.ranks
        for name, number in rank["rows_sent"].items()
        if name in {f"forward/{kind}" for kind in KINDS}
    )


if __name__ == "__main__":
    main()
