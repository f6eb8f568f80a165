"""Two models of your own, trained and compared with baselines. Run: ``python examples/own_model.py``.

A model reads a *view*: rows are cells (a node at a time), and it embeds every cell in ``width`` columns. It never
handles presence of nodes, windows or ranks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGEConv

import strobe
from strobe.graph.synthetic import Social
from strobe.models import Block, Stack
from strobe.tasks import NodeRegression
from strobe.view import View


def stacked(inputs: int) -> nn.Module:
    """Stack blocks of any PyTorch Geometric convolution and any torch GRU, LSTM or attention."""
    return Stack(
        Block(GCNConv(inputs, 16), nn.GRU(16, 16)),
        Block(SAGEConv(16, 16), nn.MultiheadAttention(16, 4)),
        width=16,
    )


class NeighborDifference(nn.Module):
    """A GRU over the difference of a node from the mean of its neighbors."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.width = 16
        self.layer = nn.Linear(2 * inputs, 16)
        self.gru = Block(None, nn.GRU(16, 16))

    def forward(self, view: View) -> Tensor:
        """Embed the view's cells, [C, 16]."""
        mean = view.aggregate(view.x, "mean")
        x = torch.relu(self.layer(torch.cat([view.x, view.x - mean], 1)))
        out: Tensor = self.gru(view, x)
        return out


def main(epochs: int = 20) -> dict[str, dict[str, float]]:
    """Train both models to predict degrees in the next snapshot. Returns test metrics by model and baseline."""
    graph = Social(nodes=300, snapshots=24, edges=1_500).write()
    scores: dict[str, dict[str, float]] = {}
    for make in (stacked, NeighborDifference):
        run = strobe.train(graph, make, NodeRegression(), epochs=epochs, lr=0.02)
        scores |= run.baselines["test"] | {make.__name__: run.test}
    for name, metrics in scores.items():
        print(f"{name:20}" + "".join(f"  {metric} {value:.4f}" for metric, value in metrics.items()))
    return scores


if __name__ == "__main__":
    main()
