"""Whole runs of growing graphs, from reading to scoring, against a plain sparse product of the same size.

CPU seconds of ``strobe.train`` on one thread after a run on a tiny graph, which loads and compiles, over those of one
CSR product of every snapshot's matrix by 32 columns (SciPy). A cost that is linear gives the same ratio for all sizes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.record import child, tell

MODULE = "benchmarks.linear_runs"
EPOCHS = 3
COLUMNS = 32
TINY = (200, 8)

Size = tuple[int, int]  # nodes, snapshots

NODES: tuple[Size, ...] = tuple((nodes, 8) for nodes in (10_000, 50_000, 200_000, 400_000, 800_000, 1_600_000))
SNAPSHOTS: tuple[Size, ...] = tuple((500, snapshots) for snapshots in (10, 100, 1_000, 10_000))
LADDERS: tuple[tuple[str, str, tuple[Size, ...]], ...] = (
    ("regression", "relay", NODES),
    ("classification", "relay", NODES),
    ("link-prediction", "relay", NODES[:4]),
    ("link-ranking", "relay", NODES[:2]),
    ("regression", "relay", SNAPSHOTS),
    ("classification", "relay", SNAPSHOTS),
    ("link-prediction", "relay", SNAPSHOTS),
    *(("regression", preset, NODES[:3]) for preset in ("dgc", "dynahb", "dygnex", "distdy", "flare")),
)
"""Task, preset and the sizes that are compared."""

QUICK = (("regression", "relay", NODES[:2]), ("link-prediction", "relay", SNAPSHOTS[:2]))


def measure(*, quick: bool) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Run all ladders; the largest spread of the cost on one of them, the largest growth per doubling, and all rows."""
    rows: list[dict[str, Any]] = []
    spreads, growths = [], []
    for task, preset, sizes in QUICK if quick else LADDERS:
        costs = {}
        for nodes, snapshots in sizes:
            row = child(MODULE, nodes, snapshots, task, preset)
            rows.append({"task": task, "preset": preset, "nodes": nodes, "snapshots": snapshots, **row})
            costs[nodes, snapshots] = row["run_s"] / row["product_s"]
            print(f"{task} {preset} {nodes:,} x {snapshots:,}: {costs[nodes, snapshots]:.1f} products", flush=True)
        spreads.append(max(costs.values()) / min(costs.values()))
        growths += _doublings(costs)
    figures = {"cost_per_cell_spread": max(spreads)}
    return figures | ({"cost_growth_per_doubling": max(growths)} if growths else {}), rows


def _doublings(costs: dict[Size, float]) -> list[float]:
    """Growth of the cost per doubling of the nodes, from 200,000 on."""
    large = [(nodes, cost) for (nodes, _), cost in costs.items() if nodes >= 200_000]
    pairs = pairwise(large)
    return [(after / before) ** (1 / np.log2(more / few)) for (few, before), (more, after) in pairs]


def run(nodes: int, snapshots: int, task: str, preset: str) -> None:
    """Child: train on a saved graph, and multiply the matrices of all snapshots."""
    import strobe  # tells OpenMP how to wait: before torch
    from strobe.engine.progress import Progress
    from strobe.graph import open_graph
    from strobe.graph.synthetic import Social

    class Stages(Progress):
        """CPU seconds between what a run reports."""

        def __init__(self) -> None:
            self.seconds: dict[str, float] = defaultdict(float)
            self.now, self.since = "start", process_time()

        def begin_stage(self, name: str) -> None:
            self.seconds[self.now] += process_time() - self.since
            self.now, self.since = name, process_time()

        def stage(self, what: str, done: int, total: int | None) -> None:
            self.begin_stage(what)

        def begin(self, info: dict[str, Any]) -> None:
            self.begin_stage("training")

    given: dict[str, Any] = {"plan": preset, "epochs": EPOCHS, "threads": 1, "device": "cpu", "patience": 0}

    def train(path: Path, stages: Stages) -> float:
        began = process_time()
        strobe.train(path, "tgcn", task, progress=stages, **given)
        stages.begin_stage("end")
        return process_time() - began

    with tempfile.TemporaryDirectory() as folder:
        for name, (count, length) in {"tiny": TINY, "graph": (nodes, snapshots)}.items():
            edges, labels = 3 * count, task == "classification"
            Social(nodes=count, snapshots=length, edges=edges, labels=labels).write().save(Path(folder) / name)
        train(Path(folder) / "tiny", Stages())
        stages = Stages()
        run_s = train(Path(folder) / "graph", stages)
        graph = open_graph(Path(folder) / "graph")
        product_s = statistics.median(_multiply(graph) for _ in range(3))
        tell(run_s=run_s, product_s=product_s, stages=stages.seconds, cells=graph.num_cells, arcs=graph.num_arcs)


def _multiply(graph: Any) -> float:
    """CPU seconds of a product of every snapshot's matrix, once all have been read."""
    from scipy.sparse import csr_matrix

    seconds = 0.0
    x = np.ones((graph.num_nodes, COLUMNS), np.float32)
    for snapshot in graph:
        ptr, arcs = np.asarray(snapshot.row_ptr), np.asarray(snapshot.col)
        size = snapshot.num_nodes
        matrix = csr_matrix((np.ones(len(arcs), np.float32), arcs, ptr), (size, graph.num_nodes))
        began = process_time()
        matrix @ x
        seconds += process_time() - began
    return seconds


if __name__ == "__main__":
    import sys

    nodes, snapshots, task, preset = sys.argv[2:]  # after --child
    run(int(nodes), int(snapshots), task, preset)
