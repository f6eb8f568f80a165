"""Features of a rank's cells and aggregates of them, which no weight comes before: computed once a run, if they fit."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from strobe.comm.ledger import Ledger
from strobe.errors import InputError
from strobe.graph import DynamicGraph
from strobe.ops.csr import IntArray, select_rows
from strobe.ops.normalise import Norm, normalise
from strobe.ops.sparse import Sparse, multiply


class OwnInputs:
    """By snapshot and by the norms of the products, in order of node. Up to ``room`` bytes are kept; what does not fit
    is computed whenever it is asked for."""

    def __init__(
        self, graph: DynamicGraph, own: IntArray, dtype: torch.dtype, device: torch.device, room: float, ledger: Ledger
    ) -> None:
        self._graph, self._own, self._dtype, self._device = graph, own, dtype, device
        self._room, self._ledger = room, ledger
        self._kept: dict[tuple[int, tuple[Norm, ...]], Tensor] = {}

    def __call__(self, t: int, key: tuple[Norm, ...]) -> Tensor:
        if (t, key) not in self._kept:
            rows = self._computed(t, key)
            size = rows.numel() * rows.element_size()
            if size > self._room:
                return rows
            self._room -= size
            self._kept[t, key] = rows
        return self._kept[t, key]

    def _computed(self, t: int, key: tuple[Norm, ...]) -> Tensor:
        snapshot = self._graph[t]
        mine = np.flatnonzero(self._own[snapshot.nodes])
        if snapshot.x is None:
            raise InputError("the graph has no features: give it some with graph.with_features(Degrees(log=True))")
        self._ledger.count(rows_loaded=snapshot.num_nodes)
        rows = torch.from_numpy(np.array(snapshot.x)).to(self._device, self._dtype)
        everyone = np.arange(snapshot.num_nodes)
        for k, norm in enumerate(key):
            block = normalise(norm, snapshot.row_ptr, snapshot.col, snapshot.weight)
            if k == len(key) - 1 and len(mine) < len(everyone):
                block = select_rows(block, mine, everyone)
            matrix = Sparse.stacked([block], len(everyone), dtype=self._dtype, device=self._device)
            rows = multiply(matrix, rows)
        return rows if key else rows[torch.from_numpy(mine).to(self._device)]
