"""Pairs of nodes: as sorted int64 keys (edges, past edges, negatives), and as examples with scores and metrics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.sparse.csr import FloatArray, IntArray, expand_rows
from strobe.tasks.base import Examples, Metrics
from strobe.tasks.metrics import SortedScores, hits_at_k, mrr, rank_positives
from strobe.tasks.positions import find_positions

Keys = npt.NDArray[np.int64]

MAX_NODES = 3_000_000_000
"""The largest number of nodes for which keys of pairs are distinct: the key of a pair (s, d) is s * MAX_NODES + d."""


def sample_of_lists(
    size: npt.NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.bool_], Keys]:
    """Sample distinct positions of lists: ``count`` of each, or all of a shorter one (Floyd's algorithm).

    Args:
        size: length of each list, [n].
        count: positions per list, at most.
        rng: source of random numbers.

    Returns:
        Which samples there are and the positions, [n, count].
    """
    taken = np.minimum(size, count)
    has = np.arange(count) < taken[:, None]
    last = np.where(has, (size - taken)[:, None] + np.arange(count), 0)  # the last position that each step may take
    chosen = rng.integers(0, last + 1)
    for k in range(1, count):
        is_taken = (chosen[:, :k] == chosen[:, k, None]).any(1)
        chosen[:, k] = np.where(is_taken, last[:, k], chosen[:, k])
    return has, chosen


def replace_by_listed(
    sampled: Keys, row: npt.NDArray[np.int64], owner: IntArray, listed: Keys, rng: np.random.Generator
) -> None:
    """Replace samples by distinct entries of lists, as far as there are any.

    Args:
        sampled: samples, [n, count].
        row: the list of each row of samples, [n].
        owner: the list of each entry, ascending.
        listed: entries of all lists.
        rng: source of random numbers.
    """
    size = np.bincount(owner, minlength=int(row.max(initial=-1)) + 1)
    has, place = sample_of_lists(size[row], sampled.shape[1], rng)
    first = (np.cumsum(size) - size)[row]
    sampled[has] = listed[(first[:, None] + place)[has]]


def split_keys(keys: Keys) -> tuple[Keys, Keys]:
    """Sources and destinations of keys."""
    src, dst = np.divmod(keys, MAX_NODES)
    return src, dst


def edge_keys(snapshot: Snapshot) -> Keys:
    """Ascending unique keys of a snapshot's edges, without self-loops; undirected edges smaller end first."""
    src, dst = unique_arcs(snapshot)
    if not snapshot.directed:
        src, dst = src[src < dst], dst[src < dst]
    return src * MAX_NODES + dst


def unique_arcs(snapshot: Snapshot) -> tuple[Keys, Keys]:
    """Sources and destinations of a snapshot's arcs as node ids, sorted, without self-loops and duplicates."""
    row_ptr, dst, _ = snapshot.transposed
    src = expand_rows(row_ptr)
    keep = src != dst
    keep[1:] &= (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    return snapshot.nodes[src[keep]].astype(np.int64), snapshot.nodes[dst[keep]].astype(np.int64)


def contains(keys: Keys, wanted: Keys) -> npt.NDArray[np.bool_]:
    """Which ``wanted`` are in ``keys``, which ascend."""
    return find_positions(wanted, keys) >= 0


def merge_keys(keys: Keys, more: Keys) -> Keys:
    """The union of two ascending lists of unique keys, ascending."""
    new = more[~contains(keys, more)]
    # A stable sort merges two ascending runs in one pass.
    return np.sort(np.concatenate([keys, new]), kind="stable") if len(new) else keys


def is_bipartite(graph: DynamicGraph, times: range) -> bool:
    """Whether snapshots have directed edges, and no source of them is a destination."""
    sources, destinations = (np.zeros(graph.num_nodes, bool) for _ in range(2))
    for t in times if graph.directed else ():
        src, dst = unique_arcs(graph[t])
        sources[src], destinations[dst] = True, True
        if (sources & destinations).any():
            return False
    return bool(sources.any())


def interleave_negatives(src: Keys, dst: Keys, count: IntArray, negatives: Keys) -> Examples:
    """Build examples of every positive followed by its ``count`` negatives: 1 0 0 0 1 0 0 0 …"""
    size = 1 + count
    starts = np.cumsum(size) - size
    y = np.zeros(int(size.sum()), np.float32)
    y[starts] = 1
    ends = np.empty(len(y), np.int64)
    ends[starts] = dst
    ends[y == 0] = negatives
    return list_pairs(np.repeat(src, size), ends, y)


def list_pairs(src: IntArray, dst: IntArray, labels: npt.NDArray[np.float32]) -> Examples:
    """Examples of pairs of node ids."""
    index = torch.from_numpy(np.stack([src, dst]).astype(np.int64, copy=False))
    return Examples(None, torch.from_numpy(labels), edge_label_index=index)


def add_offset(predictions: Tensor, examples: Examples) -> Tensor:
    """Scores: predictions plus the offset."""
    return predictions if examples.offset is None else predictions + examples.offset.to(predictions)


def final_scores(predictions: Tensor, examples: Examples) -> FloatArray:
    """Scores without the last digits, in which equal pairs differ by where they were computed: they must tie."""
    digits = 9 if predictions.dtype == torch.float64 else 5
    return np.round(add_offset(predictions.detach().cpu().double(), examples).numpy(), digits)


def pair_metrics(scores: FloatArray, examples: Sequence[Examples]) -> Metrics:
    """AP and AUC over all pairs; MRR and hits of each positive among its negatives."""
    positive = np.concatenate([each.labels.cpu().numpy() for each in examples]) > 0
    ordered = SortedScores.split(scores, positive)
    metrics = {"ap": ordered.ap()}
    if not positive.all():
        rank = rank_positives(scores, positive)
        metrics |= {"auc": ordered.auc(), "mrr": mrr(rank)}
        metrics |= {f"hits@{k}": hits_at_k(rank, k) for k in (1, 3, 10)}
    return metrics
