"""A share of a snapshot's examples for validation, by hash: the same in every sample and on every rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from strobe.engine.examples import LocalExamples
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.base import Examples, edge_ends
from strobe.view import WindowData

Mask = npt.NDArray[np.bool_]


def split_examples(
    local: LocalExamples, data: WindowData, share: float, key: tuple[int, int]
) -> tuple[LocalExamples, LocalExamples]:
    """The examples of one snapshot to train on, and those for validation, each with the probability ``share``.

    Nodes are chosen by their id, pairs by the positive, with all its negatives; ``key``: seed and snapshot.
    """
    out = _are_validation(local.examples, data, share, key)
    return _select(local, ~out), _select(local, out)


def _are_validation(examples: Examples, data: WindowData, share: float, key: tuple[int, int]) -> Mask:
    if examples.edge_label_index is None:
        nodes = data.graph[0].nodes
        nodes = nodes if data.local_partition is None else nodes[data.local_partition.own[0]]
        cells = slice(None) if examples.cell_index is None else examples.cell_index[0].cpu().numpy()
        return hash_uniform(key, nodes[cells]) < share
    positive = examples.labels.cpu().numpy() > 0
    ends = [each[positive] for each in edge_ends(examples)]
    if not data.graph.directed:
        ends = [np.minimum(*ends), np.maximum(*ends)]  # samples differ in their direction
    out: Mask = (hash_uniform(key, *ends) < share)[np.cumsum(positive) - 1]
    return out


def hash_uniform(key: tuple[int, ...], *ids: IntArray) -> npt.NDArray[np.float64]:
    """A number of [0, 1) for each row of ids, by splitmix64."""
    value = np.zeros(len(ids[0]), np.uint64)
    for number in (*map(np.array, key), *ids):
        value = (value ^ number.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        value ^= value >> np.uint64(31)
    uniform: npt.NDArray[np.float64] = (value >> np.uint64(11)).astype(np.float64) / 2.0**53
    return uniform


def _select(local: LocalExamples, mask: Mask) -> LocalExamples:
    index = torch.from_numpy(np.flatnonzero(mask)).to(local.examples.labels.device)
    chosen = replace(local.examples, edge_label_index=None).select(index)
    if chosen.cell_index is None and local.examples.edge_label_index is None:
        chosen = replace(chosen, cell_index=(index,))
    return replace(local, examples=chosen, example_index=None)
