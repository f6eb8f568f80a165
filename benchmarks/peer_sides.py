"""The two sides of the comparison, each in a process of its own that runs an epoch whenever it is told to.

``python peer_sides.py SIDE MODEL NODES SNAPSHOTS EDGES THREADS``: says its memory after importing, then for every
line on its input runs an epoch and says seconds and loss; at the end of input it says its peak memory. An epoch is
one forward pass over all snapshots with the state carried, the mean squared error, one backward pass, one step of
Adam. Needs nothing of Strobe for the peer's side.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

if sys.argv[1:2] == ["strobe"]:
    import strobe  # noqa: F401 - before torch, as its program does: it tells OpenMP how to wait

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent))
from peer_graph import edges, log_degrees  # type: ignore[import-not-found]

HIDDEN = 32
Epoch = Callable[[], torch.Tensor]


def memory(kind: str) -> int:
    """Bytes: now (VmRSS) or at the peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(kind)).split()[1])


def with_pygt(model: str, nodes: int, snapshots: int, per_snapshot: int) -> tuple[nn.Module, Epoch]:
    """PyTorch Geometric Temporal, used as its own examples use it."""
    from torch_geometric_temporal.nn import recurrent
    from torch_geometric_temporal.signal import DynamicGraphTemporalSignal

    found = edges(nodes, snapshots, per_snapshot)
    rows = [log_degrees(snapshot, nodes) for snapshot in found]
    weights = [np.ones(snapshot.shape[1], np.float32) for snapshot in found[:snapshots]]
    data = DynamicGraphTemporalSignal(found[:snapshots], weights, rows[:snapshots], rows[1:])
    cell: Any = {
        "tgcn": lambda: recurrent.TGCN(2, HIDDEN),
        "mpnnlstm": lambda: recurrent.MPNNLSTM(2, HIDDEN, nodes, 1, 0.0),
        "evolvegcno": lambda: recurrent.EvolveGCNO(HIDDEN),
        "evolvegcnh": lambda: recurrent.EvolveGCNH(nodes, HIDDEN),
    }[model]()
    evolves = model.startswith("evolve")
    lift = nn.Linear(2, HIDDEN) if evolves else nn.Identity()
    head = nn.Linear(2 * HIDDEN + 2 if model == "mpnnlstm" else HIDDEN, 2)

    def epoch() -> torch.Tensor:
        state, loss = None, torch.zeros(())
        if evolves:
            cell.reinitialize_weight()
        for shot in data:
            graph = (shot.edge_index, shot.edge_attr)
            if model == "tgcn":
                out = state = cell(shot.x, *graph, state)
            else:
                out = cell(torch.relu(lift(shot.x)) if evolves else shot.x, *graph)
            loss = loss + torch.mean((head(torch.relu(out)) - shot.y) ** 2)
        return loss / snapshots

    return nn.ModuleList([cell, lift, head]), epoch


def with_strobe(model: str, nodes: int, snapshots: int, per_snapshot: int) -> tuple[nn.Module, Epoch]:
    """Strobe: the same loss over the same cells, through a view."""
    from strobe.graph import Degrees, from_edges
    from strobe.models import make_model
    from strobe.ops.dense.readout import readout
    from strobe.view import View, WindowData

    found = edges(nodes, snapshots, per_snapshot)
    graph = from_edges(found, num_nodes=nodes, x=Degrees(log=True))
    cells = WindowData(graph[:snapshots])
    y = torch.cat([torch.from_numpy(np.array(shot.x)) for shot in graph[1:]])
    names = {"tgcn": "tgcn", "evolvegcno": "evolvegcn-o", "evolvegcnh": "evolvegcn-h", "mpnnlstm": "mpnn-lstm"}
    made: Any = make_model(names[model], 2, hidden=HIDDEN)
    head = nn.Linear(made.width, 2)

    def epoch() -> torch.Tensor:
        return nn.functional.mse_loss(readout(made(View(cells)), head.weight, head.bias), y)

    return nn.ModuleList([made, head]), epoch


def say(**values: Any) -> None:
    """One line of JSON for the process that asked."""
    print(json.dumps(values), flush=True)


def main() -> None:
    """Runs one side."""
    side, model, nodes, snapshots, per_snapshot, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    if side == "pygt":
        import torch_geometric_temporal.nn.recurrent
        import torch_geometric_temporal.signal  # noqa: F401
    else:
        import strobe.engine
        import strobe.models  # noqa: F401
    torch.optim.Adam([nn.Parameter(torch.zeros(1))])  # imports much of torch when it is first made
    say(imported=memory("VmRSS"))
    whole, epoch = (with_pygt if side == "pygt" else with_strobe)(model, int(nodes), int(snapshots), int(per_snapshot))
    optimiser = torch.optim.Adam(whole.parameters(), lr=0.01)
    say(ready=True, parameters=sum(weight.numel() for weight in whole.parameters()))
    for _ in sys.stdin:
        began = perf_counter()
        loss = epoch()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        say(seconds=perf_counter() - began, loss=float(loss.detach()))
    say(peak=memory("VmHWM"))


if __name__ == "__main__":
    main()
