"""Cells of windows that keep only the beginnings of older snapshots, as views of snapshots in an order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.exchange.halo import Neighbours
from strobe.exchange.halo_product import HaloMatrix
from strobe.ops.corners import Corner, Corners
from strobe.ops.csr import FloatArray
from strobe.ops.normalise import Norm
from strobe.ops.sparse import Sparse
from strobe.view.cells import Cells
from strobe.view.share import Reads
from strobe.view.shrunk_share import Block, ShrunkShare


class ShrunkCells(Cells):
    """The cells of a window of blocks. Sparse products read corners of the snapshots' matrices where they stand."""

    share: ShrunkShare
    slides = True

    def __init__(self, share: ShrunkShare, *, dtype: torch.dtype, device: torch.device) -> None:
        times = share.owners.times
        super().__init__(share.graph[times.start : times.stop], share=share, dtype=dtype, device=device)

    @cached_property
    def num_arcs(self) -> int:
        return sum(block.num_arcs for block in self.share.blocks)

    @cached_property
    def x(self) -> Tensor:
        x = self._inputs_of(())
        self.remember((), x)
        return x

    @cached_property
    def pulled_x(self) -> Tensor:
        others = [block.ordered.others_features(block.kept) for block in self.share.blocks]
        return torch.cat([self.x, *others]) if self.share.splits_snapshots else self.x

    def aggregated_input(self, x: Tensor, norm: Norm) -> Tensor:
        key = (*self._inputs[id(x)], norm)
        if key not in self._aggregates:
            self.remember(key, self._inputs_of(key))
        return self._aggregates[key]

    def neighbours(self, reads: Reads) -> Neighbours:
        reads = reads if self.graph.directed else "in"
        if reads not in self._neighbours:
            self._neighbours[reads] = self.share.neighbours(reads)
        return self._neighbours[reads]

    def product(self, norm: Norm) -> Corners:
        if norm not in self._corners:
            self._corners[norm] = Corners(tuple(self._own_corners(norm)))
        return self._corners[norm]

    def matrix(self, norm: Norm) -> Sparse:
        """A copy, for kernels that need its entries; columns are own cells and then those of others."""
        if norm not in self._matrices:
            like = torch.empty(0, dtype=self.dtype, device=self.device)
            own = self.product(norm).copied(like)
            self._matrices[norm] = own if not self.share.splits_snapshots else self._beside(norm, own, like)
        return self._matrices[norm]

    def halo_matrix(self, norm: Norm) -> HaloMatrix:
        if norm not in self._halos:
            far, rows, first = [], [], 0
            reads: Reads = "out" if norm == "mean_out" else "in"
            for block in self.share.blocks:
                part = block.ordered.far(norm)
                scales: tuple[Tensor | None, Tensor | None] = None, None
                here = int(np.searchsorted(part.rows, block.num_cells))
                if self._evens(block, norm):
                    own = self._scale(block, norm, block.ordered.shares)
                    others = self._scale(block, norm, block.ordered.far_shares) if norm == "gcn" else None
                    scales = others, own[torch.from_numpy(part.rows[:here]).to(self.device)]
                far.append(Corner(part.matrix, here, block.ordered.around(reads).number(block.kept), *scales))
                rows.append(part.rows[:here] + first)
                first += block.num_cells
            at = torch.from_numpy(np.concatenate(rows)).to(self.device)
            self._halos[norm] = HaloMatrix(self.product(norm), Corners(tuple(far)), at)
        return self._halos[norm]

    @cached_property
    def single(self) -> tuple[Cells, ...]:
        shares: list[Any] = [self.share.single(t, self.share.home) for t in range(self.num_snapshots)]
        return tuple(ShrunkCells(share, dtype=self.dtype, device=self.device) for share in shares)

    @cached_property
    def _corners(self) -> dict[Norm, Corners]:
        return {}

    def next_start(self, start: Any | None, values: Sequence[Any], *, per_node: bool) -> Any | None:
        return self.share.after(start, values, per_node=per_node)

    def _own_corners(self, norm: Norm) -> Iterator[Corner]:
        for block in self.share.blocks:
            matrix = block.ordered.matrix(norm)
            scale = self._scale(block, norm, block.ordered.shares) if self._evens(block, norm) else None
            yield Corner(matrix, block.num_cells, block.num_cells, scale if norm == "gcn" else None, scale)

    def _evens(self, block: Block, norm: Norm) -> bool:
        """Whether weights of arcs are other ones than in the whole snapshot."""
        return block.evened and norm in ("gcn", "mean", "mean_out") and not block.is_whole

    def _scale(self, block: Block, norm: Norm, shares: Callable[[Norm, int], FloatArray]) -> Tensor:
        """By how much weights grow, since degrees are smaller."""
        grown = 1 / shares(norm, block.kept)
        return torch.from_numpy(np.sqrt(grown) if norm == "gcn" else grown).to(self.device, self.dtype)

    def _inputs_of(self, key: tuple[Norm, ...]) -> Tensor:
        return torch.cat([block.ordered.given(key)[: block.num_cells] for block in self.share.blocks])

    def _beside(self, norm: Norm, own: Sparse, like: Tensor) -> Sparse:
        """Own columns, then those of others."""
        halo = self.halo_matrix(norm)
        assert isinstance(halo.far, Corners)
        far = halo.far.copied(like)
        row = torch.cat([own.rows, halo.rows[far.rows]])
        col = torch.cat([own.col, far.col + own.num_cols])
        order = torch.argsort(row.long() * (own.num_cols + far.num_cols) + col)
        weight = None
        if own.weight is not None or far.weight is not None:
            parts = [torch.ones_like(m.col, dtype=self.dtype) if m.weight is None else m.weight for m in (own, far)]
            weight = torch.cat(parts)[order]
        counts = torch.bincount(row, minlength=own.num_rows)
        row_ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Sparse(row_ptr, col[order].to(torch.int32), weight, own.num_cols + far.num_cols)
