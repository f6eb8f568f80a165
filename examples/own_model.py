"""Models of your own, trained beside the answers that need no learning.

A model reads a *view*: rows are cells (a node at a time), and it gives every cell ``width`` numbers. It never asks
when nodes come and go, how time is cut into windows or where it runs. Run me: ``python examples/own_model.py``.
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
    """Without a class: blocks of any PyTorch Geometric convolution and any GRU, LSTM or attention of torch."""
    return Stack(
        Block(GCNConv(inputs, 16), nn.GRU(16, 16)),
        Block(SAGEConv(16, 16), nn.MultiheadAttention(16, 4)),
        width=16,
    )


class Compared(nn.Module):
    """By hand: how a node differs from the mean of its neighbours, remembered by a GRU."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.width = 16
        self.layer = nn.Linear(2 * inputs, 16)
        self.memory = Block(None, nn.GRU(16, 16))

    def forward(self, view: View) -> Tensor:
        """Embeddings of the view's cells, [C, 16]."""
        around = view.aggregate(view.x, "mean")
        x = torch.relu(self.layer(torch.cat([view.x, view.x - around], 1)))
        remembered: Tensor = self.memory(view, x)
        return remembered


def main(epochs: int = 20) -> dict[str, dict[str, float]]:
    """Trains both to predict everybody's degrees in the next snapshot; test metrics by name."""
    graph = Social(nodes=300, snapshots=24, edges=1_500).write()
    scores: dict[str, dict[str, float]] = {}
    for make in (stacked, Compared):
        run = strobe.train(graph, make, NodeRegression(), epochs=epochs, lr=0.02)
        scores |= run.baselines["test"] | {make.__name__: run.test}
    for name, metrics in scores.items():
        print(f"{name:12}" + "".join(f"  {metric} {value:.4f}" for metric, value in metrics.items()))
    return scores


if __name__ == "__main__":
    main()
