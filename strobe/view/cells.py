"""What a window of snapshots gives a model, prepared once and kept for every pass over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from strobe.comm import Alone, Comm
from strobe.comm.rows import Route
from strobe.errors import InputError
from strobe.exchange import TimeEncoder, Timing
from strobe.exchange.halo import Neighbours
from strobe.exchange.halo_product import HaloMatrix, split_columns
from strobe.exchange.none import Staying
from strobe.graph import DynamicGraph
from strobe.graph.features import Carrier
from strobe.ops.corners import Corners
from strobe.ops.csr import IntArray, select_rows
from strobe.ops.narrow import NARROW
from strobe.ops.normalise import Csr, Norm, normalise
from strobe.ops.normalise_there import gcn_there
from strobe.ops.sequences import Sequences
from strobe.ops.sparse import Sparse, spmm
from strobe.ops.threads import each_in_order, run_parts
from strobe.view.pieces import Fusing
from strobe.view.share import Handover, Reads, Share

if TYPE_CHECKING:
    from strobe.view.sampled import Level
    from strobe.view.streamed import Streamed

_NOTHING: Csr = np.zeros(1, np.int64), np.empty(0, np.int32), None


class Cells:
    """The cells of a window, t-major: features, sparse matrices by normalisation, sequences; all on one device.

    Matrices are built when first asked for. An aggregate of the inputs has no parameters before it, so it is
    computed once, one snapshot at a time, and kept: a model whose only aggregation that is needs no matrix at all.

    With a share they are the cells of one rank among several; snapshots in which it has none are never read.
    """

    splits_snapshots: bool = False
    """Whether snapshots have other cells, which are not here although some of these read them."""

    slides: bool = False
    """Whether the next window begins before this one ends."""

    from_graph: bool = True
    """Whether their features are read from the graph as they stand there."""

    streamed: Streamed | None = None
    """Who brings them to the device when they are computed, where they do not stay there."""

    def __init__(
        self,
        graph: DynamicGraph,
        *,
        share: Share | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        handover: Handover | None = None,
    ) -> None:
        self.graph = graph
        self.share = share
        self.handover = handover
        self.dtype = dtype
        self.device = torch.device(device)
        sizes = np.diff(graph.cell_ptr) if share is None else [len(own) for own in share.own]
        self.cell_ptr: tuple[int, ...] = (0, *np.cumsum(sizes, dtype=np.int64).tolist())
        self._matrices: dict[Norm, Sparse] = {}
        self._halos: dict[Norm, HaloMatrix] = {}
        self._neighbours: dict[Reads, Neighbours] = {}
        self.fusing: Fusing | None = None  # where convolutions run in pieces
        self._inputs: dict[int, tuple[Norm, ...]] = {}  # which aggregates of the inputs a tensor is, by its identity
        self._aggregates: dict[tuple[Norm, ...], Tensor] = {}

    @property
    def num_cells(self) -> int:
        return self.cell_ptr[-1]

    @cached_property
    def num_arcs(self) -> int:
        """Arcs that end in these cells."""
        if self.share is None:
            return self.graph.num_arcs
        return sum(int(self.graph[t].in_degree[own].sum()) for t, own in enumerate(self.share.own) if len(own))

    @property
    def num_snapshots(self) -> int:
        return len(self.cell_ptr) - 1

    @property
    def num_features(self) -> int:
        return 0 if self.graph.features is None else self.graph.features.shape[0]

    @cached_property
    def x(self) -> Tensor:
        """Features of all cells, [C, F]."""
        x = torch.empty(self.num_cells, self.num_features, dtype=self.dtype)

        def read(t: int) -> None:
            if self._reads(t):
                x[self.rows(t)] = self._own_rows(t, self._features(t))

        if self.share is None:
            run_parts(read, self.num_snapshots)
        else:  # rows that ranks load are counted, one after the other
            for t in range(self.num_snapshots):
                read(t)
        x = x.to(self.device)
        self.remember((), x)
        return x

    @cached_property
    def pulled_x(self) -> Tensor:
        """Features of all cells and of the neighbours elsewhere, which the graph tells as well as their owners do."""
        around = self.neighbours("in")
        if not around.num_rows:
            return self.x
        others = torch.empty(around.num_rows, self.num_features, dtype=self.dtype)
        for t, (positions, places) in enumerate(zip(around.positions, around.places, strict=True)):
            if len(positions):
                others[torch.from_numpy(places)] = self._features(t)[torch.from_numpy(positions)]
        return torch.cat([self.x, others.to(self.device)])

    @cached_property
    def sequences(self) -> Sequences:
        """Who is present when, with a slot for every node whose state may be kept here."""
        if self.share is not None:
            return self.share.state_sequences
        return Sequences.of([snapshot.nodes for snapshot in self.graph], self.graph.num_nodes, self.device)

    def timing(self, encoder: TimeEncoder) -> Timing:
        """How a time stage runs over these cells."""
        return self._staying if self.share is None else self.share.timing(encoder)

    def next_start(self, start: Any | None, values: Sequence[Any], *, per_node: bool) -> Any | None:
        """With what the next window begins, from what was before this one and what is after each of its snapshots."""
        del per_node
        return values[-1] if values else start

    @cached_property
    def single(self) -> tuple[Cells, ...]:
        """The cells of each snapshot alone, for models that step through time."""
        shares: list[Share | None] = [None] * self.num_snapshots
        handovers: list[Handover | None] = [None] * self.num_snapshots
        if self.share is not None:
            shares = [self.share.single(t, self.share.home) for t in range(self.num_snapshots)]
            handovers = self.share.handovers()
        elif self.num_snapshots == 1:
            return (self,)
        return tuple(
            Cells(self.graph[t : t + 1], share=share, dtype=self.dtype, device=self.device, handover=handover)
            for t, (share, handover) in enumerate(zip(shares, handovers, strict=True))
        )

    @property
    def comm(self) -> Comm:
        """With whom these cells are shared."""
        return Alone() if self.share is None else self.share.comm

    def arrive(self, *beside: object) -> None:
        """They are about to be computed: all that was made for them, and for what stands ``beside`` them, is there."""
        if self.streamed is not None:
            self.streamed.enter(self, *beside)

    @property
    def sum_dtype(self) -> torch.dtype:
        """The kind of numbers that sums of their rows are."""
        return torch.promote_types(self.dtype, torch.float32)

    def arithmetic(self) -> AbstractContextManager[object]:
        """Where models compute: with rows stored in 16 bits torch rounds the factors of its products, too."""
        return torch.autocast(self.device.type, NARROW, enabled=self.dtype == NARROW)

    def level(self, number: int) -> Level | None:
        """The cells that the n-th of all sparse products is computed for; None: all."""
        del number
        return None

    def rows(self, t: int) -> slice:
        """Rows of snapshot t among the cells."""
        return slice(self.cell_ptr[t], self.cell_ptr[t + 1])

    def neighbours(self, reads: Reads) -> Neighbours:
        """The cells of others that these read along arcs that reach or that leave them."""
        reads = reads if self.graph.directed else "in"
        if reads not in self._neighbours:
            nobody = [np.empty(0, np.int64)] * self.num_snapshots
            alone = Neighbours(Route({}, {}), nobody, nobody)
            self._neighbours[reads] = alone if self.share is None else self.share.neighbours(reads)
        return self._neighbours[reads]

    def columns(self, t: int, around: Neighbours) -> IntArray:
        """Where each cell of snapshot t stands among own rows and those of neighbours; -1 for cells out of reach."""
        assert self.share is not None
        columns = np.full(len(self.share.owners[t]), -1, np.int64)
        columns[self.share.own[t]] = np.arange(self.cell_ptr[t], self.cell_ptr[t + 1])
        columns[around.positions[t]] = self.num_cells + around.places[t]
        return columns

    def matrix(self, norm: Norm) -> Sparse:
        """The block-diagonal matrix of the whole window. Undirected graphs have symmetric ones but for means."""
        if norm not in self._matrices:
            alone = self.share is None or self.share.has_whole_snapshots
            self._matrices[norm] = self._whole(norm) if alone else self._shared(norm)
        return self._matrices[norm]

    def product(self, norm: Norm) -> Sparse | Corners:
        """The same matrix for sparse products, which may read it where it stands."""
        return self.matrix(norm)

    def halo_matrix(self, norm: Norm) -> HaloMatrix:
        """The same matrix in two: own cells among each other, and what they read of others."""
        if norm not in self._halos:
            symmetric = not self.graph.directed and norm in ("gcn", "sum", "loops")
            self._halos[norm] = split_columns(self._shared(norm), self.num_cells, symmetric=symmetric)
        return self._halos[norm]

    def is_input(self, x: Tensor) -> bool:
        """Whether x is the features or an aggregate of them."""
        return id(x) in self._inputs

    def key_of(self, x: Tensor) -> tuple[Norm, ...]:
        """The norms of the products that lead from the features to an aggregate of them."""
        return self._inputs[id(x)]

    def aggregated_input(self, x: Tensor, norm: Norm) -> Tensor:
        """The aggregate of an input, computed at most once. Other ranks' features come from the graph, too."""
        key = (*self._inputs[id(x)], norm)
        if key not in self._aggregates:
            out = torch.empty_like(x)
            for t, block in enumerate(self._blocks(norm)):
                if self._reads(t):
                    out[self.rows(t)] = self._aggregated(t, key, x, block)
            self.remember(key, out)
        return self._aggregates[key]

    @property
    def keeps_features_apart(self) -> bool:
        """Whether aggregates of features can be had without keeping these."""
        return self.from_graph and self.share is None

    def aggregated_features(self, norm: Norm) -> Tensor:
        """The aggregate of features that nobody may ever ask for themselves: they are read one snapshot at a time."""
        assert self.keeps_features_apart
        if (norm,) not in self._aggregates:
            out = torch.empty(self.num_cells, self.num_features, dtype=self.dtype, device=self.device)
            there = norm == "gcn" and self.device.type == "cuda"

            def made(t: int) -> tuple[Tensor, Csr | None]:
                return self._features(t), None if there else self._block(t, norm)

            for t, (x, block) in enumerate(each_in_order(made, self.num_snapshots)):
                matrix = self._gcn_there(t) if block is None else self._alone(block)
                out[self.rows(t)] = spmm(matrix, x.to(self.device))
            self.remember((norm,), out)
        return self._aggregates[norm,]

    @property
    def known_aggregates(self) -> tuple[tuple[Norm, ...], ...]:
        """Aggregates of the inputs that were asked for so far: the norms of their products, in order."""
        return tuple(key for key in self._aggregates if key)

    @property
    def known_norms(self) -> tuple[Norm, ...]:
        """Norms of the matrices that were asked for so far."""
        return tuple(self._matrices)

    @cached_property
    def _staying(self) -> Staying:
        return Staying(self.sequences)

    def _aggregated(self, t: int, key: tuple[Norm, ...], x: Tensor, last: Csr) -> Tensor:
        """The aggregate of snapshot t, whose block of the last norm is given."""
        if self.share is None:
            return spmm(self._alone(last), x[self.rows(t)])
        whole = self._features(t).to(self.device)
        for norm in key[:-1]:
            whole = spmm(self._alone(self._block(t, norm)), whole)
        return self._own_rows(t, spmm(self._alone(last), whole))

    def _features(self, t: int) -> Tensor:
        """Features of all cells of a snapshot, whoever has them."""
        features = self.check_features()
        if self.share is not None:
            self.share.comm.ledger.count(rows_loaded=self.graph[t].num_nodes)
        rows = features.rows(self.graph[t])
        return torch.from_numpy(rows if rows.flags.writeable else np.array(rows)).to(self.dtype)  # stored rows stay

    def check_features(self) -> Carrier:
        """The graph's features; a graph that has none is refused."""
        if self.graph.features is None:
            raise InputError("the graph has no features: give it some with graph.with_features(Degrees(log=True))")
        return self.graph.features

    def _own_rows(self, t: int, whole: Tensor) -> Tensor:
        if self.share is None or len(self.share.own[t]) == len(whole):
            return whole
        return whole[torch.from_numpy(self.share.own[t]).to(whole.device)]

    def _reads(self, t: int) -> bool:
        return self.share is None or len(self.share.own[t]) > 0

    def remember(self, key: tuple[Norm, ...], x: Tensor) -> None:
        """A tensor is the features, or the aggregate of them by these norms."""
        self._inputs[id(x)] = key
        self._aggregates[key] = x

    def _whole(self, norm: Norm) -> Sparse:
        symmetric = not self.graph.directed and norm in ("gcn", "sum", "loops")
        blocks = list(self._blocks(norm))
        return Sparse.block_diagonal(blocks, dtype=self.sum_dtype, device=self.device, symmetric=symmetric)

    def _shared(self, norm: Norm) -> Sparse:
        """Own rows of every snapshot's matrix; its columns are own rows and those of neighbours."""
        assert self.share is not None
        around = self.neighbours("out" if norm == "mean_out" else "in")
        blocks = [
            select_rows(self._block(t, norm), own, self.columns(t, around)) if len(own) else _NOTHING
            for t, own in enumerate(self.share.own)
        ]
        num_cols = self.num_cells + around.num_rows
        return Sparse.stacked(blocks, num_cols, dtype=self.sum_dtype, device=self.device)

    def _alone(self, block: Csr) -> Sparse:
        return Sparse.block_diagonal([block], dtype=self.sum_dtype, device=self.device)

    def _gcn_there(self, t: int) -> Sparse:
        snapshot = self.graph[t]
        arcs = snapshot.row_ptr, snapshot.col, snapshot.weight
        return gcn_there(arcs, dtype=self.sum_dtype, device=self.device)

    def _blocks(self, norm: Norm) -> Iterator[Csr]:
        """The matrix of every snapshot, in order; nothing for those that are not read."""
        return each_in_order(lambda t: self._block(t, norm) if self._reads(t) else _NOTHING, self.num_snapshots)

    def _block(self, t: int, norm: Norm) -> Csr:
        snapshot = self.graph[t]
        return normalise(norm, snapshot.row_ptr, snapshot.col, snapshot.weight)
