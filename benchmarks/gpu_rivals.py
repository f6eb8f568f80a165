"""The same models in plain PyTorch Geometric and torch, snapshot by snapshot, as their papers' programmes have them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm

Edges = Sequence[Tensor]
"""Of each snapshot, [2, E]."""


class TGCN(nn.Module):
    """As PyTorch Geometric Temporal writes it: a convolution and a linear map for each of three gates."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden, self.width = hidden, hidden
        self.convolutions = nn.ModuleList(GCNConv(inputs, hidden) for _ in range(3))
        self.linears = nn.ModuleList(nn.Linear(2 * hidden, hidden) for _ in range(3))

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        h, out = x.new_zeros(x.shape[1], self.hidden), []
        for here, arcs in zip(x, edges, strict=True):
            z = torch.sigmoid(self._gate(0, here, arcs, h))
            r = torch.sigmoid(self._gate(1, here, arcs, h))
            candidate = torch.tanh(self._gate(2, here, arcs, r * h))
            h = z * h + (1 - z) * candidate
            out.append(h)
        return torch.stack(out)

    def _gate(self, which: int, x: Tensor, edges: Tensor, h: Tensor) -> Tensor:
        said: Tensor = self.linears[which](torch.cat([self.convolutions[which](x, edges), h], 1))
        return said


class MPNNLSTM(nn.Module):
    """Two convolutions, each with ReLU and batch norm, side by side into two LSTMs; states and features come out."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.width = 2 * hidden + inputs
        self.convolutions = nn.ModuleList([GCNConv(inputs, hidden), GCNConv(hidden, hidden)])
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(2))
        self.recurrent = nn.ModuleList([nn.LSTM(2 * hidden, hidden), nn.LSTM(hidden, hidden)])

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        rows = []
        for here, arcs in zip(x, edges, strict=True):
            parts = []
            for convolution, norm in zip(self.convolutions, self.norms, strict=True):
                here = norm(torch.relu(convolution(here, arcs)))
                parts.append(here)
            rows.append(torch.cat(parts, 1))
        first = _in_shares(self.recurrent[0], torch.stack(rows))
        second = _in_shares(self.recurrent[1], first)
        return torch.cat([first, second, x], 2)


class GATLSTM(nn.Module):
    """Graph attention with four heads, ELU, then an LSTM."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.width = hidden
        self.attention = GATConv(inputs, hidden // 4, heads=4)
        self.recurrent = nn.LSTM(hidden, hidden)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        rows = [nn.functional.elu(self.attention(here, arcs)) for here, arcs in zip(x, edges, strict=True)]
        return _in_shares(self.recurrent, torch.stack(rows))


def _in_shares(recurrent: nn.Module, x: Tensor) -> Tensor:
    """A torch LSTM on some nodes at a time: with more than 2^31 numbers in its gates cuDNN reads beyond its arrays."""
    return torch.cat([recurrent(share)[0] for share in x.chunk(4, 1)], 1)


class DySAT(nn.Module):
    """Graph attention with four heads, ELU, then attention of each node over its past, with positions that count back
    from the reading cell, and a feed-forward layer; all scores of all nodes at once."""

    def __init__(self, inputs: int, hidden: int, positions: int = 16) -> None:
        super().__init__()
        self.width, self.heads = hidden, 4
        self.attention = GATConv(inputs, hidden // self.heads, heads=self.heads)
        self.positions = nn.Parameter(torch.randn(positions, hidden) * hidden**-0.5)
        self.w_q, self.w_k, self.w_v = (nn.Linear(hidden, hidden, bias=False) for _ in range(3))
        self.feed_forward = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        rows = [nn.functional.elu(self.attention(here, arcs)) for here, arcs in zip(x, edges, strict=True)]
        h = torch.stack(rows, 1)  # [N, T, hidden]
        own = h + self.positions[0]
        q, k, v = (self._by_head(each).transpose(1, 2) for each in (self.w_q(own), self.w_k(h), self.w_v(h)))
        steps = torch.arange(len(x), device=x.device)
        far = (steps[:, None] - steps).clamp(0, len(self.positions) - 1)
        key, value = (self._by_head(map_(self.positions))[far] for map_ in (self.w_k, self.w_v))  # [T, T, heads, depth]
        score = (q @ k.transpose(2, 3) + torch.einsum("nhid,ijhd->nhij", q, key)) * q.shape[3] ** -0.5
        weight = torch.softmax(score.masked_fill(steps[:, None] < steps, -torch.inf), 3)
        y = (weight @ v + torch.einsum("nhij,ijhd->nhid", weight, value)).transpose(1, 2).flatten(2)
        return (y + torch.relu(self.feed_forward(y)) + own).transpose(0, 1)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, -1)


class _Propagate(MessagePassing):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(aggr="add")

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        edges, weight = gcn_norm(edges, None, len(x), dtype=x.dtype)
        out: Tensor = self.propagate(edges, x=x, weight=weight)
        return out

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return weight[:, None] * x_j


class EvolveGCNO(nn.Module):
    """A linear map and ReLU, then a convolution whose weight evolves from itself."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.width = hidden
        self.lift = nn.Linear(inputs, hidden)
        self.weight = nn.Parameter(torch.randn(hidden, hidden) * hidden**-0.5)
        self.cell = nn.GRUCell(hidden, hidden)
        self.propagate = _Propagate()

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        weight, out = self.weight, []
        for here, arcs in zip(x, edges, strict=True):
            weight = self.cell(weight, weight)
            out.append(self.propagate(torch.relu(self.lift(here)) @ weight, arcs))
        return torch.stack(out)


RIVALS: dict[str, type[nn.Module]] = {
    "tgcn": TGCN,
    "mpnn-lstm": MPNNLSTM,
    "gat-lstm": GATLSTM,
    "evolvegcn-o": EvolveGCNO,
    "dysat": DySAT,
}
