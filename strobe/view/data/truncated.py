"""Data of truncated windows, which keep only the leading chunks of older snapshots, and the cache of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.comm.ledger import Ledger
from strobe.errors import InputError
from strobe.exchange.halo import HaloMatrix
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import FloatArray, IntArray, select_csr_rows
from strobe.ops.sparse.leading_block import LeadingBlock, LeadingBlocks
from strobe.ops.sparse.normalize import Norm, normalize
from strobe.ops.sparse.spmm import Sparse, spmm_no_grad
from strobe.view.data.window import WindowData
from strobe.view.partition.local import Reads
from strobe.view.partition.truncated import TruncatedPartition, WindowSlice

_TWO_SIDED: tuple[Norm, ...] = ("gcn", "sym")
"""Norms that divide by the root of the degrees of both cells."""


class TruncatedData(WindowData):
    """The cells of a truncated window. Sparse products read leading blocks of snapshots' matrices without copying."""

    local_partition: TruncatedPartition
    is_sliding = True

    def __init__(self, local_partition: TruncatedPartition, *, dtype: torch.dtype, device: torch.device) -> None:
        times = local_partition.owners.times
        super().__init__(
            local_partition.graph[times.start : times.stop], local_partition=local_partition, dtype=dtype, device=device
        )

    @cached_property
    def num_arcs(self) -> int:
        return sum(block.num_arcs for block in self.local_partition.slices)

    @cached_property
    def pulled_x(self) -> Tensor:
        others = [block.permuted.remote_features(block.num_chunks) for block in self.local_partition.slices]
        return torch.cat([self.x, *others]) if self.local_partition.splits_snapshots else self.x

    def product(self, norm: Norm) -> LeadingBlocks:
        if norm not in self._leading_blocks:
            self._leading_blocks[norm] = LeadingBlocks(tuple(self._own_blocks(norm)))
        return self._leading_blocks[norm]

    def matrix(self, norm: Norm) -> Sparse:
        """A copy, for kernels that read its entries; columns are local, then remote cells."""
        if norm not in self._matrices:
            like = torch.empty(0, dtype=self.dtype, device=self.device)
            own = self.product(norm).to_sparse(like)
            self._matrices[norm] = (
                own if not self.local_partition.splits_snapshots else self._append_remote(norm, own, like)
            )
        return self._matrices[norm]

    def halo_matrix(self, norm: Norm) -> HaloMatrix:
        if norm not in self._halo_matrices:
            remote, rows, first = [], [], 0
            reads: Reads = "out" if norm == "mean_out" else "in"
            for block in self.local_partition.slices:
                part = block.permuted.remote_block(norm)
                scales: tuple[Tensor | None, Tensor | None] = None, None
                num_rows = int(np.searchsorted(part.rows, block.num_cells))
                if self._renormalizes(block, norm):
                    own = self._scale(block, norm, block.permuted.remaining_weight)
                    remote_shares = block.permuted.remote_remaining_weight
                    others = self._scale(block, norm, remote_shares) if norm in _TWO_SIDED else None
                    scales = others, own[torch.from_numpy(part.rows[:num_rows]).to(self.device)]
                remote.append(
                    LeadingBlock(part.matrix, num_rows, block.permuted.halo(reads).count(block.num_chunks), *scales)
                )
                rows.append(part.rows[:num_rows] + first)
                first += block.num_cells
            at = torch.from_numpy(np.concatenate(rows)).to(self.device)
            self._halo_matrices[norm] = HaloMatrix(self.product(norm), LeadingBlocks(tuple(remote)), at)
        return self._halo_matrices[norm]

    @cached_property
    def single(self) -> tuple[WindowData, ...]:
        shares: list[Any] = [
            self.local_partition.single(t, self.local_partition.home) for t in range(self.num_snapshots)
        ]
        return tuple(TruncatedData(share, dtype=self.dtype, device=self.device) for share in shares)

    @cached_property
    def _leading_blocks(self) -> dict[Norm, LeadingBlocks]:
        return {}

    def next_state(self, initial_state: Any | None, values: Sequence[Any], *, per_node: bool) -> Any | None:
        return self.local_partition.next_state(initial_state, values, per_node=per_node)

    def save_latest(self, saved: Tensor | None, rows: Tensor) -> Tensor:
        return self.local_partition.save_latest(saved, rows)

    def _own_blocks(self, norm: Norm) -> Iterator[LeadingBlock]:
        for block in self.local_partition.slices:
            matrix = block.permuted.matrix(norm)
            scale = (
                self._scale(block, norm, block.permuted.remaining_weight) if self._renormalizes(block, norm) else None
            )
            yield LeadingBlock(matrix, block.num_cells, block.num_cells, scale if norm in _TWO_SIDED else None, scale)

    def _renormalizes(self, block: WindowSlice, norm: Norm) -> bool:
        """Whether arcs have other weights than in the whole snapshot."""
        return block.renormalized and norm in ("gcn", "mean", "mean_out", "sym") and not block.is_whole

    def _scale(self, block: WindowSlice, norm: Norm, shares: Callable[[Norm, int], FloatArray]) -> Tensor:
        """Factors that renormalize weights to the smaller degrees."""
        factor = 1 / shares(norm, block.num_chunks)
        return torch.from_numpy(np.sqrt(factor) if norm in _TWO_SIDED else factor).to(self.device, self.dtype)

    def _compute_input(self, key: tuple[Norm, ...]) -> Tensor:
        return torch.cat([block.permuted.input_rows(key)[: block.num_cells] for block in self.local_partition.slices])

    def _append_remote(self, norm: Norm, own: Sparse, like: Tensor) -> Sparse:
        """Append the remote columns."""
        halo = self.halo_matrix(norm)
        assert isinstance(halo.remote, LeadingBlocks)
        remote = halo.remote.to_sparse(like)
        row = torch.cat([own.rows, halo.rows[remote.rows]])
        col = torch.cat([own.col, remote.col + own.num_cols])
        order = torch.argsort(row.long() * (own.num_cols + remote.num_cols) + col)
        weight = None
        if own.weight is not None or remote.weight is not None:
            parts = [torch.ones_like(m.col, dtype=self.dtype) if m.weight is None else m.weight for m in (own, remote)]
            weight = torch.cat(parts)[order]
        counts = torch.bincount(row, minlength=own.num_rows)
        row_ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Sparse(row_ptr, col[order].to(torch.int32), weight, own.num_cols + remote.num_cols)


class CachedInputs:
    """Features of a rank's cells and their aggregates, by snapshot and norms, in order of node.

    Caches up to ``budget_bytes``; what does not fit is recomputed on every call.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        own: IntArray,
        dtype: torch.dtype,
        device: torch.device,
        budget_bytes: float,
        ledger: Ledger,
    ) -> None:
        self._graph, self._own, self._dtype, self._device = graph, own, dtype, device
        self._budget_bytes, self._ledger = budget_bytes, ledger
        self._cache: dict[tuple[int, tuple[Norm, ...]], Tensor] = {}

    def __call__(self, t: int, key: tuple[Norm, ...]) -> Tensor:
        if (t, key) not in self._cache:
            rows = self._compute(t, key)
            size = rows.numel() * rows.element_size()
            if size > self._budget_bytes:
                return rows
            self._budget_bytes -= size
            self._cache[t, key] = rows
        return self._cache[t, key]

    def _compute(self, t: int, key: tuple[Norm, ...]) -> Tensor:
        snapshot = self._graph[t]
        own = np.flatnonzero(self._own[snapshot.nodes])
        if snapshot.x is None:
            raise InputError("the graph has no features: give it some with graph.with_features(Degrees(log=True))")
        self._ledger.count(rows_loaded=snapshot.num_nodes)
        rows = torch.from_numpy(np.array(snapshot.x)).to(self._device, self._dtype)
        all_cells = np.arange(snapshot.num_nodes)
        for k, norm in enumerate(key):
            block = normalize(norm, snapshot.row_ptr, snapshot.col, snapshot.weight)
            if k == len(key) - 1 and len(own) < len(all_cells):
                block = select_csr_rows(block, own, all_cells)
            matrix = Sparse.vstack([block], len(all_cells), dtype=self._dtype, device=self._device)
            rows = spmm_no_grad(matrix, rows)
        return rows if key else rows[torch.from_numpy(own).to(self._device)]
