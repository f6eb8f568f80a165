"""Run a structure stage chunk by chunk: each loads the rows it reads and computes its own rows.

Backward loads and recomputes each chunk, so a convolution takes the activation memory of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.batching.fused import ChunkExtent, MemoryModel, fuse_chunks
from strobe.comm.ledger import Ledger
from strobe.exchange.overlap.transfer import Yield
from strobe.io.lazy_import import lazy_import
from strobe.ops.dense.rows import add_rows
from strobe.ops.runtime.memory_trace import measure_peak_bytes
from strobe.ops.sparse.csr import IntArray, select_csr_rows
from strobe.ops.sparse.normalize import Norm
from strobe.ops.sparse.spmm import Sparse

if TYPE_CHECKING:
    import scipy.sparse as sp

    from strobe.view.data.window import WindowData
else:
    sp = lazy_import("scipy.sparse")

Stage = Callable[..., Coroutine[Yield, None, Tensor]]
"""New rows of a view's cells, from the view and the rows they read; a coroutine that may wait for remote rows."""

SAMPLES = 8
"""Samples on which the memory of a stage is measured: one chunk, two, four, ..."""


class ChunkedStage:
    """The chunks of a rank's cells in a window, fused per stage as far as the memory budget allows.

    ``run_chunk`` computes the new rows of a chunk from the rows that it loads; ``key`` identifies its stage.
    """

    def __init__(self, data: WindowData, chunk: IntArray, budget: float, ledger: Ledger) -> None:
        self.data, self._budget, self._ledger = data, budget, ledger
        self._order = np.argsort(chunk, kind="stable")
        sizes = np.bincount(chunk) if chunk.size else np.zeros(0, np.int64)
        self._chunks = np.split(self._order, np.cumsum(sizes[sizes > 0])[:-1]) if chunk.size else []
        self._fused_chunks: dict[object, list[FusedChunk]] = {}

    def run(self, run_chunk: RunChunk, weights: Sequence[Tensor], rows: Tensor, key: object) -> Tensor:
        """New rows of all cells, from the rows that they read."""
        chunks = self.fused_chunks(run_chunk, weights, rows, key)
        if not chunks:
            return run_chunk(FusedChunk(self.data, np.empty(0, np.int64)), rows[:0])
        if len(chunks) == 1:  # fits as a whole: no recomputation in backward
            self._ledger.count(rows_loaded=len(rows))
            return run_chunk(chunks[0], rows)
        out: Tensor = _RunChunked.apply(self, run_chunk, chunks, rows, *weights)  # type: ignore[no-untyped-call]
        return out

    def fused_chunks(
        self, run_chunk: RunChunk, weights: Sequence[Tensor], rows: Tensor, key: object
    ) -> list[FusedChunk]:
        """The chunks of a stage, fused when it first runs."""
        if key not in self._fused_chunks:
            fuses = self._budget and len(self._chunks) > 1
            self._fused_chunks[key] = self._fuse_chunks(self._fit_memory(run_chunk, weights, rows) if fuses else None)
        return self._fused_chunks[key]

    def load_rows(self, chunk: FusedChunk, rows: Tensor) -> Tensor:
        self._ledger.count(rows_loaded=len(chunk.read_index))
        return rows.index_select(0, chunk.read_index)

    def _fuse_chunks(self, memory: MemoryModel | None) -> list[FusedChunk]:
        chunks = [FusedChunk(self.data, chunk) for chunk in self._chunks]
        if memory is None:
            return chunks
        loaded = [chunk.read_rows.astype(np.int64) for chunk in chunks]
        ptr = np.cumsum([0, *map(len, loaded)])
        shape = len(chunks), max(int(rows.max(initial=0)) for rows in loaded) + 1
        rows = sp.csr_array((np.ones(ptr[-1], np.int8), np.concatenate(loaded), ptr), shape=shape)
        extents = [chunk.extent for chunk in chunks]
        own, arcs = (np.array([getattr(each, name) for each in extents]) for name in ("own", "arcs"))
        fused_chunk = fuse_chunks(rows, own, arcs, memory, self._budget)
        return [
            FusedChunk(
                self.data, np.sort(np.concatenate([self._chunks[k] for k in np.flatnonzero(fused_chunk == number)]))
            )
            for number in range(int(fused_chunk.max()) + 1)
        ]

    def _fit_memory(self, run_chunk: RunChunk, weights: Sequence[Tensor], rows: Tensor) -> MemoryModel:
        """Fit the peak bytes of forward and backward per own row, loaded row and arc, on a few samples."""
        from scipy.optimize import nnls  # takes a quarter of a second to load

        extents, peaks = [], []
        for number in range(min(SAMPLES, len(self._chunks).bit_length())):
            chunk = FusedChunk(self.data, np.sort(np.concatenate(self._chunks[: 1 << number])))
            extents.append(chunk.extent)
            peaks.append(measure_peak_bytes(partial(run_sample, run_chunk, chunk, weights, rows), rows.device))
        columns = np.array([[each.own, each.loaded, each.arcs] for each in extents], np.float64)
        scale = np.maximum(columns.max(0), 1)
        per = nnls(columns / scale, np.array(peaks, np.float64))[0] / scale
        return lambda extent: float(per @ (extent.own, extent.loaded, extent.arcs))


def run_sample(run_chunk: RunChunk, chunk: FusedChunk, weights: Sequence[Tensor], rows: Tensor) -> None:
    """Run forward and backward of one chunk, for measuring its memory."""
    loaded = rows.detach().index_select(0, chunk.read_index).requires_grad_()
    with torch.enable_grad():
        out = run_chunk(chunk, loaded)
    torch.autograd.grad(out, [loaded, *weights], torch.ones_like(out), allow_unused=True)


@dataclass(frozen=True, eq=False)
class FusedChunk:
    """Some of a rank's cells as the data of a view, whose rows are those that they read: their own, then others."""

    window: WindowData
    rows: IntArray  # ascending
    local_partition: None = None
    x: None = None
    splits_snapshots: bool = False

    @property
    def num_cells(self) -> int:
        return len(self.rows)

    def hop_data(self, number: int) -> None:
        """None: every product is computed for all cells of the chunk."""

    @cached_property
    def read_rows(self) -> IntArray:
        """Rows of the window that the chunk loads."""
        _, col, _ = select_csr_rows(self._csr("loops"), self.rows, self._all_columns)
        others = np.setdiff1d(col, self.rows)
        return np.concatenate([self.rows, others])

    @cached_property
    def read_index(self) -> Tensor:
        return torch.from_numpy(self.read_rows).to(self.window.device)

    @cached_property
    def own(self) -> Tensor:
        return torch.from_numpy(self.rows).to(self.window.device)

    @cached_property
    def extent(self) -> ChunkExtent:
        row_ptr, _, _ = self._csr("loops")
        return ChunkExtent(len(self.rows), len(self.read_rows), int(np.diff(row_ptr)[self.rows].sum()))

    def matrix(self, norm: Norm) -> Sparse:
        """The chunk's rows of the window's matrix."""
        if norm not in self._matrices:
            places = np.full(len(self._all_columns), -1, np.int64)
            places[self.read_rows] = np.arange(len(self.read_rows))
            block = select_csr_rows(self._csr(norm), self.rows, places)
            data = self.window
            self._matrices[norm] = Sparse.vstack([block], len(self.read_rows), dtype=data.dtype, device=data.device)
        return self._matrices[norm]

    def product(self, norm: Norm) -> Sparse:
        """The matrix for sparse products."""
        return self.matrix(norm)

    def is_input(self, x: Tensor) -> bool:
        """False: chunks load inputs like all rows."""
        del x
        return False

    @cached_property
    def _matrices(self) -> dict[Norm, Sparse]:
        return {}

    @property
    def _all_columns(self) -> IntArray:
        return np.arange(self.window.matrix("loops").num_cols)

    def _csr(self, norm: Norm) -> tuple[IntArray, IntArray, Any]:
        matrix = self.window.matrix(norm)
        weight = None if matrix.weight is None else matrix.weight.cpu().numpy()
        return matrix.row_ptr.cpu().numpy(), matrix.col.cpu().numpy(), weight


RunChunk = Callable[[FusedChunk, Tensor], Tensor]


class _RunChunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, chunked: ChunkedStage, run_chunk: RunChunk, chunks: list[FusedChunk], rows: Tensor, *weights: Tensor
    ) -> Tensor:
        ctx.chunked, ctx.run_chunk, ctx.chunks = chunked, run_chunk, chunks
        ctx.rng_states = []  # recomputation draws the same random numbers
        out: Tensor | None = None
        for chunk in chunks:
            ctx.rng_states.append(torch.get_rng_state())
            new = run_chunk(chunk, chunked.load_rows(chunk, rows))
            out = new.new_empty(chunked.data.num_cells, *new.shape[1:]) if out is None else out
            out.index_copy_(0, chunk.own, new)
        ctx.save_for_backward(rows, *weights)
        assert out is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        rows, *weights = ctx.saved_tensors
        total = torch.zeros_like(rows)
        sums = [torch.zeros_like(weight) for weight in weights]
        for chunk, rng_state in zip(ctx.chunks, ctx.rng_states, strict=True):
            loaded = ctx.chunked.load_rows(chunk, rows.detach()).requires_grad_()
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(rng_state)
                new = ctx.run_chunk(chunk, loaded)
            d_loaded, *d_weights = torch.autograd.grad(
                new, [loaded, *weights], grads[0].index_select(0, chunk.own), allow_unused=True
            )
            if d_loaded is not None:
                add_rows(total, chunk.read_index, d_loaded)
            for each, gradient in zip(sums, d_weights, strict=True):
                if gradient is not None:
                    each += gradient
        return None, None, None, total, *sums
