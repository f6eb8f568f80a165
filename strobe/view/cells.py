"""What a window of snapshots gives a model, prepared once and kept for every pass over it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from strobe.errors import InputError
from strobe.graph import DynamicGraph
from strobe.ops.normalise import Csr, Norm, normalise
from strobe.ops.sequences import Sequences
from strobe.ops.sparse import Sparse, spmm


class Cells:
    """The cells of a window, t-major: features, sparse matrices by normalisation, sequences; all on one device.

    Matrices are built when first asked for. An aggregate of the inputs has no parameters before it, so it is
    computed once, one snapshot at a time, and kept: a model whose only aggregation that is needs no matrix at all.
    """

    def __init__(
        self, graph: DynamicGraph, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        self.graph = graph
        self.dtype = dtype
        self.device = torch.device(device)
        self.cell_ptr: tuple[int, ...] = tuple(graph.cell_ptr.tolist())
        self._matrices: dict[Norm, Sparse] = {}
        self._inputs: dict[int, tuple[Norm, ...]] = {}  # which aggregates of the inputs a tensor is, by its identity
        self._aggregates: dict[tuple[Norm, ...], Tensor] = {}

    @property
    def num_cells(self) -> int:
        return self.cell_ptr[-1]

    @property
    def num_snapshots(self) -> int:
        return len(self.cell_ptr) - 1

    @property
    def num_features(self) -> int:
        return 0 if self.graph.features is None else self.graph.features.shape[0]

    @cached_property
    def x(self) -> Tensor:
        """Features of all cells, [C, F]."""
        if self.graph.features is None:
            raise InputError("the graph has no features: give it some with graph.with_features(Degrees(log=True))")
        x = torch.empty(self.num_cells, self.num_features, dtype=self.dtype)
        for snapshot in self.graph:
            rows = self.rows(snapshot.t)
            x[rows] = torch.from_numpy(np.array(snapshot.x)).to(self.dtype)
        x = x.to(self.device)
        self._remember((), x)
        return x

    @cached_property
    def sequences(self) -> Sequences:
        """Who is present when. Slots are node ids."""
        return Sequences.of([snapshot.nodes for snapshot in self.graph], self.graph.num_nodes, self.device)

    @cached_property
    def single(self) -> tuple[Cells, ...]:
        """The cells of each snapshot alone, for models that step through time."""
        if self.num_snapshots == 1:
            return (self,)
        return tuple(
            Cells(self.graph[t : t + 1], dtype=self.dtype, device=self.device) for t in range(self.num_snapshots)
        )

    def rows(self, t: int) -> slice:
        """Rows of snapshot t among the cells."""
        return slice(self.cell_ptr[t], self.cell_ptr[t + 1])

    def matrix(self, norm: Norm) -> Sparse:
        """The block-diagonal matrix of the whole window. Undirected graphs have symmetric ones but for means."""
        if norm not in self._matrices:
            symmetric = not self.graph.directed and norm in ("gcn", "sum", "loops")
            blocks = [self._block(t, norm) for t in range(self.num_snapshots)]
            self._matrices[norm] = Sparse.block_diagonal(
                blocks, dtype=self.dtype, device=self.device, symmetric=symmetric
            )
        return self._matrices[norm]

    def is_input(self, x: Tensor) -> bool:
        """Whether x is the features or an aggregate of them."""
        return id(x) in self._inputs

    def aggregated_input(self, x: Tensor, norm: Norm) -> Tensor:
        """The aggregate of an input, computed at most once."""
        key = (*self._inputs[id(x)], norm)
        if key not in self._aggregates:
            out = torch.empty_like(x)
            for t in range(self.num_snapshots):
                block = Sparse.block_diagonal([self._block(t, norm)], dtype=self.dtype, device=self.device)
                out[self.rows(t)] = spmm(block, x[self.rows(t)])
            self._remember(key, out)
        return self._aggregates[key]

    def _remember(self, key: tuple[Norm, ...], x: Tensor) -> None:
        self._inputs[id(x)] = key
        self._aggregates[key] = x

    def _block(self, t: int, norm: Norm) -> Csr:
        snapshot = self.graph[t]
        return normalise(norm, snapshot.row_ptr, snapshot.col, snapshot.weight)
