"""Links of the next snapshot with as many non-links, split for a classifier as DySAT's code does.

Read from the authors' code (aravindsankar28/DySAT, ``utils/preprocess.py``) and, where it leaves a choice, from the
counts in their logs: a link of snapshot t + 1 is a positive if both ends are in snapshot t, once per pair, self-loops
included (their logs have 10 and 12 test links at the first two steps of Enron: 17 and 20 links, 16 and 18 without
self-loops). The pairs are drawn once per data set, so that all methods and seeds are scored on the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strobe.errors import InputError
from strobe.graph import DynamicGraph, Snapshot

Pairs = npt.NDArray[np.int64]
"""Node ids of both ends, [n, 2], the smaller first."""

FloatArray = npt.NDArray[np.float64]

VALIDATION_SHARE = 0.2
TEST_SHARE = 0.6
PARTS = ("train", "validation", "test")
SPLIT_SEED = 123
"""As in the authors' code; their numbers are not reproduced, because the generator is another."""
MIN_LINKS = 5
"""Fewest links of a step: one each to train and to validate the classifier."""


@dataclass(frozen=True, eq=False)
class LabeledPairs:
    """Links, then equally many non-links.

    Attributes:
        pairs: both ends, [n, 2].
        labels: 1 for links, 0 for non-links, [n].
    """

    pairs: Pairs
    labels: FloatArray


Step = Mapping[str, LabeledPairs]
"""Pairs of one time step by part: the classifier is trained on ``train``."""


def snapshot_links(snapshot: Snapshot) -> Pairs:
    """Return the links of a snapshot, each pair once, self-loops included, in ascending order."""
    ends = np.stack([snapshot.nodes[end] for end in snapshot.arcs()], axis=1).astype(np.int64)
    return np.unique(np.sort(ends, axis=1), axis=0)


def split_links(graph: DynamicGraph, t: int, *, seed: int = SPLIT_SEED) -> dict[str, LabeledPairs]:
    """Split the links of snapshot t + 1 between nodes of snapshot t: 20 % training, 20 % validation, 60 % test.

    Non-links are pairs of different nodes of snapshot t that have no link in snapshot t + 1, uniform, without
    repetition within a part.

    Raises:
        InputError: there are too few links or non-links.
    """
    nodes, following = graph[t].nodes.astype(np.int64), snapshot_links(graph[t + 1])
    links = following[np.isin(following, nodes).all(axis=1)]
    if len(links) < MIN_LINKS:
        raise InputError(
            f"snapshot {t + 1} has {len(links)} links between nodes of snapshot {t}; at least {MIN_LINKS} are needed"
        )
    rng = np.random.default_rng([seed, t])
    links = links[rng.permutation(len(links))]
    first = int(len(links) * VALIDATION_SHARE)
    second = first + int(len(links) * TEST_SHARE)
    parts = {"train": links[second:], "validation": links[:first], "test": links[first:second]}
    taken = following[:, 0] * graph.num_nodes + following[:, 1]
    _check_non_links(nodes, links, max(map(len, parts.values())), t)
    return {name: _with_non_links(parts[name], nodes, taken, graph.num_nodes, rng) for name in PARTS}


def _check_non_links(nodes: Pairs, links: Pairs, needed: int, t: int) -> None:
    free = len(nodes) * (len(nodes) - 1) // 2 - int((links[:, 0] != links[:, 1]).sum())
    if free < needed:
        raise InputError(f"snapshot {t} has {free} pairs of nodes without a link in the next one; {needed} are needed")


def _with_non_links(
    links: Pairs, nodes: Pairs, taken: npt.NDArray[np.int64], num_nodes: int, rng: np.random.Generator
) -> LabeledPairs:
    """Add as many non-links as there are links."""
    found = np.empty(0, np.int64)
    while len(found) < len(links):
        ends = np.sort(rng.choice(nodes, (len(links), 2)), axis=1)
        keys = ends[ends[:, 0] != ends[:, 1]] @ np.array([num_nodes, 1])
        keys = np.concatenate([found, keys[~np.isin(keys, taken)]])
        _, first = np.unique(keys, return_index=True)
        found = keys[np.sort(first)][: len(links)]
    pairs = np.concatenate([links, np.stack(np.divmod(found, num_nodes), axis=1)])
    return LabeledPairs(pairs, np.repeat([1.0, 0.0], len(links)))
