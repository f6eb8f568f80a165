"""What shrinking saves: the same windows, but every step cuts its blocks out of the snapshots and renumbers them.

A step selects rows, drops and renumbers columns, normalises what is left by its own degrees, transposes the matrix
for the backward pass and gathers the inputs: as little as it can while its nodes have no order. Of a snapshot that is
whole it has the normalised matrix from when a window first reached it, as we do. Both compute the same, but for
rounding. One rank: what is sent to other ranks is left as it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

import strobe
from strobe.engine import Run
from strobe.engine.sources import sliding as engine_sliding
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import Csr
from strobe.ops.sparse.csr_kernels import reorder_rows
from strobe.ops.sparse.leading_block import LeadingBlock
from strobe.ops.sparse.normalize import SYMMETRIC_NORMS, Norm, normalize
from strobe.ops.sparse.spmm import Sparse
from strobe.plan import Plan
from strobe.tasks import Task
from strobe.view.data.permuted import NodeOrder, PermutedSnapshot
from strobe.view.data.truncated import TruncatedData
from strobe.view.partition.truncated import WindowSlice

_whole: WeakKeyDictionary[PermutedSnapshot, dict[Norm, Csr]] = WeakKeyDictionary()


class RenumberedCells(TruncatedData):
    """The cells of a window of blocks, each with a matrix and rows of its own."""

    def _own_blocks(self, norm: Norm) -> Iterator[LeadingBlock]:
        for block in self.local_partition.slices:
            made = _cut_out(block, norm, evened=self._renormalizes(block, norm))
            yield LeadingBlock(made, block.num_cells, block.num_cells)

    def _gather_inputs(self, key: tuple[Norm, ...]) -> Tensor:
        return torch.cat([_gathered(block, key) for block in self.local_partition.slices])


def _cut_out(block: WindowSlice, norm: Norm, *, evened: bool) -> Sparse:
    ordered, snapshot = block.permuted, block.permuted.snapshot
    kept = ordered.own[: block.num_cells]
    columns = np.full(snapshot.num_nodes, -1, np.int32)
    columns[kept] = np.arange(len(kept))
    if evened:  # degrees are those of what is kept
        made = normalize(norm, *reorder_rows((snapshot.row_ptr, snapshot.col, snapshot.weight), kept, columns))
    else:
        whole = _whole.setdefault(ordered, {})
        if norm not in whole:
            whole[norm] = normalize(norm, snapshot.row_ptr, snapshot.col, snapshot.weight)
        made = reorder_rows(whole[norm], kept, columns)
    symmetric = not snapshot.directed and norm in SYMMETRIC_NORMS
    return Sparse.vstack([made], len(kept), dtype=ordered.dtype, device=ordered.device, symmetric=symmetric)


def _gathered(block: WindowSlice, key: tuple[Norm, ...]) -> Tensor:
    rows = block.permuted.inputs(block.permuted.t, key)  # of all own cells, by node: one rank has them all
    return rows.index_select(0, torch.from_numpy(block.permuted.own[: block.num_cells]))


def _bare(self: engine_sliding.SlidingWindowSource, t: int, order: NodeOrder) -> PermutedSnapshot:
    job = self._job
    return PermutedSnapshot(job.problem.graph, t, order, self._inputs, job.settings.dtype, job.device)


@contextmanager
def renumbering() -> Iterator[None]:
    """Meanwhile steps renumber."""
    with (
        patch.object(engine_sliding, "ShrunkCells", RenumberedCells),
        patch.object(engine_sliding.SlidingWindowSource, "_ordered", _bare),
    ):
        yield


def compare(graph: DynamicGraph, task: Task, model: str, plan: Plan, rounds: int, epochs: int) -> dict[str, Any]:
    """Seconds per pass of both, in turns, in this process; their losses, which are the same but for rounding."""

    def trained() -> Run:
        how: dict[str, Any] = {"epochs": epochs, "evaluate_every": epochs + 1, "patience": 0, "threads": 1}
        return strobe.train(graph, model, task, plan=plan, **how)

    runs: dict[str, list[Run]] = {"shrunk": [], "renumbered": []}
    for _ in range(rounds):
        runs["shrunk"].append(trained())
        with renumbering():
            runs["renumbered"].append(trained())
    seconds = {name: [line["train_s"] for run in each for line in run.history[1:]] for name, each in runs.items()}
    losses = {name: each[0].history[-1]["loss"] for name, each in runs.items()}
    gain = statistics.median(seconds["renumbered"]) / statistics.median(seconds["shrunk"]) - 1
    return {"gain": gain, "seconds": seconds, "losses": losses}
