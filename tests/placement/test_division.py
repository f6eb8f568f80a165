from __future__ import annotations

import sys

import numpy as np
import pytest

from strobe.graph import DynamicGraph, from_edges
from strobe.ops.csr import IntArray
from strobe.placement.division import divided
from strobe.placement.loads import loads_of_cells
from tests.placement.cases import chain, communities

pytest.importorskip("pymetis")


def parts(graph: DynamicGraph, shares: list[float], slack: float = 0.0) -> IntArray:
    return divided(graph, 0, np.array(shares), slack)


def loads(graph: DynamicGraph, part: IntArray, num_parts: int) -> IntArray:
    return np.bincount(part, loads_of_cells(graph[0]), num_parts)


def star(num_leaves: int) -> DynamicGraph:
    edges = np.stack([np.zeros(num_leaves, np.int64), np.arange(1, num_leaves + 1)])
    return from_edges([edges], num_nodes=num_leaves + 1, directed=False)


@pytest.mark.parametrize(
    "shares", [[1.0, 1.0], [1.0, 3.0], [5.0, 1.0], [1.0, 2.0, 2.0, 1.0], [1.0, 8.0, 8.0, 8.0, 3.0]]
)
def test_every_part_has_its_share(shares: list[float]) -> None:
    random = np.random.default_rng(0)
    graph = from_edges([random.integers(0, 500, (2, 2000))], num_nodes=500)
    wanted = np.array(shares) / sum(shares)
    found = loads(graph, parts(graph, shares), len(shares))
    assert found / found.sum() == pytest.approx(wanted, abs=0.01)


def test_communities_stay_together() -> None:
    graph = communities([8] * 12, 1)
    for shares in ([1.0, 2.0], [3.0, 1.0], [1.0, 1.0, 1.0]):
        # A slack of half a node: those at the ends of the row have an edge less than others.
        part = parts(graph, shares, slack=12).reshape(12, 8)
        assert (part == part[:, :1]).all()


def test_a_hub_with_nearly_all_as_neighbours_leaves_loads_right() -> None:
    graph = star(3000)
    for shares in ([1.0, 9.0], [1.0, 1.0], [2.0, 5.0, 5.0, 1.0]):
        found = loads(graph, parts(graph, shares), len(shares))
        assert found / found.sum() == pytest.approx(np.array(shares) / sum(shares), abs=0.01)


def test_no_more_cells_than_parts_are_laid_end_to_end() -> None:
    assert parts(chain([2]), [1.0, 1.0]).tolist() == [0, 1]
    assert parts(chain([2]), [1.0, 5.0]).tolist() == [1, 1]
    assert parts(chain([1]), [1.0, 4.0, 1.0]).tolist() == [1]


def test_small_snapshots_are_divided_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        size = int(random.integers(1, 30))
        edges = random.integers(0, size, (2, int(random.integers(0, 60))))
        shares = random.random(int(random.integers(1, 7))) + 0.02
        part = parts(from_edges([edges], num_nodes=size, directed=False), shares.tolist())
        assert part.shape == (size,)
        assert 0 <= part.min() <= part.max() < shares.size
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


def test_without_the_package_cells_are_divided_by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    part = parts(chain([1000]), [1.0, 3.0])
    assert np.bincount(part).tolist() == [250, 750]
    assert len(set(part[:50].tolist())) == 2  # blind to the order of nodes
    assert parts(chain([1000]), [1.0, 3.0]).tolist() == part.tolist()
