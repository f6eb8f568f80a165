"""States that nodes have after a snapshot, kept while the graph grows: which tensors have a row per node, and moves of
these rows when nodes are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from strobe.engine.forward import detach_tree, window_loss
from strobe.engine.windows import Segment, Window
from strobe.graph import PerCell
from strobe.graph.convert import from_edges
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.base import Problem
from strobe.view import Carry, View, WindowData


class StartedModel(nn.Module):
    """A model whose passes start from given states instead of initial ones."""

    def __init__(self, model: nn.Module, states: Carry) -> None:
        super().__init__()
        self.model, self._states = model, states

    def forward(self, view: View) -> Tensor:
        View.__init__(view, view.data, self._states)  # a pass that has just begun begins again, from the states
        out: Tensor = self.model(view)
        return out


@torch.no_grad()
def run_window(model: nn.Module, head: nn.Module, problem: Problem, window: Window) -> Carry:
    """The states after a pass over a window in evaluation mode, without examples."""
    was_training = model.training, head.training
    model.eval()
    head.eval()
    _, states = window_loss(model, head, problem, window, None, [None] * len(window))
    model.train(was_training[0])
    head.train(was_training[1])
    assert states is not None
    detached: Carry = detach_tree(states)
    return detached


def find_node_states(model: nn.Module, head: nn.Module, problem: Problem, like: WindowData) -> list[bool]:
    """Whether each tensor of the states has a row per node: its size depends on the number of nodes, with equal edges.

    Found by passes over two graphs of one edge, with the features' columns and the dtype of ``like``.
    """
    sizes = [
        [leaf.shape for leaf in tensors(run_window(model, head, problem, _single_edge(num_nodes, like)))]
        for num_nodes in (3, 4)
    ]
    return [small != large for small, large in zip(*sizes, strict=True)]


def tensors(states: Any) -> list[Tensor]:
    """All tensors of the states, in order."""
    return [leaf for leaf in pytree.tree_leaves(states) if isinstance(leaf, Tensor)]


def _single_edge(num_nodes: int, like: WindowData) -> Window:
    graph = from_edges([[[0], [1]]], nodes=[[0, 1]], num_nodes=num_nodes, directed=like.graph.directed)
    graph = graph.with_features(PerCell(np.zeros((2, like.num_features), np.float32)))
    return (Segment(range(1), WindowData(graph, dtype=like.dtype, device=like.device)),)


def move_node_rows(states: Carry, per_node: Sequence[bool], old: IntArray, new: IntArray) -> Carry:
    """States with rows of the nodes ``new`` instead of ``old``, both ascending; nodes without a row start from 0.

    Integer tensors without a row per node are indices of such rows.
    """
    stays = np.isin(old, new, assume_unique=True)
    places = np.searchsorted(new, old)
    flags = iter(per_node)

    def move(state: Tensor) -> Tensor:
        if next(flags):
            rows = torch.from_numpy(np.flatnonzero(stays)).to(state.device)
            moved = state.new_zeros(len(new), *state.shape[1:])
            return moved.index_copy(0, torch.from_numpy(places[stays]).to(state.device), state[rows])
        if state.dtype == torch.int64:
            return torch.from_numpy(places).to(state.device)[state]
        return state

    moved: Carry = pytree.tree_map_only(Tensor, move, states)
    return moved
