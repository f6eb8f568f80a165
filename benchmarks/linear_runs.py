"""Whole runs of growing graphs, from reading to scoring, against a plain sparse product of the same size.

CPU seconds of ``strobe.train`` on one thread after a run on a tiny graph, which loads and compiles, over those of one
CSR product of every snapshot's matrix by 32 columns (SciPy). A cost that is linear gives the same ratio for all sizes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.record import Record, child, tell

MODULE = "benchmarks.linear_runs"
EPOCHS = 3
COLUMNS = 32
TINY = (4_000, 8)
"""Large enough to load what smaller graphs do without, numba among it: 0.25 s."""

Size = tuple[int, int]  # nodes, snapshots

NODES: tuple[Size, ...] = tuple((nodes, 8) for nodes in (10_000, 50_000, 200_000, 400_000, 800_000, 1_600_000))
SNAPSHOTS: tuple[Size, ...] = tuple((500, snapshots) for snapshots in (10, 100, 1_000, 10_000))
Ladder = tuple[str, str, tuple[Size, ...]]  # task, preset, and the sizes that are compared

LADDERS: dict[str, Ladder] = {
    "regression-nodes": ("regression", "relay", NODES),
    "classification-nodes": ("classification", "relay", NODES),
    "link-prediction-nodes": ("link-prediction", "relay", NODES[:4]),
    "link-ranking-nodes": ("link-ranking", "relay", NODES[:2]),
    "regression-snapshots": ("regression", "relay", SNAPSHOTS),
    "classification-snapshots": ("classification", "relay", SNAPSHOTS),
    "link-prediction-snapshots": ("link-prediction", "relay", SNAPSHOTS),
    **{preset: ("regression", preset, NODES[:3]) for preset in ("dgc", "dynahb", "dygnex", "distdy", "flare")},
}

QUICK: dict[str, Ladder] = {
    "regression-nodes": ("regression", "relay", NODES[:2]),
    "link-prediction-snapshots": ("link-prediction", "relay", SNAPSHOTS[:2]),
}


def measure(record: Record, name: str) -> None:
    """Run one ladder; rows of others stay in the record, and figures are those of all."""
    task, preset, sizes = (QUICK if record.quick else LADDERS)[name]
    rows = [row for row in record.samples.get("runs", []) if row["ladder"] != name]
    for nodes, snapshots in sizes:
        row = child(MODULE, nodes, snapshots, task, preset)
        rows.append({"ladder": name, "task": task, "preset": preset, "nodes": nodes, "snapshots": snapshots, **row})
        print(f"{name} {nodes:,} x {snapshots:,}: {_cost(row):.1f} products, {_touch_ns(row):.0f} ns", flush=True)
    record.samples["runs"] = rows
    record.figures |= figures(rows)
    record.missing.pop(name, None)


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The largest spread of the cost on a ladder, in products and per cell and arc, and its largest growth per
    doubling of the nodes."""
    ladders = [[row for row in rows if row["ladder"] == name] for name in {row["ladder"]: None for row in rows}]
    found = {
        "cost_per_cell_spread": max(_spread(map(_cost, ladder)) for ladder in ladders),
        "cost_per_touch_spread": max(_spread(map(_touch_ns, ladder)) for ladder in ladders),
    }
    growths = [each for ladder in ladders for each in _doublings(ladder)]
    return found | ({"cost_growth_per_doubling": max(growths)} if growths else {})


def _cost(row: dict[str, Any]) -> float:
    """CPU seconds of a run over those of a product of its size."""
    return float(row["run_s"] / row["product_s"])


def _touch_ns(row: dict[str, Any]) -> float:
    """CPU nanoseconds of a run per cell and arc: an arc of the product itself takes longer once its factor has left the
    cache."""
    return float(1e9 * row["run_s"] / (row["cells"] + row["arcs"]))


def _spread(costs: Iterable[float]) -> float:
    known = list(costs)
    return max(known) / min(known)


def _doublings(ladder: Sequence[dict[str, Any]]) -> list[float]:
    """Growth of the cost per doubling of the nodes, from 200,000 on."""
    large = [row for row in ladder if row["nodes"] >= 200_000]
    return [
        (_cost(after) / _cost(before)) ** (1 / np.log2(after["nodes"] / before["nodes"]))
        for before, after in pairwise(large)
    ]


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
