"""Do the costs of an epoch and of a whole run grow linearly with the graph, in time and in memory?

Whole runs, of several tasks and presets: ``benchmarks/linear_runs.py``. Epochs: social networks of growing size, the
same number of snapshots and of edges per node, each trained in a process of its own. Time is per cell and arc (what an
epoch touches); memory is the peak above the smallest graph's, per cell more.
"""

from __future__ import annotations

import statistics
from functools import partial
from time import perf_counter
from typing import Any

from benchmarks import linear_runs
from benchmarks.parts import parts_parser, run_parts
from benchmarks.record import Record, child, memory, table, tell

_MODULE = "benchmarks.linear"
MODELS = ("tgcn", "evolvegcn-o")
SNAPSHOTS = 8
_SMALLEST = 1_000  # whose memory is what the program needs whatever the graph


def epochs(model_name: str, nodes: int, count: int) -> None:
    """Child: trains on a graph of ``nodes`` nodes and prints seconds per epoch, cells and arcs."""
    from strobe.graph.synthetic import Social  # before torch: Strobe tells OpenMP how to wait
    from strobe.models import make_model
    from strobe.ops.dense.readout import readout
    from strobe.view import View, WindowData

    import torch  # isort: skip
    from torch import nn  # isort: skip

    torch.manual_seed(0)
    graph = Social(nodes=nodes, snapshots=SNAPSHOTS, edges=3 * nodes).write()
    cells = WindowData(graph)
    model: Any = make_model(model_name, cells.num_features)
    head = nn.Linear(model.width, 2)
    optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()])
    seconds = []
    for _ in range(count + 1):
        began = perf_counter()
        z = model(View(cells))
        loss = nn.functional.mse_loss(readout(z, head.weight, head.bias), cells.x)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        seconds.append(perf_counter() - began)
    tell(seconds=seconds[1:], cells=graph.num_cells, arcs=graph.num_arcs, held_bytes=memory("VmRSS"))


def measure_epochs(record: Record) -> None:
    """Epochs of all models and sizes."""
    sizes = (10_000, 40_000) if record.quick else (10_000, 50_000, 200_000, 1_000_000, 2_000_000)
    rows: list[dict[str, Any]] = []
    for model in MODELS:
        smallest = child(_MODULE, model, _SMALLEST, 3)
        per_touch, per_cell = [], []
        for nodes in sizes:
            # Small graphs have short epochs: more of them, or the clock would decide.
            found = child(_MODULE, model, nodes, 5 if nodes >= 200_000 else 15)
            touched = found["cells"] + found["arcs"]
            cost = statistics.median(found["seconds"]) / touched
            memory_cost = (found["peak_bytes"] - smallest["peak_bytes"]) / (found["cells"] - smallest["cells"])
            per_touch.append(cost)
            per_cell.append(memory_cost)
            told = {"model": model, "nodes": nodes, "ns_per_touch": 1e9 * cost, "bytes_per_cell": memory_cost}
            rows.append(told | {name: found[name] for name in ("cells", "arcs", "seconds", "peak_bytes")})
        name = model.replace("-", "")
        record.figures[f"{name}_time_growth"] = per_touch[-1] / per_touch[0]
        record.figures[f"{name}_time_spread"] = max(per_touch) / min(per_touch)
        record.figures[f"{name}_memory_growth"] = per_cell[-1] / per_cell[0]
    record.samples["rows"] = rows
    shown = [
        [row["model"], f"{row['nodes']:,}", f"{row['ns_per_touch']:.1f}", f"{row['bytes_per_cell']:,.0f}"]
        for row in rows
    ]
    table(["model", "nodes", "ns per cell and arc", "bytes per cell"], shown)


def main() -> None:
    """Run all parts, or one, and print the figures."""
    ladders = linear_runs.LADDERS
    chosen = parts_parser(__doc__, ("epochs", *ladders)).parse_args()
    if chosen.child:
        return epochs(chosen.child[0], int(chosen.child[1]), int(chosen.child[2]))
    record = Record("linear", chosen.quick)
    names = linear_runs.QUICK if chosen.quick else ladders
    parts = {"epochs": partial(measure_epochs, record)}
    parts |= {name: partial(linear_runs.measure, record, name) for name in names}
    run_parts(record, parts, chosen, {})
    return None


if __name__ == "__main__":
    main()
