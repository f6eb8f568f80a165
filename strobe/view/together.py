"""What concerns a whole snapshot, found by all ranks that have a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from strobe.comm.rows import anchor, summed
from strobe.ops import native
from strobe.ops.csr import FloatArray, IntArray
from strobe.ops.segments import highest, pick
from strobe.ops.standardise import Others, standardise, standardise_with
from strobe.view.share import Share

Proposal = tuple[FloatArray, IntArray, IntArray]
"""Scores, positions in the snapshot, rows of the proposing rank."""


def top_rows_together(
    share: Share, x: Tensor, direction: Tensor, k: int, ptr: Sequence[int]
) -> tuple[Tensor, list[Tensor]]:
    """``View.top_rows`` over the rows of all ranks: each proposes its best, all choose the same. And tokens.

    Cost: k scores and places per rank and snapshot, and a sum of k rows per snapshot over all ranks.
    """
    unit = direction / direction.norm()
    scores = (x.detach() * unit.detach()).sum(1)
    proposed = []
    for own, (start, stop) in zip(share.own, pairwise(ptr), strict=True):
        best = highest(scores[start:stop], k).cpu().numpy()
        proposed.append((scores[start:stop].cpu().numpy()[best], own[best], start + best))
    everyone = share.comm.gather(proposed, kind="top rows")
    rows, places = _chosen(everyone, share.comm.rank, k)
    chosen = pick(x, torch.from_numpy(rows).to(x.device))
    mine = x.new_zeros(len(share.own) * k, x.shape[1]).index_copy(0, torch.from_numpy(places).to(x.device), chosen)
    top, token = summed(share.comm, mine.view(len(share.own), k, x.shape[1]), kind="top rows")
    return top * torch.tanh(top @ unit)[:, :, None], [token]


def _chosen(everyone: list[list[Proposal]], rank: int, k: int) -> tuple[IntArray, IntArray]:
    """The rows of a rank that are among the best k of all ranks' proposals, and where they stand among all those."""
    rows, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for t, said in enumerate(zip(*everyone, strict=True)):
        scores, positions, proposed = (np.concatenate(column) for column in zip(*said, strict=True))
        source = np.repeat(np.arange(len(said)), [len(each[0]) for each in said])
        best = np.lexsort((positions, -scores))[:k]  # of equal scores the lower place in the snapshot
        here = np.flatnonzero(source[best] == rank)
        rows.append(proposed[best][here])
        places.append(t * k + here)
    return np.concatenate(rows), np.concatenate(places)


def standardised_together(
    share: Share, x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """``standardise`` with the moments of whole snapshots, and tokens."""
    if not share.splits_snapshots:
        out, means, variances = standardise(x, scale, shift, eps, ptr)
        sizes = torch.tensor([b - a for a, b in pairwise(ptr)], device=x.device)[:, None]
        told = torch.stack([torch.where(sizes > 0, each, 0) for each in (means, variances)])
        means, variances = share.comm.sum(told, kind="moments")
        return out, means, variances, []
    if native.usable(x, scale, shift):
        count = torch.from_numpy(share.num_cells)[:, None]
        others = Others(lambda sums: share.comm.sum(sums, kind="moments"), count, anchor(x))
        out, means, variances, token = standardise_with(others, x, scale, shift, eps, ptr)
        return out, means, variances, [token]
    lengths = [b - a for a, b in pairwise(ptr)]
    count = torch.from_numpy(share.num_cells).to(x)[:, None]
    repeats = torch.tensor(lengths, device=x.device)
    total, token = summed(share.comm, _sums(x, lengths), kind="moments")
    mean = total / count.clamp(min=1)
    centred = x - mean.repeat_interleave(repeats, 0)
    squares, other = summed(share.comm, _sums(centred * centred, lengths), kind="moments")
    spread = torch.rsqrt(squares / count.clamp(min=1) + eps)
    out = centred * spread.repeat_interleave(repeats, 0) * scale + shift
    return out, mean.detach(), (squares / (count - 1)).detach(), [token, other]


def _sums(x: Tensor, sizes: list[int]) -> Tensor:
    """Column sums of each snapshot's rows, [T, F]."""
    return torch.stack([part.sum(0) for part in x.split(sizes)]) if sizes else x.new_zeros(0, x.shape[1])
