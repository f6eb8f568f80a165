"""What does it cost to rank all candidates, beside the product of the embeddings alone?

A social network of 10 snapshots with as many edges as nodes each; every node is a candidate, a tenth of the nodes are
sources with about 10 positives each. Three things are timed in turn, in the same tiles and on the same threads: the
product of the encoded sources and candidates (the floor: 2 K flops per score; its tiles are never read), ranks of the
positives, and the 20 highest candidates. The latter two begin with embeddings and a history of edges: they include node
features, related pairs, encoders, and the network of related pairs. Every number of threads has its own process.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from benchmarks.record import Record, child, memory, options, table, tell

_MODULE = "benchmarks.ranking"
HIDDEN, POSITIVES, TOP, READ = 64, 10, 20, 8
THREADS = (1, 2)


class Case:
    """A graph, embeddings and a decoder."""

    def __init__(self, nodes: int, device: str) -> None:
        from strobe.graph.synthetic import Social  # before torch: Strobe tells OpenMP how to wait
        from strobe.tasks import LinkRanking

        import numpy as np  # isort: skip
        import torch  # isort: skip

        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        graph = Social(nodes=nodes, snapshots=READ + 2, edges=nodes).write()
        self.problem = LinkRanking(train=READ - 1, validation=1).bind(graph)
        self.device, self.candidates = torch.device(device), np.arange(nodes)
        sources = np.sort(rng.choice(nodes, nodes // 10, replace=False))
        ends = np.unique(np.repeat(sources, POSITIVES) * nodes + rng.integers(0, nodes, POSITIVES * len(sources)))
        self.src, self.dst = (each[ends // nodes != ends % nodes] for each in np.divmod(ends, nodes))
        self.z = torch.randn(nodes, HIDDEN, device=self.device)
        self.head: Any = self.problem.head(HIDDEN)
        for parameter in self.head.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        self.head.to(self.device)
        self.query, self.key = torch.randn(len(sources), HIDDEN).to(self.z), torch.randn(nodes, HIDDEN).to(self.z)
        self.num_related = self.problem.make_grid(READ, self.src, self.dst, self.candidates).related.shape[1]

    def scorer(self) -> Any:
        """The scores of the grid, from embeddings and history."""
        from strobe.tasks.heads import GridScorer

        grid = self.problem.make_grid(READ, self.src, self.dst, self.candidates).to(self.device, self.z.dtype)
        return GridScorer(self.head, self.z, replace(grid, rows=(grid.sources, grid.candidates)))

    def product(self) -> None:
        """All products in tiles, by the loop that ranking uses; on a GPU in its blocks."""
        import torch

        from strobe.ops.dense.factored_scores import STRIP_TILES, FactoredScores, PairValues
        from strobe.tasks.grid import BLOCK_SCORES

        if self.device.type != "cpu":
            size = max(BLOCK_SCORES // len(self.key), 16)
            for query in self.query.split(size):
                torch.mm(query, self.key.T)
            return
        pairs = PairValues.build(torch.empty(2, 0, dtype=torch.int64), torch.empty(0), len(self.query))
        scores = FactoredScores(
            query=self.query,
            key=self.key,
            of_rows=self.query[:, 0],
            of_columns=self.key[:, 0],
            pairs=pairs,
            block_rows=1,
        )
        scores.for_tiles(lambda *_: None, STRIP_TILES)

    def rank(self) -> None:
        """Ranks of all positives."""
        from strobe.tasks.grid import rank_in_grid

        scorer = self.scorer()
        rank_in_grid(scorer.grid, scorer.blocks())

    def top(self) -> None:
        """The highest candidates of all sources."""
        from strobe.tasks.grid import top_candidates

        top_candidates(self.scorer().blocks(), TOP)


def measure(nodes: int, threads: int, repeats: int, device: str) -> None:
    """Child: prints the seconds of interleaved repeats."""
    import strobe  # noqa: F401 - before torch

    import torch  # isort: skip

    torch.set_num_threads(threads)
    with torch.no_grad():
        case = Case(nodes, device)
        works: dict[str, Callable[[], None]] = {"product": case.product, "rank": case.rank, "top": case.top}
        before = memory("VmRSS")
        seconds: dict[str, list[float]] = {name: [] for name in works}
        for repeat in range(repeats + 1):
            for name, work in works.items():
                began = perf_counter()
                work()
                if device == "cuda":
                    torch.cuda.synchronize()
                if repeat:  # the first repeat loads the compiled functions
                    seconds[name].append(perf_counter() - began)
    sizes = {"sources": len(case.query), "related": case.num_related, "positives": len(case.src)}
    tell(seconds=seconds, before_bytes=before, **sizes)


def summarise(record: Record, name: str, found: dict[str, Any]) -> list[list[str]]:
    """Figures of one child, and rows of the table."""
    product = statistics.median(found["seconds"]["product"])
    rows = []
    for what, figure in (("rank", "ranking_vs_product"), ("top", "top_vs_product")):
        pairs = zip(found["seconds"][what], found["seconds"]["product"], strict=True)
        ratios = sorted(ours / floor for ours, floor in pairs)
        record.figures[f"{figure}_{name}"] = ratio = statistics.median(found["seconds"][what]) / product
        seconds = statistics.median(found["seconds"][what])
        rows.append(
            [name, what, f"{product:.3f}", f"{seconds:.3f}", f"{ratio:.2f}", f"{ratios[0]:.2f} … {ratios[-1]:.2f}"]
        )
    return rows


def main() -> None:
    """Runs all numbers of threads and prints the table."""
    chosen = options(__doc__ or "")
    if chosen.child:
        nodes, threads, repeats, device = chosen.child
        return measure(int(nodes), int(threads), int(repeats), device)
    import torch

    record = Record("ranking", chosen.quick)
    nodes, repeats = (20_000, 3) if chosen.quick else (100_000, 5)
    rows = []
    for threads in THREADS:
        found = child(_MODULE, nodes, threads, repeats, "cpu")
        record.samples[f"threads_{threads}"] = found
        rows += summarise(record, f"{threads}_threads", found)
        record.figures[f"peak_gib_{threads}_threads"] = found["peak_bytes"] / 2**30
        record.figures[f"peak_above_data_gib_{threads}_threads"] = (found["peak_bytes"] - found["before_bytes"]) / 2**30
    # The worst of both numbers of threads.
    for figure in ("ranking_vs_product", "top_vs_product"):
        record.figures[figure] = max(record.figures[f"{figure}_{threads}_threads"] for threads in THREADS)
    record.samples["floor"] = {
        "flops": 2 * found["sources"] * nodes * HIDDEN,
        "bytes_of_scores": 4 * found["sources"] * nodes,
        "comparisons": 2 * found["positives"] * nodes,
    }
    if torch.cuda.is_available():
        found = child(_MODULE, nodes, 1, repeats, "cuda")
        record.samples["gpu"] = found | {"name": torch.cuda.get_device_name()}
        rows += summarise(record, "gpu", found)
    else:
        record.missing["ranking_vs_product_gpu"] = record.missing["top_vs_product_gpu"] = "no GPU"
    sizes = f"{record.samples['threads_1']['sources']:,} sources, {nodes:,} candidates"
    print(f"{sizes}, {record.samples['threads_1']['related']:,} related pairs, median of {repeats}")
    table(["on", "what", "product s", "seconds", "ratio of medians", "ratios"], rows)
    record.write(chosen.json)
    return None


if __name__ == "__main__":
    main()
