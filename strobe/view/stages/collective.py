"""Reductions over whole snapshots, whose cells may be on several ranks: top-k rows and snapshot normalization."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from strobe.comm.rows import all_reduce_rows, anchor
from strobe.ops import native
from strobe.ops.dense.segments import select_with_sparse_grad, stable_topk
from strobe.ops.dense.snapshot_norm import SyncGroup, snapshot_norm, sync_snapshot_norm
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.view.partition.local import LocalPartition

Proposal = tuple[FloatArray, IntArray, IntArray]
"""Scores, positions in the snapshot, and local rows of a rank's candidates."""


def top_rows(x: Tensor, direction: Tensor, k: int, ptr: Sequence[int]) -> Tensor:
    """``View.top_rows`` of one rank."""
    unit = direction / direction.norm()
    scores = torch.mv(x.detach(), unit.detach().to(x.dtype))
    best = [stable_topk(scores[start:stop], k) for start, stop in pairwise(ptr)]
    at = [rows + start for rows, start in zip(best, ptr, strict=False)]
    selected = (select_with_sparse_grad(x, torch.cat(at)) if at else x[:0]).to(unit.dtype)
    # Scores of the selected rows alone: the gradient of all scores would be as large as x and mostly zero.
    weighted = selected * torch.tanh(torch.mv(selected, unit))[:, None]
    if len(weighted) < k * len(best):
        places = [torch.arange(len(rows), device=x.device) + t * k for t, rows in enumerate(best)]
        weighted = weighted.new_zeros(k * len(best), x.shape[1]).index_copy(0, torch.cat(places), weighted)
    return weighted.view(len(best), k, x.shape[1])


def top_rows_across_ranks(
    local_partition: LocalPartition, x: Tensor, direction: Tensor, k: int, ptr: Sequence[int]
) -> tuple[Tensor, list[Tensor]]:
    """``View.top_rows`` over the rows of all ranks, and tokens. Each rank proposes its k best rows.

    Cost: k scores and positions per rank and snapshot, and an all-reduce of k rows per snapshot.
    """
    unit = direction / direction.norm()
    scores = (x.detach() * unit.detach()).sum(1)
    proposed = []
    for own, (start, stop) in zip(local_partition.own, pairwise(ptr), strict=True):
        best = stable_topk(scores[start:stop], k).cpu().numpy()
        proposed.append((scores[start:stop].cpu().numpy()[best], own[best], start + best))
    proposals = local_partition.comm.all_gather_object(proposed, kind="topk")
    rows, places = _merge_proposals(proposals, local_partition.comm.rank, k)
    chosen = select_with_sparse_grad(x, torch.from_numpy(rows).to(x.device))
    local = x.new_zeros(len(local_partition.own) * k, x.shape[1]).index_copy(
        0, torch.from_numpy(places).to(x.device), chosen
    )
    top, token = all_reduce_rows(local_partition.comm, local.view(len(local_partition.own), k, x.shape[1]), kind="topk")
    return top * torch.tanh(top @ unit)[:, :, None], [token]


def _merge_proposals(proposals: list[list[Proposal]], rank: int, k: int) -> tuple[IntArray, IntArray]:
    """Local rows of ``rank`` among the best k of all proposals, and their places among those k."""
    rows, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for t, candidates in enumerate(zip(*proposals, strict=True)):
        scores, positions, proposed = (np.concatenate(column) for column in zip(*candidates, strict=True))
        source = np.repeat(np.arange(len(candidates)), [len(each[0]) for each in candidates])
        best = np.lexsort((positions, -scores))[:k]  # ties by position
        local = np.flatnonzero(source[best] == rank)
        rows.append(proposed[best][local])
        places.append(t * k + local)
    return np.concatenate(rows), np.concatenate(places)


def snapshot_norm_across_ranks(
    local_partition: LocalPartition, x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """``snapshot_norm`` with the moments of whole snapshots, and tokens."""
    if not local_partition.splits_snapshots:
        out, means, variances = snapshot_norm(x, scale, shift, eps, ptr)
        # Those of snapshots without rows are 0.
        means, variances = local_partition.comm.all_reduce(torch.stack([means, variances]), kind="moments")
        return out, means, variances, []
    if native.usable(x, scale, shift):
        count = torch.from_numpy(local_partition.snapshot_sizes)[:, None]
        group = SyncGroup(lambda sums: local_partition.comm.all_reduce(sums, kind="moments"), count, anchor(x))
        out, means, variances, token = sync_snapshot_norm(group, x, scale, shift, eps, ptr)
        return out, means, variances, [token]
    lengths = [b - a for a, b in pairwise(ptr)]
    count = local_partition.snapshot_counts
    total, token = all_reduce_rows(local_partition.comm, _sums(x, lengths), kind="moments")
    mean = total / count.clamp(min=1)
    centered = x - _repeat(mean, lengths)
    squares, other = all_reduce_rows(local_partition.comm, _sums(centered * centered, lengths), kind="moments")
    scale_factor = torch.rsqrt(squares / count.clamp(min=1) + eps)
    out = centered * _repeat(scale_factor, lengths) * scale + shift
    return out, mean.detach(), (squares / (count - 1)).detach(), [token, other]


def _repeat(rows: Tensor, sizes: list[int]) -> Tensor:
    """Row t of each snapshot for all its cells. A GPU needs no copy of the sizes, for which the host would wait."""
    parts = [row.expand(size, -1) for row, size in zip(rows.split(1), sizes, strict=True)]
    return torch.cat(parts) if parts else rows


def _sums(x: Tensor, sizes: list[int]) -> Tensor:
    """Column sums of each snapshot, [T, F]."""
    return torch.stack([part.sum(0) for part in x.split(sizes)]) if sizes else x.new_zeros(0, x.shape[1])
