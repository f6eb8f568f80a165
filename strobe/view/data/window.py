"""Cells, features, matrices and sequences of a window, prepared once for all passes over it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from strobe.comm import Comm, Ledger, SingleRankComm
from strobe.comm.rows import Route
from strobe.errors import InputError
from strobe.exchange import TimeEncoder, TimeStage
from strobe.exchange.halo import HaloCells, HaloMatrix, split_columns
from strobe.graph import DynamicGraph
from strobe.graph.features import FeatureProvider
from strobe.ops.dense.bf16 import BF16
from strobe.ops.runtime.parallel import map_in_order, run_parts
from strobe.ops.sparse.csr import IntArray, select_csr_rows
from strobe.ops.sparse.leading_block import LeadingBlocks
from strobe.ops.sparse.normalize import SYMMETRIC_NORMS, Norm
from strobe.ops.sparse.spmm import Sparse, spmm
from strobe.ops.time.sequences import Sequences
from strobe.view.data.matrices import EMPTY_CSR, SnapshotMatrices, StructureCache
from strobe.view.partition.local import Handover, LocalPartition, Reads
from strobe.view.stages.chunked import ChunkedStage

if TYPE_CHECKING:
    from strobe.view.data.sampled import HopData
    from strobe.view.offload import OffloadedWindows


class WindowData:
    """The cells of a window, t-major, with features, sparse matrices by normalization, and sequences, on one device.

    Matrices are built on first use. Aggregates of the inputs have no parameters before them: they are computed once,
    one snapshot at a time, and cached, so a model that aggregates nothing else needs no matrix.

    With a ``local_partition`` these are the cells of one rank; snapshots without local cells are never read.
    """

    splits_snapshots: bool = False
    """Whether the cells read other cells of their snapshots that are not in this data."""

    is_sliding: bool = False
    """Whether the next window begins before this one ends."""

    from_graph: bool = True
    """Whether features are read unchanged from the graph."""

    shares_structures: bool = True
    """Whether matrices and sequences may be those of other windows with the same structures."""

    offloaded: OffloadedWindows | None = None
    """Set if the window is offloaded to host memory between passes."""

    def __init__(
        self,
        graph: DynamicGraph,
        *,
        local_partition: LocalPartition | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        handover: Handover | None = None,
    ) -> None:
        self.graph = graph
        self.local_partition = local_partition
        self.handover = handover
        self.dtype = dtype
        self.device = torch.device(device)
        sizes = np.diff(graph.cell_ptr) if local_partition is None else [len(own) for own in local_partition.own]
        self.cell_ptr: tuple[int, ...] = (0, *np.cumsum(sizes, dtype=np.int64).tolist())
        self._matrices: dict[Norm, Sparse] = {}
        self._products: dict[Norm, Sparse | LeadingBlocks] = {}
        self._halo_matrices: dict[Norm, HaloMatrix] = {}
        self._halo_cells: dict[Reads, HaloCells] = {}
        self.chunked_stage: ChunkedStage | None = None  # set if convolutions run in chunks
        self._inputs: dict[int, tuple[Norm, ...]] = {}  # norms of the aggregate that a tensor is, by its id
        self._aggregates: dict[tuple[Norm, ...], Tensor] = {}

    def run_in_chunks(self, cell_chunk: IntArray, memory_bytes: float, ledger: Ledger) -> None:
        """Run convolutions over chunks of cells, fused as far as ``memory_bytes`` allows."""
        self.chunked_stage = ChunkedStage(self, cell_chunk, memory_bytes, ledger)

    @property
    def num_cells(self) -> int:
        return self.cell_ptr[-1]

    @cached_property
    def num_arcs(self) -> int:
        """Arcs that end in local cells."""
        if self.local_partition is None:
            return self.graph.num_arcs
        return sum(
            int(self.graph[t].in_degree[own].sum()) for t, own in enumerate(self.local_partition.own) if len(own)
        )

    @property
    def num_snapshots(self) -> int:
        return len(self.cell_ptr) - 1

    @property
    def num_features(self) -> int:
        return 0 if self.graph.features is None else self.graph.features.shape[0]

    @cached_property
    def x(self) -> Tensor:
        """Features of all cells, [C, F]."""
        return self._input(())

    def _load_features(self) -> Tensor:
        x = torch.empty(self.num_cells, self.num_features, dtype=self.dtype)

        def read(t: int) -> None:
            if self._has_cells(t):
                x[self.rows(t)] = self._own_rows(t, self._features(t))

        if self.local_partition is None:
            run_parts(read, self.num_snapshots)
        else:  # sequential: the ledger counts loaded rows
            for t in range(self.num_snapshots):
                read(t)
        return x.to(self.device)

    @cached_property
    def pulled_x(self) -> Tensor:
        """Features of local cells, then of remote neighbors, read from the graph."""
        halo = self.halo_cells("in")
        if not halo.num_rows:
            return self.x
        others = torch.empty(halo.num_rows, self.num_features, dtype=self.dtype)
        for t, (positions, places) in enumerate(zip(halo.positions, halo.places, strict=True)):
            if len(positions):
                others[torch.from_numpy(places)] = self._features(t)[torch.from_numpy(positions)]
        return torch.cat([self.x, others.to(self.device)])

    @cached_property
    def sequences(self) -> Sequences:
        """Present nodes of each snapshot, with a slot for every node whose state may be stored here."""
        if self.local_partition is not None:
            return self.local_partition.state_sequences
        return self._snapshot_matrices.sequences()

    def time_stage(self, encoder: TimeEncoder) -> TimeStage | None:
        """The time stage over local cells; None if these are all cells, so that ``sequences`` are whole."""
        return None if self.local_partition is None else self.local_partition.time_stage(encoder)

    def next_state(self, initial_state: Any | None, values: Sequence[Any], *, per_node: bool) -> Any | None:
        """The next window's initial state, from this window's and the states after each of its snapshots."""
        del per_node
        return values[-1] if values else initial_state

    def node_slots(self, nodes: IntArray) -> IntArray:
        """The slots of nodes whose state may be stored here."""
        return nodes if self.local_partition is None else self.local_partition.node_slots(nodes)

    def save_latest(self, saved: Tensor | None, rows: Tensor) -> Tensor | None:
        """Save the row of each slot's latest cell for the next window.

        Args:
            saved: rows that the previous window saved, [S, F]; None: zeros.
            rows: rows of all cells, [C, F].

        Returns:
            A row per slot, [S, F]; None if no window follows.
        """
        cells, slots = self._latest_cells
        saved = rows.new_zeros(self.sequences.num_slots, rows.shape[1]) if saved is None else saved
        return saved.index_copy(0, slots, rows.index_select(0, cells))

    @cached_property
    def _latest_cells(self) -> tuple[Tensor, Tensor]:
        """The latest local cell of each node, and its slot."""
        partition = self.local_partition
        nodes = [snapshot.nodes for snapshot in self.graph]
        if partition is not None:
            nodes = [each[own] for each, own in zip(nodes, partition.own, strict=True)]
        slots = self.node_slots(np.concatenate([np.empty(0, np.int64), *nodes]))
        cell = np.full(self.sequences.num_slots, -1)
        cell[slots] = np.arange(len(slots))  # of a slot that occurs repeatedly the last one stays
        slots = np.flatnonzero(cell >= 0)
        return torch.from_numpy(cell[slots]).to(self.device), torch.from_numpy(slots).to(self.device)

    @cached_property
    def single(self) -> tuple[WindowData, ...]:
        """The data of each snapshot, for models that step through time."""
        shares: list[LocalPartition | None] = [None] * self.num_snapshots
        handovers: list[Handover | None] = [None] * self.num_snapshots
        if self.local_partition is not None:
            shares = [self.local_partition.single(t, self.local_partition.home) for t in range(self.num_snapshots)]
            handovers = self.local_partition.handovers()
        elif self.num_snapshots == 1:
            return (self,)
        single = tuple(
            WindowData(
                self.graph[t : t + 1], local_partition=share, dtype=self.dtype, device=self.device, handover=handover
            )
            for t, (share, handover) in enumerate(zip(shares, handovers, strict=True))
        )
        for each in single:  # offloaded with this window
            each.shares_structures = self.shares_structures and self.offloaded is None
        return single

    @property
    def comm(self) -> Comm:
        """The ranks of the partition."""
        return SingleRankComm() if self.local_partition is None else self.local_partition.comm

    def prefetch(self, *related: object) -> None:
        """Make an offloaded window resident on the device, with the tensors of ``related`` objects."""
        if self.offloaded is not None:
            self.offloaded.make_resident(self, *related)

    @property
    def sum_dtype(self) -> torch.dtype:
        """dtype of accumulations: at least float32."""
        return torch.promote_types(self.dtype, torch.float32)

    def autocast(self) -> AbstractContextManager[object]:
        """Autocast context for models: enabled if rows are bfloat16."""
        return torch.autocast(self.device.type, BF16) if self.dtype == BF16 else nullcontext()

    def hop_data(self, number: int) -> HopData | None:
        """The cells that the n-th sparse product is computed for; None: all."""
        del number
        return None

    def rows(self, t: int) -> slice:
        """Rows of snapshot t among the cells."""
        return slice(self.cell_ptr[t], self.cell_ptr[t + 1])

    def halo_cells(self, reads: Reads) -> HaloCells:
        """Remote cells that local cells read along incoming or outgoing arcs."""
        reads = reads if self.graph.directed else "in"
        if reads not in self._halo_cells:
            none = [np.empty(0, np.int64)] * self.num_snapshots
            empty = HaloCells(Route({}, {}), none, none)
            self._halo_cells[reads] = empty if self.local_partition is None else self.local_partition.halo_cells(reads)
        return self._halo_cells[reads]

    def columns(self, t: int, halo: HaloCells) -> IntArray:
        """Column of each cell of snapshot t among local and halo rows; -1 for other cells."""
        assert self.local_partition is not None
        columns = np.full(len(self.local_partition.owners[t]), -1, np.int64)
        columns[self.local_partition.own[t]] = np.arange(self.cell_ptr[t], self.cell_ptr[t + 1])
        columns[halo.positions[t]] = self.num_cells + halo.places[t]
        return columns

    def matrix(self, norm: Norm) -> Sparse:
        """The block-diagonal matrix of the window; symmetric for undirected graphs, except means."""
        if norm not in self._matrices:
            whole = self.local_partition is None or self.local_partition.has_whole_snapshots
            self._matrices[norm] = self._full_matrix(norm) if whole else self._partitioned_matrix(norm)
        return self._matrices[norm]

    def product(self, norm: Norm) -> Sparse | LeadingBlocks:
        """The matrix for sparse products; may be a view of snapshots' matrices."""
        if norm not in self._products:
            repeats = self.streams_features and self.dtype != BF16
            repeated = self._snapshot_matrices.repeated(norm) if repeats else None
            self._products[norm] = self.matrix(norm) if repeated is None else repeated
        return self._products[norm]

    def halo_matrix(self, norm: Norm) -> HaloMatrix:
        """The matrix in two blocks: local columns and halo columns."""
        if norm not in self._halo_matrices:
            symmetric = not self.graph.directed and norm in SYMMETRIC_NORMS
            self._halo_matrices[norm] = split_columns(
                self._partitioned_matrix(norm), self.num_cells, symmetric=symmetric
            )
        return self._halo_matrices[norm]

    def is_input(self, x: Tensor) -> bool:
        """Whether x is the features or an aggregate of them."""
        return id(x) in self._inputs

    def input_key(self, x: Tensor) -> tuple[Norm, ...]:
        """The norms of the products that lead from the features to an input."""
        return self._inputs[id(x)]

    def aggregate_input(self, x: Tensor, norm: Norm) -> Tensor:
        """Aggregate an input, at most once. Features of remote cells are read from the graph."""
        return self._input((*self._inputs[id(x)], norm))

    def _input(self, key: tuple[Norm, ...]) -> Tensor:
        """The features, or their aggregate by the norms ``key``, computed at most once."""
        if key not in self._aggregates:
            self.register_input(key, self._compute_input(key))
        return self._aggregates[key]

    def _compute_input(self, key: tuple[Norm, ...]) -> Tensor:
        if not key:
            return self._load_features()
        x = self._aggregates[key[:-1]]
        out = torch.empty_like(x)
        for t, matrix in enumerate(self._snapshot_matrices.in_order(key[-1], self._has_cells)):
            if matrix is not None:
                out[self.rows(t)] = self._aggregate_snapshot(t, key, x, matrix)
        return out

    @property
    def streams_features(self) -> bool:
        """Whether ``aggregate_features`` can read features one snapshot at a time."""
        return self.from_graph and self.local_partition is None

    def aggregate_features(self, norm: Norm) -> Tensor:
        """Aggregate the features without keeping them: they are read one snapshot at a time."""
        assert self.streams_features
        if (norm,) not in self._aggregates:
            out = torch.empty(self.num_cells, self.num_features, dtype=self.dtype, device=self.device)
            matrices = self._snapshot_matrices.in_order(norm, self._has_cells)
            features = map_in_order(self._features, self.num_snapshots)
            for t, (x, matrix) in enumerate(zip(features, matrices, strict=True)):
                if matrix is not None:
                    out[self.rows(t)] = spmm(matrix, x.to(self.device))
            self.register_input((norm,), out)
        return self._aggregates[norm,]

    @property
    def cached_aggregates(self) -> tuple[tuple[Norm, ...], ...]:
        """Cached aggregates of the inputs, each as the norms of its products in order."""
        return tuple(key for key in self._aggregates if key)

    @property
    def cached_norms(self) -> tuple[Norm, ...]:
        """Norms of the cached matrices."""
        return tuple(self._matrices)

    def _aggregate_snapshot(self, t: int, key: tuple[Norm, ...], x: Tensor, last: Sparse) -> Tensor:
        """The aggregate of snapshot t; ``last`` is its matrix of the last norm."""
        if self.local_partition is None:
            return spmm(last, x[self.rows(t)])
        whole = self._features(t).to(self.device)
        for norm in key[:-1]:
            whole = spmm(self._snapshot_matrices.matrix(t, norm), whole)
        return self._own_rows(t, spmm(last, whole))

    def _features(self, t: int) -> Tensor:
        """Features of all cells of a snapshot, local and remote."""
        features = self.check_features()
        if self.local_partition is not None:
            self.local_partition.comm.ledger.count(rows_loaded=self.graph[t].num_nodes)
        rows = features.rows(self.graph[t])
        return torch.from_numpy(rows if rows.flags.writeable else np.array(rows)).to(self.dtype)

    def check_features(self) -> FeatureProvider:
        """The graph's features. Raises InputError if it has none."""
        if self.graph.features is None:
            raise InputError("the graph has no features: give it some with graph.with_features(Degrees(log=True))")
        return self.graph.features

    def _own_rows(self, t: int, whole: Tensor) -> Tensor:
        if self.local_partition is None or len(self.local_partition.own[t]) == len(whole):
            return whole
        return whole[torch.from_numpy(self.local_partition.own[t]).to(whole.device)]

    def _has_cells(self, t: int) -> bool:
        return self.local_partition is None or len(self.local_partition.own[t]) > 0

    def register_input(self, key: tuple[Norm, ...], x: Tensor) -> None:
        """Register a tensor as the features, or as their aggregate by the norms ``key``."""
        self._inputs[id(x)] = key
        self._aggregates[key] = x

    def _full_matrix(self, norm: Norm) -> Sparse:
        return self._snapshot_matrices.block_diagonal(norm, self._has_cells)

    def _partitioned_matrix(self, norm: Norm) -> Sparse:
        """Local rows of every snapshot's matrix, over local and halo columns."""
        assert self.local_partition is not None
        halo = self.halo_cells("out" if norm == "mean_out" else "in")
        whole = self._snapshot_matrices
        blocks = [
            select_csr_rows(whole.block(t, norm), own, self.columns(t, halo)) if len(own) else EMPTY_CSR
            for t, own in enumerate(self.local_partition.own)
        ]
        num_cols = self.num_cells + halo.num_rows
        return Sparse.vstack(blocks, num_cols, dtype=self.sum_dtype, device=self.device)

    @cached_property
    def _snapshot_matrices(self) -> SnapshotMatrices:
        # An offloaded window has its own: tensors that windows share would be freed with one of them.
        shares = self.shares_structures and self.offloaded is None
        return SnapshotMatrices(
            self.graph, self.sum_dtype, self.device, StructureCache.of(self.graph) if shares else None
        )
