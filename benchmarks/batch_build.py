"""How fast is a batch of some nodes cut out of a window of snapshots, beside PyTorch Geometric's ``k_hop_subgraph``?

Both find, in every snapshot, what the targets read within one or two hops and renumber it, in turns, in one process
and on one thread, as a generator of batches beside training would. The peer gets its edges ready, with the positions
of the targets in each snapshot, and is asked for the same arcs (``directed``), without those between the outermost.
Edges are arcs, of which an undirected edge is two. The speed-up is the smallest of all sizes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

from benchmarks.record import Record, options, table

SHARES = (0.01, 0.05, 0.2)
HOPS = (1, 2)


class Window:
    """A power-law graph as both sides have it."""

    def __init__(self, nodes: int, edges: int, snapshots: int) -> None:
        from strobe.graph.storage import ArrayStorage
        from strobe.graph.synthetic import Social  # before torch: Strobe tells OpenMP how to wait
        from strobe.ops.sparse.khop import ArcRows, SnapshotCsr

        import torch  # isort: skip

        torch.set_num_threads(1)
        self.graph = Social(nodes=nodes, snapshots=snapshots, edges=edges, start=1.0).write()
        stored = self.graph.storage
        assert isinstance(stored, ArrayStorage)
        rows = ArcRows(stored.arc_ptr, stored.row_ptr, stored.col, stored.weight)
        self.blocks = SnapshotCsr(stored.num_nodes, stored.cell_ptr, rows, stored.node)
        arcs = [snapshot.arcs() for snapshot in self.graph]
        self.edge_index = [torch.stack([torch.from_numpy(end.astype("int64")) for end in pair]) for pair in arcs]

    def ours(self, targets: Any, hops: int) -> Any:
        from strobe.ops.sparse.khop import khop_subgraph

        return khop_subgraph(self.blocks, range(len(self.graph)), targets, hops)

    def positions(self, targets: Any) -> list[Any]:
        """The targets that are present in each snapshot, as the peer wants them."""
        import numpy as np
        import torch

        masks = (np.isin(snapshot.nodes, targets) for snapshot in self.graph)
        return [torch.from_numpy(np.flatnonzero(mask)) for mask in masks]

    def theirs(self, positions: list[Any], hops: int) -> list[Any]:
        from torch_geometric.utils import k_hop_subgraph

        given = zip(positions, self.edge_index, self.graph, strict=True)
        return [
            k_hop_subgraph(at, hops, edges, relabel_nodes=True, num_nodes=snapshot.num_nodes, directed=True)
            for at, edges, snapshot in given
        ]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came of it."""
    began = perf_counter()
    done = work()
    return perf_counter() - began, done


def compare(window: Window, share: float, hops: int, repeats: int) -> dict[str, Any]:
    """Seconds of both sides in turns; what they found must be the same."""
    import numpy as np

    nodes = window.graph.num_nodes
    targets = np.random.default_rng(0).choice(nodes, int(share * nodes), replace=False)
    positions = window.positions(targets)
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(repeats + 1):
        took, mine = timed(lambda: window.ours(targets, hops))
        seconds["ours"].append(took)
        took, other = timed(lambda: window.theirs(positions, hops))
        seconds["theirs"].append(took)
    for t, (subset, edge_index, _, _) in enumerate(other):
        cells = slice(*mine.blocks.cell_ptr[t : t + 2].tolist())
        assert np.array_equal(mine.position[cells], subset.numpy())
        row_ptr, col, _ = mine.blocks.block(t)
        found = np.repeat(np.arange(len(subset)), np.diff(row_ptr)) * len(subset) + col
        assert np.array_equal(found, np.sort((edge_index[1] * len(subset) + edge_index[0]).numpy()))
    told = {"share": share, "hops": hops, "cells": mine.blocks.num_cells, "arcs": mine.blocks.num_arcs}
    return told | {side: each[1:] for side, each in seconds.items()}


def main() -> None:
    """Runs all sizes and prints the table."""
    chosen = options(__doc__ or "")
    sizes = (20_000, 200_000, 4) if chosen.quick else (100_000, 1_000_000, 8)
    record = Record("batch_build", chosen.quick)
    record.samples["graph"] = dict(zip(("nodes", "edges_per_snapshot", "snapshots"), sizes, strict=True))
    window = Window(*sizes)
    window.ours([0], 1)  # compiles
    found = [compare(window, share, hops, repeats=5) for share in SHARES for hops in HOPS]
    rows, speedups, took = [], [], 0.0
    for each in found:
        ours, theirs = (statistics.median(each[side]) for side in ("ours", "theirs"))
        speedups.append(theirs / ours)
        took += ours
        pairs = sorted(t / o for o, t in zip(each["ours"], each["theirs"], strict=True))
        rows.append(
            [
                f"{each['share']:.0%}",
                each["hops"],
                f"{each['cells']:,}",
                f"{each['arcs']:,}",
                f"{1e3 * ours:.1f}",
                f"{1e3 * theirs:.1f}",
                f"{speedups[-1]:.1f}x ({pairs[0]:.1f} to {pairs[-1]:.1f})",
                f"{each['arcs'] / ours / 1e6:.0f}",
            ]
        )
    record.samples["sizes"] = found
    record.figures["batch_build_speedup"] = min(speedups)
    record.figures["batch_build_speedup_mean"] = statistics.geometric_mean(speedups)
    record.figures["batch_build_edges_per_s"] = sum(each["arcs"] for each in found) / took
    table(["targets", "hops", "cells", "edges", "ours ms", "PyG ms", "faster (pairs)", "M edges/s"], rows)
    for name, value in record.figures.items():
        print(f"{name}: {value:,.1f}")
    record.write(chosen.json)


if __name__ == "__main__":
    main()
