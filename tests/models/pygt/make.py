"""Makes the expected files beside this script with PyTorch Geometric Temporal (0.56).

    python -m tests.models.pygt.make

in an environment of its own that has numpy, torch, torch-geometric and ``pip install --no-deps
torch-geometric-temporal``. That package imports torch_sparse and torch_scatter but uses neither here: where they
cannot be installed, empty modules of these names, with a class ``SparseTensor`` in the first, do. Nothing of Strobe is
imported, and the tests that read the files need nothing of PyTorch Geometric Temporal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

HERE = Path(__file__).parent
NODES, SNAPSHOTS, HIDDEN = 12, 4, 4
FILTER_SIZES = (2, 4)  # of Chebyshev convolutions
LARGE_NODES = 50_000  # its square does not fit into 32 bits

Graph = dict[str, list[Any]]
"""Lists of what every snapshot has: ``edges`` [2, E], ``weights`` [E], ``x`` [N, F]."""


def small_graph(features: int) -> Graph:
    """Directed and weighted; nodes 10 and 11 are isolated, 9 is only read, edges come twice, one is a loop."""
    rng = np.random.default_rng(7)
    graph: Graph = {"edges": [], "weights": [], "x": []}
    for _ in range(SNAPSHOTS):
        edges = np.stack([rng.integers(0, 10, 18), rng.integers(0, 9, 18)])
        edges = edges[:, edges[0] != edges[1]]
        edges = np.concatenate([edges, edges[:, :3], [[2], [2]]], 1)
        graph["edges"].append(edges)
        graph["weights"].append(rng.uniform(0.1, 2.0, edges.shape[1]))
        graph["x"].append(rng.normal(size=(NODES, features)))
    return graph


def large_graph() -> Graph:
    """A graph with row * num_nodes above 32 bits, with few edges, most between high numbers."""
    rng = np.random.default_rng(11)
    edges = [np.append(rng.integers(46_000, LARGE_NODES, (2, 300)), rng.permutation(200).reshape(2, 100), 1)] * 2
    edges[1] = edges[1][::-1].copy()
    weights = [rng.uniform(0.1, 2.0, 400) for _ in edges]
    return {"edges": edges, "weights": weights, "x": [rng.normal(size=(LARGE_NODES, 2)) for _ in edges]}


def large_rows() -> Any:
    """Rows of the large outputs that are worth storing: some nodes with edges, high and low, in both snapshots."""
    ends = large_graph()["edges"][0][:, ::20].reshape(-1)
    return np.concatenate([ends, ends + LARGE_NODES])


class Lifted(nn.Module):
    """A cell that maps C columns to C, behind a layer that brings the features there."""

    def __init__(self, inputs: int, cell: nn.Module) -> None:
        super().__init__()
        self.lift = nn.Linear(inputs, HIDDEN)
        self.cell = cell

    def forward(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        out: Tensor = self.cell(torch.relu(self.lift(x)), edges, weights)
        return out


class WithCellState(nn.Module):
    """A cell with two states, of which it gives the hidden one and remembers the other."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell, self.out_channels = cell, HIDDEN
        self.c: Tensor | None = None

    def forward(self, x: Tensor, edges: Tensor, weights: Tensor, h: Tensor) -> Tensor:
        out: Tensor
        out, self.c = self.cell(x, edges, weights, h, torch.zeros_like(h) if self.c is None else self.c)
        return out


def main() -> None:
    """Writes every file."""
    from torch_geometric_temporal.nn import recurrent  # type: ignore[import-not-found,unused-ignore]

    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    small, square = small_graph(3), small_graph(HIDDEN)
    save("tgcn", recurrent.TGCN(3, HIDDEN), small, stateful=True)
    save("tgcn_large", recurrent.TGCN(2, 3), large_graph(), stateful=True)
    save("evolvegcno", recurrent.EvolveGCNO(HIDDEN), square)
    save("evolvegcnh", recurrent.EvolveGCNH(NODES, HIDDEN), square)
    save("evolvegcno_lifted", Lifted(3, recurrent.EvolveGCNO(HIDDEN)), small)
    save("evolvegcnh_lifted", Lifted(3, recurrent.EvolveGCNH(NODES, HIDDEN)), small)
    save("mpnnlstm_training", recurrent.MPNNLSTM(3, HIDDEN, NODES, 1, 0.0), small)
    save("mpnnlstm_evaluation", recurrent.MPNNLSTM(3, HIDDEN, NODES, 1, 0.0).eval(), small)
    save("mpnnlstm_window", recurrent.MPNNLSTM(3, HIDDEN, NODES, SNAPSHOTS, 0.0).eval(), stacked(small))
    for size in FILTER_SIZES:
        save(f"gconvgru_{size}", recurrent.GConvGRU(3, HIDDEN, size), small, stateful=True)
        save(f"gclstm_{size}", WithCellState(recurrent.GCLSTM(3, HIDDEN, size)), small, stateful=True)


def save(name: str, model: Any, graph: Graph, *, stateful: bool = False) -> None:
    """Runs a model with random parameters and buffers through the snapshots, backward too, and writes what it gave."""
    for value in [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]:
        nn.init.uniform_(value, -0.8, 0.8)
    for key, value in model.named_buffers():
        if key.endswith("running_var"):
            nn.init.uniform_(value, 0.5, 2.0)
    found = {f"before/{key}": value.numpy().copy() for key, value in model.state_dict().items()}
    outs: list[Tensor] = []
    for arrays in zip(graph["x"], graph["edges"], graph["weights"], strict=True):
        x, edges, weights = (torch.from_numpy(array) for array in arrays)
        state = [outs[-1] if outs else x.new_zeros(len(x), model.out_channels)] if stateful else []
        outs.append(model(x, edges, weights, *state))
    out = torch.cat(outs)
    (out * torch.linspace(-1, 2, out.numel()).reshape(out.shape)).sum().backward()
    rows = out.detach().numpy()
    found["out"] = rows if len(rows) < LARGE_NODES else rows[large_rows()]
    found |= {f"gradient/{key}": value.grad.numpy() for key, value in model.named_parameters()}
    found |= {f"after/{key}": value.numpy() for key, value in model.named_buffers()}
    np.savez_compressed(HERE / f"{name}.npz", **found)


def stacked(graph: Graph) -> Graph:
    """All snapshots as one graph side by side, as a model with a window takes them."""
    edges = [part + t * NODES for t, part in enumerate(graph["edges"])]
    parts = {"edges": np.concatenate(edges, 1), "weights": np.concatenate(graph["weights"])}
    return {key: [value] for key, value in parts.items()} | {"x": [np.concatenate(graph["x"])]}


if __name__ == "__main__":
    main()
