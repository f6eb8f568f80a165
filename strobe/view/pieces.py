"""A structure stage piece by piece: each loads the rows it reads, gives its own rows new values, and forgets the rest.

Backward loads and computes a piece again. So the memory that a convolution takes besides what comes in and goes out is
that of one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.batching.fusion import Extent, Memory, fuse
from strobe.comm.ledger import Ledger
from strobe.exchange.flight import Waiting
from strobe.ops.allocation import peak_bytes_of
from strobe.ops.csr import IntArray, select_rows
from strobe.ops.normalise import Norm
from strobe.ops.picked import add_rows
from strobe.ops.sparse import Sparse

if TYPE_CHECKING:
    from strobe.view.cells import Cells

Stage = Callable[..., Coroutine[Waiting, None, Tensor]]
"""New rows of a view's cells, from the view and the rows that they read; may wait for some of those."""

SAMPLES = 8
"""Pieces on which the memory of a stage is measured: one chunk, two, four …"""


class Fusing:
    """The pieces of a rank's cells in a window, by stage: what fits depends on what a stage takes."""

    def __init__(self, cells: Cells, chunk: IntArray, budget: float, ledger: Ledger) -> None:
        self.cells, self._budget, self._ledger = cells, budget, ledger
        self._order = np.argsort(chunk, kind="stable")
        sizes = np.bincount(chunk) if chunk.size else np.zeros(0, np.int64)
        self._chunks = np.split(self._order, np.cumsum(sizes[sizes > 0])[:-1]) if chunk.size else []
        self._pieces: dict[object, list[Piece]] = {}

    def run(self, stage: Stage, weights: Sequence[Tensor], rows: Tensor) -> Tensor:
        """What a stage gives all cells, from the rows that they read."""
        pieces = self.pieces(stage, weights, rows)
        if not pieces:
            return self.new_rows(stage, Piece(self.cells, np.empty(0, np.int64)), rows[:0])
        if len(pieces) == 1:  # all fits: what backward needs may stay
            self._ledger.count(rows_loaded=len(rows))
            return self.new_rows(stage, pieces[0], rows)
        out: Tensor = _InPieces.apply(self, stage, pieces, rows, *weights)  # type: ignore[no-untyped-call]
        return out

    def pieces(self, stage: Stage, weights: Sequence[Tensor], rows: Tensor) -> list[Piece]:
        """Found once for each stage."""
        key = getattr(stage, "__self__", stage)
        if key not in self._pieces:
            fuses = self._budget and len(self._chunks) > 1
            self._pieces[key] = self._found(self._memory(stage, weights, rows) if fuses else None)
        return self._pieces[key]

    def load(self, piece: Piece, rows: Tensor) -> Tensor:
        self._ledger.count(rows_loaded=len(piece.reads))
        return rows.index_select(0, piece.reads)

    def new_rows(self, stage: Stage, piece: Piece, loaded: Tensor) -> Tensor:
        from strobe.view.view import View

        return View(piece).at_once(stage, loaded)  # type: ignore[arg-type]

    def _found(self, memory: Memory | None) -> list[Piece]:
        alone = [Piece(self.cells, chunk) for chunk in self._chunks]
        if memory is None:
            return alone
        loaded = [piece.read.astype(np.int64) for piece in alone]
        ptr = np.cumsum([0, *map(len, loaded)])
        shape = len(alone), max(int(rows.max(initial=0)) for rows in loaded) + 1
        rows = sp.csr_array((np.ones(ptr[-1], np.int8), np.concatenate(loaded), ptr), shape=shape)
        extents = [piece.extent for piece in alone]
        own, arcs = (np.array([getattr(each, name) for each in extents]) for name in ("own", "arcs"))
        piece_of = fuse(rows, own, arcs, memory, self._budget)
        return [
            Piece(self.cells, np.sort(np.concatenate([self._chunks[k] for k in np.flatnonzero(piece_of == number)])))
            for number in range(int(piece_of.max()) + 1)
        ]

    def _memory(self, stage: Stage, weights: Sequence[Tensor], rows: Tensor) -> Memory:
        """What a stage takes, there and back, as so much per own row, loaded row and arc: fitted to a few pieces."""
        extents, taken = [], []
        for number in range(min(SAMPLES, len(self._chunks).bit_length())):
            piece = Piece(self.cells, np.sort(np.concatenate(self._chunks[: 1 << number])))
            extents.append(piece.extent)
            taken.append(peak_bytes_of(partial(self._tried, stage, piece, weights, rows), rows.device))
        columns = np.array([[each.own, each.loaded, each.arcs] for each in extents], np.float64)
        scale = np.maximum(columns.max(0), 1)
        per = nnls(columns / scale, np.array(taken, np.float64))[0] / scale
        return lambda extent: float(per @ (extent.own, extent.loaded, extent.arcs))

    def _tried(self, stage: Stage, piece: Piece, weights: Sequence[Tensor], rows: Tensor) -> None:
        loaded = rows.detach().index_select(0, piece.reads).requires_grad_()
        with torch.enable_grad():
            out = self.new_rows(stage, piece, loaded)
        torch.autograd.grad(out, [loaded, *weights], torch.ones_like(out), allow_unused=True)


@dataclass(frozen=True, eq=False)
class Piece:
    """Some of a rank's cells, as the cells of a view whose rows are those that they read: own ones, then others."""

    whole: Cells
    rows: IntArray  # ascending
    share: None = None
    x: None = None
    splits_snapshots: bool = False

    @property
    def num_cells(self) -> int:
        return len(self.rows)

    def level(self, number: int) -> None:
        """Every product is computed for all of them."""

    @cached_property
    def read(self) -> IntArray:
        """Which of all rows of the rank, own or others', it loads."""
        _, col, _ = select_rows(self._parts("loops"), self.rows, self._everything)
        others = np.setdiff1d(col, self.rows)
        return np.concatenate([self.rows, others])

    @cached_property
    def reads(self) -> Tensor:
        return torch.from_numpy(self.read).to(self.whole.device)

    @cached_property
    def own(self) -> Tensor:
        return torch.from_numpy(self.rows).to(self.whole.device)

    @cached_property
    def extent(self) -> Extent:
        row_ptr, _, _ = self._parts("loops")
        return Extent(len(self.rows), len(self.read), int(np.diff(row_ptr)[self.rows].sum()))

    def matrix(self, norm: Norm) -> Sparse:
        """The rows of the whole matrix that are this piece's."""
        if norm not in self._matrices:
            places = np.full(len(self._everything), -1, np.int64)
            places[self.read] = np.arange(len(self.read))
            block = select_rows(self._parts(norm), self.rows, places)
            whole = self.whole
            self._matrices[norm] = Sparse.stacked([block], len(self.read), dtype=whole.dtype, device=whole.device)
        return self._matrices[norm]

    def product(self, norm: Norm) -> Sparse:
        """The same, for sparse products."""
        return self.matrix(norm)

    def is_input(self, x: Tensor) -> bool:
        """Inputs are rows like others here."""
        del x
        return False

    @cached_property
    def _matrices(self) -> dict[Norm, Sparse]:
        return {}

    @property
    def _everything(self) -> IntArray:
        return np.arange(self.whole.matrix("loops").num_cols)

    def _parts(self, norm: Norm) -> tuple[IntArray, IntArray, Any]:
        matrix = self.whole.matrix(norm)
        weight = None if matrix.weight is None else matrix.weight.cpu().numpy()
        return matrix.row_ptr.cpu().numpy(), matrix.col.cpu().numpy(), weight


class _InPieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fusing: Fusing, stage: Stage, pieces: list[Piece], rows: Tensor, *weights: Tensor) -> Tensor:
        ctx.fusing, ctx.stage, ctx.pieces = fusing, stage, pieces
        ctx.random = []  # what a piece draws it draws again
        out: Tensor | None = None
        for piece in pieces:
            ctx.random.append(torch.get_rng_state())
            new = fusing.new_rows(stage, piece, fusing.load(piece, rows))
            out = new.new_empty(fusing.cells.num_cells, *new.shape[1:]) if out is None else out
            out.index_copy_(0, piece.own, new)
        ctx.save_for_backward(rows, *weights)
        assert out is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        rows, *weights = ctx.saved_tensors
        total = torch.zeros_like(rows)
        sums = [torch.zeros_like(weight) for weight in weights]
        for piece, random in zip(ctx.pieces, ctx.random, strict=True):
            loaded = ctx.fusing.load(piece, rows.detach()).requires_grad_()
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(random)
                new = ctx.fusing.new_rows(ctx.stage, piece, loaded)
            found = torch.autograd.grad(new, [loaded, *weights], grads[0].index_select(0, piece.own), allow_unused=True)
            if found[0] is not None:
                add_rows(total, piece.reads, found[0])
            for each, gradient in zip(sums, found[1:], strict=True):
                if gradient is not None:
                    each += gradient
        return None, None, None, total, *sums
