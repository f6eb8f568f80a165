"""The view a model is written against: one pass over the cells of a window. Models never see ranks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from strobe.comm.rows import Route, attach_tokens, exchange
from strobe.exchange import TimeEncoder
from strobe.exchange.halo import halo_product
from strobe.exchange.overlap.timing import SnapshotSize
from strobe.exchange.overlap.transfer import AsyncTransfer, Yield, run_to_completion
from strobe.exchange.transfer import PermutedTransfer, RowExchange, RowTransfer, receive_rows
from strobe.ops.dense.snapshot_norm import snapshot_norm
from strobe.ops.sparse.normalize import Norm
from strobe.ops.sparse.spmm import Sparse, spmm
from strobe.view.data.window import WindowData
from strobe.view.partition.local import Reads
from strobe.view.stages.chunked import FusedChunk, Stage
from strobe.view.stages.collective import snapshot_norm_across_ranks, top_rows, top_rows_across_ranks

if TYPE_CHECKING:
    from strobe.view.data.sampled import HopData

Carry = list[Any]
"""States saved for the next window, in the order of the calls: tensors, tuples and dictionaries of tensors."""


class View:
    """One pass of a model over the cells of a window.

    Rows of every tensor are cells, t-major, by ascending node within a snapshot. On several ranks a view holds the
    cells of its rank, and its methods exchange rows with the other ranks.

    Args:
        data: cells, features and matrices of the window.
        carry: states that the previous window saved; None at the first window.
        tokens: autograd tokens of the surrounding pass, for views of single snapshots; None starts a pass.
    """

    def __init__(self, data: WindowData, carry: Carry | None = None, tokens: list[Tensor] | None = None) -> None:
        self.data = data
        self._previous_carry: Sequence[Any] | None = carry
        self.carry: Carry = []
        self.num_products = 0
        """Sparse products so far."""
        if tokens is None and data.local_partition is not None:
            for row_exchange in data.local_partition.row_exchanges.values():
                row_exchange.begin_pass()
        self._tokens: list[Tensor] = [] if tokens is None else tokens  # one per exchange of this pass

    @property
    def x(self) -> Tensor:
        """Features of the cells, [C, F]."""
        return self.data.x

    @property
    def num_cells(self) -> int:
        return self.data.num_cells

    @property
    def num_snapshots(self) -> int:
        return self.data.num_snapshots

    @property
    def num_slots(self) -> int:
        """Rows of a per-node state, as ``gather_state`` and ``scatter_state`` take it."""
        return self.data.sequences.num_slots

    # Structure: along edges, within a snapshot.

    def run_structure(self, stage: Stage, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        """Run a convolution: on the whole window, in chunks of cells, or per snapshot, as the plan says.

        Args:
            stage: ``stage(view, x)``, given a view of some cells and the rows they read, their own first.
            weights: the parameters of the stage.
            x: rows of all cells, [C, F].

        Returns:
            New rows of all cells, [C, F'].
        """
        hop = self._next_hop_data()
        if hop is not None:
            return _run_hop(hop, stage, x)
        if self.data.chunked_stage is None:
            return self.run_per_snapshot(stage, x)
        key = getattr(stage, "__self__", stage)  # bound methods are new objects at each access
        return self.data.chunked_stage.run(partial(_run_chunk, stage), weights, self.pull(x), key)

    def run_structure_on_inputs(self, stage: Stage, x: Tensor) -> Tensor:
        """Run a convolution that reads neighbors only through aggregates of the inputs, which are cached for a run."""
        hop = self._next_hop_data()
        return self.run_whole(stage, x) if hop is None else _run_hop(hop, stage, x)

    def _next_hop_data(self) -> HopData | None:
        """The cells that the next sparse product is computed for; None: all."""
        hop = self.data.hop_data(self.num_products)
        if hop is not None:
            self.num_products += 1
        return hop

    def run_per_snapshot(self, stage: Stage, x: Tensor, *extras: Tensor) -> Tensor:
        """Run a stage that reads each snapshot by itself: one coroutine per snapshot if the exchange overlaps them.

        Args:
            stage: ``stage(view, x, *extras)``, given the rows and extras of the view's snapshots. It awaits
                ``view.aggregate_async`` and ``view.pull_async``.
            x: rows of all cells, [C, F]. Inputs are never exchanged: a stage on them runs on the whole window.
            extras: tensors with one entry per snapshot, [T, ...].
        """
        if self._has_halo and self.num_snapshots > 1 and not self.data.is_input(x):
            stages = _SnapshotStages(self.data, self._tokens, stage, x, extras)
            out = self._row_exchange().run_per_snapshot(stages)
            if out is not None:
                return out
        return self.run_whole(stage, x, *extras)

    def run_whole(self, stage: Stage, x: Tensor, *extras: Tensor) -> Tensor:
        """Run a stage on all cells at once."""
        return run_to_completion(stage(self, x, *extras))

    async def pull_async(self, x: Tensor) -> Tensor:
        """``pull``; a stage that runs per snapshot yields while rows are sent."""
        return self.pull(x)

    async def aggregate_async(self, x: Tensor, norm: Norm = "gcn") -> Tensor:
        """``aggregate``; a stage that runs per snapshot yields while rows are sent."""
        return self.aggregate(x, norm)

    def pull(self, x: Tensor) -> Tensor:
        """Append the remote rows that the view's arcs read to local rows."""
        self.num_products += 1
        if x is self.data.x:
            return self.data.pulled_x
        transfer = self._start_transfer("in", x)
        if transfer is None:
            return x
        rows, token = receive_rows(transfer, x)
        self._tokens.append(token)
        return torch.cat([x, rows])

    def exchange_rows(self, route: Route, x: Tensor, *, kind: str) -> Tensor:
        """Send rows of x to other ranks and return those received. Never stale."""
        rows, token = exchange(self.data.comm, route, x, kind=kind)
        self._tokens.append(token)
        return rows

    def attach_exchanges(self, loss: Tensor) -> Tensor:
        """Tie every exchange of the pass to the loss, so that backward runs on all ranks in step."""
        return attach_tokens(loss, self._tokens) if self._tokens or self.data.local_partition is not None else loss

    def aggregate(self, x: Tensor, norm: Norm = "gcn") -> Tensor:
        """Multiply rows by the normalized adjacency of each snapshot. Aggregates of ``view.x`` are cached for a run."""
        hop = self._next_hop_data()
        if hop is not None:
            return hop.aggregate(x, norm)
        self.num_products += 1
        if self.data.is_input(x):
            return self.data.aggregate_input(x, norm)
        transfer = self._start_transfer("out" if norm == "mean_out" else "in", x)
        if transfer is None:
            return spmm(self.data.product(norm), x)
        out, token = halo_product(transfer, self.data.halo_matrix(norm), x)
        self._tokens.append(token)
        return out

    def aggregate_x(self, norm: Norm = "gcn") -> Tensor:
        """``aggregate(view.x)``, without keeping features that nothing else reads."""
        if not self.data.streams_features:
            return self.aggregate(self.x, norm)
        self.num_products += 1
        return self.data.aggregate_features(norm)

    def _start_transfer(self, reads: Reads, x: Tensor) -> RowTransfer | None:
        """The transfer of halo rows; None if there are none. All ranks of a snapshot must call it."""
        if not self._has_halo:
            return None
        halo = self.data.halo_cells(reads)
        transfer = self._row_exchange().start_transfer(halo.route, x, kind="halo")
        if transfer is None or halo.permutation is None:
            return transfer
        return PermutedTransfer(transfer, halo.permutation)

    @property
    def _has_halo(self) -> bool:
        return self.data.local_partition is not None and self.data.local_partition.splits_snapshots

    def _row_exchange(self) -> RowExchange:
        assert self.data.local_partition is not None
        return self.data.local_partition.row_exchanges["structure"]

    @property
    def splits_snapshots(self) -> bool:
        """Whether the view's snapshots may have cells outside this view."""
        return self._has_halo or self.data.splits_snapshots

    def matrix(self, norm: Norm = "loops") -> Sparse:
        """The sparse matrix over pulled rows, for kernels that read its entries."""
        return self.data.matrix(norm)

    @cached_property
    def edge_index(self) -> Tensor:
        """(pulled row, local row) of every arc, [2, E], as PyTorch Geometric's convolutions take them."""
        matrix = self.data.matrix("sum")
        return torch.stack([matrix.col.long(), matrix.rows])

    @property
    def edge_weight(self) -> Tensor | None:
        """The weight of every arc, [E], or None."""
        return self.data.matrix("sum").weight

    # Time: along the sequence of a node.

    def over_time(self, encoder: TimeEncoder, *x: Tensor) -> Tensor:
        """Run a time encoder over the view's sequences, from the state that the previous window saved.

        Args:
            encoder: the time stage. With several inputs it is given them as a tuple.
            x: rows of all cells, [C, F] each.

        Returns:
            Outputs of all cells, [C, F'].
        """
        stage = self.data.time_stage(encoder)
        if stage is None:
            out, state = encoder.encode(x[0] if len(x) == 1 else x, self.load_state(), self.data.sequences)
        else:
            out, state, tokens = stage.run(encoder, x, self.load_state())
            self._tokens += tokens
        self.save_state(state)
        return out

    def load_state(self) -> Any | None:
        """The state saved by the corresponding ``save_state`` of the previous window; None at the first window."""
        return None if self._previous_carry is None else self._previous_carry[len(self.carry)]

    def save_state(self, value: Any) -> None:
        """Save a state for the next window. States are matched by the order of the calls."""
        self.carry.append(value)

    @property
    def is_sliding(self) -> bool:
        """Whether the next window begins before this one ends: ``save_states`` then needs all snapshots' states."""
        return self.data.is_sliding

    def save_states(self, values: Sequence[Any], *, per_node: bool = False) -> None:
        """Save the state after every snapshot, or after the last one only if windows do not slide.

        Args:
            values: states in order of time.
            per_node: whether a state has one row per slot.
        """
        self.save_state(self.data.next_state(self.load_state(), values, per_node=per_node))

    # Snapshot by snapshot, for models whose convolution reads the state or whose weights change.

    def steps(self) -> Iterator[View]:
        """Views of single snapshots in order of time, for structure stages and ``gather_state``."""
        return (View(data, tokens=self._tokens) for data in self.data.single)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Split rows by snapshot."""
        return torch.split(x, [b - a for a, b in pairwise(self.data.cell_ptr)])

    def gather_state(self, state: Tensor) -> Tensor:
        """Select the rows of a per-node state [S, H] of the nodes in this (one-snapshot) view."""
        sequences, handover = self.data.sequences, self.data.handover
        rows = state if sequences.slot is None else state[sequences.slots]
        if handover is None:
            return rows
        assert self.data.local_partition is not None
        received, token = exchange(self.data.local_partition.comm, handover.route, state, kind="state")
        self._tokens.append(token)
        return rows.index_copy(0, handover.places, received)

    def scatter_state(self, state: Tensor, rows: Tensor) -> Tensor:
        """Replace the rows of this view's nodes in a per-node state."""
        sequences = self.data.sequences
        return rows if sequences.slot is None else state.index_copy(0, sequences.slots, rows)

    def top_rows(self, x: Tensor, direction: Tensor, k: int) -> Tensor:
        """Select the k rows of each snapshot with the highest score x·p / |p|, times tanh of the score.

        Returns:
            Rows in descending order of score, [T, k, F]; ties by row, zeros if a snapshot has fewer than k cells.
        """
        partition = self.data.local_partition
        if partition is None or partition.comm.num_ranks == 1:
            return top_rows(x, direction, k, self.data.cell_ptr)
        top, tokens = top_rows_across_ranks(partition, x, direction, k, self.data.cell_ptr)
        self._tokens += tokens
        return top

    def snapshot_norm(self, x: Tensor, scale: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Normalize each snapshot's cells to mean 0 and variance 1 per column, times ``scale`` plus ``shift``.

        Returns:
            The rows, and the means and unbiased variances, [*, F] each, without gradient, one row per snapshot of at
            least two cells.
        """
        partition, ptr = self.data.local_partition, self.data.cell_ptr
        sizes = [b - a for a, b in pairwise(ptr)]
        if partition is None or partition.comm.num_ranks == 1:
            out, means, variances = snapshot_norm(x, scale, shift, eps, ptr)
        else:
            out, means, variances, tokens = snapshot_norm_across_ranks(partition, x, scale, shift, eps, ptr)
            self._tokens += tokens
            sizes = partition.snapshot_sizes.tolist()
        if min(sizes, default=2) > 1:
            return out, means, variances  # a list of rows would be copied to a GPU, for which the host waits
        has_variance = [t for t, size in enumerate(sizes) if size > 1]
        return out, means[has_variance], variances[has_variance]


def _run_chunk(stage: Stage, chunk: FusedChunk, rows: Tensor) -> Tensor:
    return View(chunk).run_whole(stage, rows)  # type: ignore[arg-type]


def _run_hop(hop: HopData, stage: Stage, x: Tensor) -> Tensor:
    """Run a convolution on the cells up to a hop. Rows of the window's other cells are 0."""
    view = View(hop)
    out = view.run_whole(stage, hop.load_rows(x))
    hop.hop_data(view.num_products - 1)  # raises if the convolution had a second product
    return hop.scatter_rows(out)


class _SnapshotView(View):
    """One snapshot of a window whose structure stage runs as a coroutine."""

    def __init__(
        self,
        data: WindowData,
        tokens: list[Tensor],
        row_exchange: RowExchange,
        make_async: Callable[[RowTransfer], AsyncTransfer],
    ) -> None:
        super().__init__(data, tokens=tokens)
        self._snapshot_exchange, self._make_async = row_exchange, make_async

    async def aggregate_async(self, x: Tensor, norm: Norm = "gcn") -> Tensor:
        transfer, x = await self._send("out" if norm == "mean_out" else "in", x)
        if transfer is None:
            return spmm(self.data.product(norm), x)
        out, token = transfer.recv_and_multiply(self.data.halo_matrix(norm), x)
        self._tokens.append(token)
        return out

    async def pull_async(self, x: Tensor) -> Tensor:
        transfer, x = await self._send("in", x)
        if transfer is None:
            return x
        out, token = transfer.recv_and_concat(x)
        self._tokens.append(token)
        return out

    async def _send(self, reads: Reads, x: Tensor) -> tuple[AsyncTransfer | None, Tensor]:
        sync = self._start_transfer(reads, x)
        transfer = None if sync is None else self._make_async(sync)
        x = x if transfer is None else transfer.start_send(x)
        await Yield(x.shape[1])
        return transfer, x

    def _row_exchange(self) -> RowExchange:
        return self._snapshot_exchange


@dataclass(frozen=True, eq=False)
class _SnapshotStages:
    """A structure stage of a window as one coroutine per snapshot (``exchange.overlap.transfer.SnapshotStages``)."""

    data: WindowData
    tokens: list[Tensor]
    stage: Stage
    x: Tensor
    extras: tuple[Tensor, ...]

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        return torch.split(self.x, [b - a for a, b in pairwise(self.data.cell_ptr)])

    @cached_property
    def sizes(self) -> list[SnapshotSize]:
        return [
            SnapshotSize(each.num_cells, each.num_arcs, each.halo_cells("in").route.rows_sent)
            for each in self.data.single
        ]

    def start(
        self, t: int, row_exchange: RowExchange, make_async: Callable[[RowTransfer], AsyncTransfer]
    ) -> Coroutine[Yield, None, Tensor]:
        view = _SnapshotView(self.data.single[t], self.tokens, row_exchange, make_async)
        return self.stage(view, self.inputs[t], *(extra[t : t + 1] for extra in self.extras))
