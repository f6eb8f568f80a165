from __future__ import annotations

import numpy as np

from strobe.placement import Hash
from tests.placement.cases import chain


def test_nodes_are_spread_evenly() -> None:
    of_node = Hash().place(chain([8000]), [], 8).of_node
    counts = np.bincount(of_node, minlength=8)
    assert counts.min() > 900
    assert counts.max() < 1100


def test_owners_are_the_same_on_every_machine() -> None:
    graph = chain([8])
    assert Hash().place(graph, [], 4).of_node.tolist() == Hash().place(graph, [range(1)], 4).of_node.tolist()
    assert Hash().place(graph, [], 4, seed=0).of_node.tolist() == [0, 1, 2, 0, 0, 0, 0, 0]


def test_another_seed_gives_other_owners() -> None:
    graph = chain([100])
    assert Hash().place(graph, [], 4, seed=1).of_node.tolist() != Hash().place(graph, [], 4, seed=2).of_node.tolist()
