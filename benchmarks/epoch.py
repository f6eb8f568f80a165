"""Where does the time of an epoch go, and how far is each stage from what the machine allows?

The same graph and models as in benchmarks/peers.py. Two ceilings are measured in the same run: how fast memory can be
copied, and how fast tiles can be multiplied. From the bytes a stage must at least read and write and the operations
it must do follow two times it cannot undercut; the larger one is its floor.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peer_graph import edges
from benchmarks.record import Record, options, table
from strobe.graph import Degrees, from_edges
from strobe.models import make_model
from strobe.ops.dense.readout import readout
from strobe.ops.runtime.parallel import run_parts
from strobe.view import View, WindowData

HIDDEN = 32
MODELS = ("tgcn", "mpnn-lstm")


def copy_rate() -> float:
    """Bytes per second, read and written, when all cores copy memory larger than any cache."""
    source, target = torch.ones(1 << 27), torch.ones(1 << 27)
    pieces = list(zip(source.chunk(64), target.chunk(64), strict=True))

    def work(part: int) -> None:
        pieces[part][1].copy_(pieces[part][0])

    return 2 * 4 * source.numel() / _best(lambda: run_parts(work, len(pieces)))


def multiply_rate() -> float:
    """Operations per second when every core multiplies tiles that fit into its cache."""
    tiles = [(torch.randn(2048, 64), torch.randn(64, 128), torch.empty(2048, 128)) for _ in range(64)]

    def work(part: int) -> None:
        left, right, out = tiles[part]
        for _ in range(20):
            torch.mm(left, right, out=out)

    return 64 * 20 * 2 * 2048 * 64 * 128 / _best(lambda: run_parts(work, len(tiles)))


def _best(work: Callable[[], None]) -> float:
    seconds = []
    for _ in range(7):
        began = perf_counter()
        work()
        seconds.append(perf_counter() - began)
    return min(seconds)


def needs(model: str, stage: str, cells: int, arcs: int) -> tuple[float, float]:
    """(bytes, operations) an epoch needs for a stage at least, for the two recurrent models measured here."""
    h, f = HIDDEN, 2
    if stage == "_Gru":
        return 4 * cells * (f + h), 2 * cells * 3 * h * (f + h)
    if stage == "_GruBackward":  # reads inputs, states, their gradients; computes gates again
        return 4 * cells * (f + 2 * h), 3 * 2 * cells * 3 * h * (f + h)
    if stage == "_Lstm":  # two in one: from two convolutions, then from the first; keeps gates and cell states
        return 4 * cells * ((2 * h + 6 * h) + 6 * h + 2 * f), 2 * cells * 4 * h * (3 * h + 2 * h)
    if stage == "_LstmBackward":
        return 4 * cells * ((4 * h + 7 * h) + 7 * h + f), 2 * 2 * cells * 4 * h * (3 * h + 2 * h)
    if stage in ("_Product", "_ProductBackward"):  # every row once; a row that is read often stays in cache
        return 4 * (2 * cells * h + 2 * arcs), 2 * arcs * h
    wide = h if model == "tgcn" else 2 * h + f
    if stage in ("_Readout", "_ReadoutBackward"):
        return 4 * cells * wide * (2 if stage.endswith("Backward") else 1), 2 * 2 * cells * wide
    if stage in ("_Standardise", "_StandardiseBackward"):  # two of them; the moments first, then the rows again
        return 2 * 4 * cells * h * (5 if stage.endswith("Backward") else 3), 0.0
    return 0.0, 0.0


def profile(
    model_name: str, sizes: tuple[int, int, int], epochs: int
) -> tuple[dict[str, float], float, dict[str, int]]:
    """Seconds per stage of an epoch (by autograd function), of the whole epoch, and what there is to do."""
    nodes, snapshots, _ = sizes
    graph = from_edges(edges(*sizes), num_nodes=nodes, x=Degrees(log=True))
    cells = WindowData(graph[:snapshots])
    y = WindowData(graph[1:]).x
    torch.manual_seed(0)
    model: Any = make_model(model_name, 2, hidden=HIDDEN)
    head = nn.Linear(model.width, 2)
    optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()])

    def epoch() -> Tensor:
        loss = nn.functional.mse_loss(readout(model(View(cells)), head.weight, head.bias), y)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss

    wholes = []
    for _ in range(epochs):
        began = perf_counter()
        epoch()
        wholes.append(perf_counter() - began)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as watched:
        for _ in range(epochs):
            epoch()
    stages = {each.key: each.cpu_time_total / 1e6 / epochs for each in watched.key_averages()}
    stages = {name: seconds for name, seconds in stages.items() if name.startswith("_")}
    return stages, statistics.median(wholes[1:]), {"cells": cells.num_cells, "arcs": graph[:snapshots].num_arcs}


def main() -> None:
    """Measures both models and prints their tables."""
    chosen = options(__doc__ or "")
    sizes = (10_000, 10, 30_000) if chosen.quick else (50_000, 20, 150_000)
    record = Record("epoch", chosen.quick)
    copied, multiplied = copy_rate(), multiply_rate()
    record.figures |= {"copy_gb_per_s": copied / 1e9, "multiply_gflop_per_s": multiplied / 1e9}
    print(f"ceilings: copying {copied / 1e9:.1f} GB/s, multiplying {multiplied / 1e9:.0f} GFLOP/s")
    for model in MODELS:
        stages, whole, work = profile(model, sizes, 3 if chosen.quick else 5)
        rows = []
        for stage, seconds in sorted(stages.items(), key=lambda item: -item[1])[:8]:
            num_bytes, operations = needs(model, stage, work["cells"], work["arcs"] + work["cells"])
            floor = max(num_bytes / copied, operations / multiplied)
            share = seconds / sum(stages.values())
            told = {"seconds": seconds, "share": share, "bytes": num_bytes, "operations": operations, "floor_s": floor}
            record.samples[f"{model} {stage}"] = told
            times = f"{seconds / floor:.1f}" if floor else "-"
            rows.append(
                [stage, f"{1000 * seconds:.0f}", f"{share:.0%}", f"{1000 * floor:.0f}" if floor else "-", times]
            )
        record.figures[f"{model.replace('-', '')}_epoch_s"] = whole
        print(f"\n{model}: {whole:.3f} s an epoch")
        table(["stage", "ms", "share", "floor ms", "times the floor"], rows)
    record.write(chosen.json)


if __name__ == "__main__":
    main()
