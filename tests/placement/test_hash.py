from __future__ import annotations

import numpy as np

from strobe.placement import Hash
from tests.support.placement_cases import chain


def test_nodes_are_spread_evenly() -> None:
    of_node = Hash().place(chain([8000]), [], 8).node_owner
    counts = np.bincount(of_node, minlength=8)
    assert counts.min() > 900
    assert counts.max() < 1100


def test_owners_are_the_same_on_every_machine() -> None:
    graph = chain([8])
    assert Hash().place(graph, [], 4).node_owner.tolist() == Hash().place(graph, [range(1)], 4).node_owner.tolist()
    assert Hash().place(graph, [], 4, seed=0).node_owner.tolist() == [0, 1, 2, 0, 0, 0, 0, 0]
