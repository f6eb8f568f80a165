"""How fast, and in how much memory, does a window train on one GPU, next to plain PyTorch Geometric and torch?

Times are medians of CUDA events, warm; the two ceilings, copy bandwidth and matrix rate, are measured in the same run.
An epoch's step is a forward and a backward pass over a window of 8 snapshots, mean squared error on every cell.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.gpu_rivals import RIVALS
from benchmarks.peer_graph import edges
from benchmarks.record import Record, options, table
from strobe.graph import Degrees, DynamicGraph, from_edges
from strobe.models import make_model
from strobe.ops.sparse.spmm import Sparse, spmm
from strobe.view import View, WindowData

HIDDEN, SNAPSHOTS = 32, 8
FULL, QUICK = (2_300_000, 3_750_000), (230_000, 375_000)
LAWS = {"even": (1, 1), "power-law columns": (4, 1), "power-law rows": (1, 4), "power-law both": (4, 4)}
WIDTHS = (1, 2, 8, 16, 32, 64, 128, 256)
GIB = 2**30
TOGETHER = 10


@dataclass
class Bench:
    """A window on the GPU, ready for both sides."""

    graph: DynamicGraph
    cells: WindowData
    y: Tensor  # [C, 2]
    edges: list[npt.NDArray[np.int64]]

    @classmethod
    def make(cls, nodes: int, arcs: int, dtype: torch.dtype = torch.float32) -> Bench:
        """The graph of benchmarks/peers.py, larger."""
        found = edges(nodes, SNAPSHOTS, arcs)
        graph = from_edges(found, num_nodes=nodes, x=Degrees(log=True))
        cells = WindowData(graph[:SNAPSHOTS], device="cuda", dtype=dtype)
        y = torch.cat([torch.from_numpy(np.array(shot.x)) for shot in graph[1:]]).to("cuda", dtype)
        return cls(graph[:SNAPSHOTS], cells, y, found[:SNAPSHOTS])

    def ours(self, name: str, dtype: torch.dtype | None = None) -> tuple[Any, Callable[[], Tensor]]:
        """A model of Strobe's with a head, and what gives its loss. Rows may be stored as ``dtype``; a run that does so
        has them in no other form."""
        torch.manual_seed(0)
        model: Any = make_model(name, 2, hidden=HIDDEN)
        cells = self.cells if dtype is None else WindowData(self.graph, device="cuda", dtype=dtype)
        both = nn.ModuleList([model, nn.Linear(model.width, 2)]).to("cuda", cells.sum_dtype)
        head: Any = both[1]

        def loss() -> Tensor:
            with cells.autocast():
                said = model.answers(View(cells), head.weight, head.bias)
            return loss_of(said.to(self.y.dtype), self.y)

        return both, loss

    def theirs(self, name: str) -> tuple[nn.Module, Callable[[], Tensor]]:
        """The same of plain PyTorch Geometric."""
        torch.manual_seed(0)
        model: Any = RIVALS[name](2, HIDDEN)
        head = nn.Linear(model.width, 2)
        x = self.cells.x.view(SNAPSHOTS, -1, 2)
        both = nn.ModuleList([model, head]).cuda()
        arcs = [torch.from_numpy(each).cuda() for each in self.edges]
        return both, lambda: loss_of(head(torch.relu(model(x, arcs))).flatten(0, 1), self.y)


def loss_of(said: Tensor, y: Tensor) -> Tensor:
    """The mean squared error."""
    return nn.functional.mse_loss(said, y)


def milliseconds(work: Callable[[], Any], often: int = 7) -> list[float]:
    """Times of some runs after two that do not count."""
    found = []
    for number in range(often + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        if number >= 2:
            found.append(begin.elapsed_time(end))
    return found


def step(both: nn.Module, loss: Callable[[], Tensor], often: int = 7) -> dict[str, Any]:
    """Times of a forward and backward pass, and the most memory that tensors had meanwhile, inputs included."""

    def work() -> None:
        both.zero_grad(set_to_none=True)
        loss().backward()

    torch.cuda.empty_cache()
    work()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = milliseconds(work, often)
    return {"ms": statistics.median(times), "times": times, "gib": torch.cuda.max_memory_allocated() / GIB}


@contextmanager
def precision(name: str) -> Iterator[None]:
    """How float32 matrices are multiplied meanwhile: highest, or high for TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    torch.backends.cudnn.allow_tf32 = name != "highest"
    yield
    torch.set_float32_matmul_precision(before)


def ceilings() -> dict[str, float]:
    """Bytes a second of a large copy, read and written; floating-point operations a second of large products."""
    a = torch.randn(1 << 29, device="cuda")
    b = torch.empty_like(a)
    found = {"copy_gb_s": 2 * a.nbytes / statistics.median(milliseconds(lambda: b.copy_(a))) / 1e6}
    m = torch.randn(8192, 8192, device="cuda")
    for name in ("highest", "high"):
        with precision(name):
            found[f"matrix_tflop_s_{name}"] = 2 * 8192**3 / statistics.median(milliseconds(lambda: m @ m)) / 1e9
    return found


def errors() -> dict[str, dict[str, float]]:
    """T-GCN's loss and gradients on a small graph against float64, in each mode, relative."""
    small, right = Bench.make(20_000, 33_000), Bench.make(20_000, 33_000, torch.float64)
    expected = _gradients(*right.ours("tgcn"))
    found = {}
    for mode, exact in (("float32", "highest"), ("tf32", "high"), ("bfloat16 rows", "high")):
        with precision(exact):
            given = small.ours("tgcn", torch.bfloat16 if mode.startswith("bf") else None)
            apart = [_apart(*pair) for pair in zip(_gradients(*given), expected, strict=True)]
            found[mode] = {"loss": apart[0], "worst gradient": max(apart[1:])}
    return found


def _gradients(both: nn.Module, loss: Callable[[], Tensor]) -> list[Tensor]:
    value = loss()
    return [value.detach(), *torch.autograd.grad(value, list(both.parameters()))]


def _apart(found: Tensor, right: Tensor) -> float:
    return float((found.double() - right).norm() / right.norm())


def matrix(nodes: int, arcs: int, law: tuple[int, int]) -> Sparse:
    """A random matrix with self-loops and weights; the ends of arcs by powers of even numbers."""
    ends = [
        torch.randperm(nodes, device="cuda")[(nodes * torch.rand(arcs, device="cuda") ** power).long() % nodes]
        for power in law
    ]
    loops = torch.arange(nodes, device="cuda")
    col, row = (torch.cat([each, loops]) for each in ends)
    key = torch.sort(row * nodes + col).values
    row_ptr = torch.zeros(nodes + 1, dtype=torch.int64, device="cuda")
    row_ptr[1:] = torch.bincount(key // nodes, minlength=nodes).cumsum(0)
    weight = torch.rand(len(key), device="cuda")
    return Sparse(row_ptr, (key % nodes).to(torch.int32), weight, nodes)


def products(nodes: int, arcs: int) -> list[dict[str, Any]]:
    """Our sparse product next to cuSPARSE's, by width and law of degrees."""
    rows = []
    for name, law in LAWS.items():
        made = matrix(nodes, arcs, law)
        theirs = made.torch_csr(torch.float32)
        for width in WIDTHS:
            x = torch.randn(nodes, width, device="cuda")
            right = torch.sparse.mm(theirs, x)
            error = _apart(spmm(made, x), right.double())
            del right
            ours, cu = (statistics.median(milliseconds(work)) / TOGETHER for work in _both(made, theirs, x))
            row = {"law": name, "width": width, "ms": ours, "cusparse_ms": cu, "ratio": ours / cu, "error": error}
            rows.append(row | {"floor_ms_at_gb_s": (2 * x.nbytes + 8 * made.num_entries + 8 * nodes) / 1e6})
    return rows


def _both(made: Sparse, theirs: Tensor, x: Tensor) -> tuple[Callable[[], None], Callable[[], None]]:
    """Either side's product, ``TOGETHER`` times in a row, so that the GPU never waits for the next launch."""

    def ours() -> None:
        for _ in range(TOGETHER):
            made.times(x)

    def cusparse() -> None:
        for _ in range(TOGETHER):
            torch.sparse.mm(theirs, x)

    return ours, cusparse


def aggregating(bench: Bench) -> float:
    """Milliseconds of the aggregate of the inputs, by a matrix that is not needed afterwards."""
    product = WindowData(bench.graph, device="cuda").product("gcn")
    return statistics.median(milliseconds(lambda: spmm(product, bench.cells.x)))


def tgcn(bench: Bench, record: Record, copy_gb_s: float) -> None:
    """T-GCN in all modes; the aggregate of the inputs, which a run computes once, is added to every step."""
    found: dict[str, Any] = {}
    for mode, exact in (("bfloat16 rows", "high"), ("float32", "highest"), ("tf32", "high")):
        with precision(exact):
            found[mode] = step(*bench.ours("tgcn", torch.bfloat16 if mode.startswith("bf") else None))
    for mode, exact in (("rival float32", "highest"), ("rival tf32", "high")):
        with precision(exact):
            found[mode] = step(*bench.theirs("tgcn"), often=3)
    aggregate, cells = aggregating(bench), bench.cells.num_cells
    # States are written once and read twice; inputs are read twice, answers written, read and their gradients, too.
    floor = (3 * cells * HIDDEN * 4 + 8 * cells * 2 * 4) / copy_gb_s / 1e6
    for mode in ("float32", "tf32", "bfloat16 rows"):
        found[mode]["ms"] += aggregate
    record.samples["tgcn"] = found | {"aggregate_ms": aggregate, "floor_ms": floor}
    record.figures |= {
        "tgcn_ms": found["tf32"]["ms"],
        "tgcn_exact_ms": found["float32"]["ms"],
        "tgcn_bf16_ms": found["bfloat16 rows"]["ms"],
        "tgcn_gib": found["tf32"]["gib"],
        "tgcn_bf16_gib": found["bfloat16 rows"]["gib"],
        "tgcn_speedup": found["rival float32"]["ms"] / found["tf32"]["ms"],
        "tgcn_exact_speedup": found["rival float32"]["ms"] / found["float32"]["ms"],
        "tgcn_speedup_both_tf32": found["rival tf32"]["ms"] / found["tf32"]["ms"],
        "tgcn_floor_ratio": found["tf32"]["ms"] / floor,
    }


def others(bench: Bench, record: Record) -> None:
    """The other models, ours first, with TF32 and without."""
    names = ("mpnn-lstm", "gat-lstm", "evolvegcn-o", "dysat")
    record.samples |= {name: {} for name in names}
    for side, made in (("ours", bench.ours), ("rival", bench.theirs)):
        for name in names:
            for mode, exact in (("tf32", "high"), ("float32", "highest")):
                try:
                    with precision(exact):
                        both, loss = made(name)
                        record.samples[name][f"{side} {mode}"] = step(both, loss, often=3)
                except RuntimeError as error:  # out of memory, or more rows than cuDNN takes
                    record.missing[f"{name} {side} {mode}"] = str(error).splitlines()[0][:200]
                print(name, side, mode, record.samples[name].get(f"{side} {mode}"), flush=True)
    for name in names:
        _compare(name, record)


def _compare(name: str, record: Record) -> None:
    """Ratios of a model's two sides."""
    figure, found = name.replace("-", ""), record.samples[name]
    for mode, end in (("tf32", ""), ("float32", "_exact")):
        if f"ours {mode}" in found and f"rival {mode}" in found:
            ours, rival = found[f"ours {mode}"], found[f"rival {mode}"]
            record.figures[f"{figure}_speedup{end}"] = rival["ms"] / ours["ms"]
            record.figures[f"{figure}_memory_ratio{end}"] = ours["gib"] / rival["gib"]


def main() -> None:
    """Runs all parts and prints their tables."""
    chosen = options(__doc__ or "")
    record = Record("gpu", chosen.quick)
    if not torch.cuda.is_available():
        print("this benchmark needs a GPU; torch sees none here")
        return
    nodes, arcs = QUICK if chosen.quick else FULL
    record.samples["gpu"] = torch.cuda.get_device_name()
    record.samples["ceilings"] = ceilings()
    record.samples["errors"] = errors()
    rows = record.samples["products"] = products(nodes, arcs)
    record.figures["spmm_ms"] = next(r["ms"] for r in rows if r["law"] == "power-law columns" and r["width"] == 32)
    record.figures["spmm_vs_cusparse_worst"] = max(row["ratio"] for row in rows)
    bench = Bench.make(nodes, arcs)
    tgcn(bench, record, record.samples["ceilings"]["copy_gb_s"])
    print(record.figures, flush=True)
    others(bench, record)
    _show(record)
    record.write(chosen.json)


def _show(record: Record) -> None:
    print(record.samples["ceilings"], record.samples["errors"])
    widths = [
        [row["law"], row["width"], f"{row['ms']:.3f}", f"{row['cusparse_ms']:.3f}"]
        for row in record.samples["products"]
    ]
    table(["law", "width", "ours ms", "cuSPARSE ms"], widths)
    steps = [
        [model, mode, f"{found['ms']:.1f}", f"{found['gib']:.2f}"]
        for model in RIVALS
        for mode, found in record.samples[model].items()
        if isinstance(found, dict)
    ]
    table(["model", "mode", "ms", "GiB"], steps)
    table(["figure", "value"], [[name, f"{value:.3g}"] for name, value in record.figures.items()])
    print(record.missing)


if __name__ == "__main__":
    main()
