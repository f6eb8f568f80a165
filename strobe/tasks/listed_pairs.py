"""Pairs in a list, each positive right before its negatives: their examples, scores and metrics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.tasks.base import Examples, Metrics
from strobe.tasks.metrics import ap, auc, hits_at_k, mrr, rank_positives
from strobe.tasks.pairs import Keys


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
    metrics = {"ap": ap(scores, positive)}
    if not positive.all():
        rank = rank_positives(scores, positive)
        metrics |= {"auc": auc(scores, positive), "mrr": mrr(rank)}
        metrics |= {f"hits@{k}": hits_at_k(rank, k) for k in (1, 3, 10)}
    return metrics
