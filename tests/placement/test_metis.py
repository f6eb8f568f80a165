from __future__ import annotations

import sys

import numpy as np
import pytest

from strobe.errors import MissingPackageError
from strobe.graph import from_edges
from strobe.placement import Metis
from strobe.placement.loads import loads_of_ranks
from tests.support.graphs import AWKWARD
from tests.support.placement_cases import communities

pytest.importorskip("pymetis")


def test_communities_stay_together_through_time() -> None:
    graph = communities([5, 5, 5, 5], 3)
    of_node = Metis().place(graph, [], 4).node_owner
    assert [len(set(of_node[first : first + 5].tolist())) for first in range(0, 20, 5)] == [1, 1, 1, 1]
    assert len(set(of_node.tolist())) == 4


def test_an_edge_weighs_as_much_as_snapshots_have_it() -> None:
    # A ladder of ten rungs that are there once; its two rails are there eight times: to saw through them costs 16.
    rails = [(side + at, side + at + 1) for side in (0, 10) for at in range(9)]
    rungs = [(at, 10 + at) for at in range(10)]
    shots = [np.array(rails).T] * 8 + [np.array(rungs).T]
    of_node = Metis().place(from_edges(shots, num_nodes=20, directed=False), [], 2).node_owner
    assert len(set(of_node[:10].tolist())) == len(set(of_node[10:].tolist())) == 1
    assert of_node[0] != of_node[10]


def test_loads_are_even_over_all_time() -> None:
    random = np.random.default_rng(0)
    shots = [np.stack([random.integers(0, 500, 1500), random.integers(0, 500, 1500)]) for _ in range(4)]
    graph = from_edges(shots, num_nodes=500)
    of_ranks = loads_of_ranks(graph, Metis().place(graph, [], 5), [range(4)])
    assert of_ranks.max() < 1.05 * of_ranks.min()


def test_one_rank_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = AWKWARD["isolated nodes"].build()
    assert not Metis().place(graph, [], 1).node_owner.any()
    with pytest.raises(MissingPackageError):
        Metis().place(graph, [], 2)
