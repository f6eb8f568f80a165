from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from strobe.errors import MissingPackageError
from strobe.ops.csr import IntArray
from strobe.placement.partition import bisections, partition
from strobe.placement.union import links
from tests.placement.cases import communities

pytest.importorskip("pymetis")


def no_links(size: int) -> sp.csr_array:
    return sp.csr_array((size, size), dtype=np.int32)


def sums(part: IntArray, loads: IntArray, num_parts: int) -> list[int]:
    return [int(load) for load in np.bincount(part, loads, num_parts)]


def test_communities_stay_together() -> None:
    part = partition(links(communities([6, 6, 6], 1)[0]), np.ones(18, np.int64), 3)
    assert [len(set(part[first : first + 6].tolist())) for first in (0, 6, 12)] == [1, 1, 1]
    assert len(set(part.tolist())) == 3


def test_parts_have_even_loads() -> None:
    loads = np.random.default_rng(0).integers(1, 100, 1000)
    found = sums(partition(no_links(1000), loads, 7), loads, 7)
    assert max(found) < 1.05 * min(found)


def test_loads_whose_sum_does_not_fit_into_32_bits_are_even_all_the_same() -> None:
    loads = np.random.default_rng(0).integers(1, 100, 1000) * 10**9
    found = sums(partition(no_links(1000), loads, 4), loads, 4)
    assert max(found) < 1.05 * min(found)


def test_a_node_that_fills_a_part_has_one_to_itself_and_the_others_share_the_rest() -> None:
    loads = np.array([1000, *[1] * 30])
    found = sorted(sums(partition(no_links(31), loads, 4), loads, 4))
    assert found == [10, 10, 10, 1000]


def test_fewer_nodes_than_parts_have_one_each() -> None:
    assert sorted(partition(no_links(3), np.array([5, 1, 2]), 8).tolist()) == [0, 1, 2]
    assert partition(no_links(0), np.zeros(0, np.int64), 4).tolist() == []


def test_one_part_holds_all() -> None:
    assert partition(no_links(3), np.array([5, 1, 2]), 1).tolist() == [0, 0, 0]


def test_bisections_have_the_share_asked_for() -> None:
    loads = np.random.default_rng(0).integers(1, 100, 1000)
    for share in (0.1, 0.5, 0.8):
        for half in bisections(no_links(1000), loads, share):
            assert abs(sums(half, loads, 2)[0] / loads.sum() - share) < 0.03


def test_bisections_keep_communities_together() -> None:
    for half in bisections(links(communities([6, 6, 6], 1)[0]), np.ones(18, np.int64), 1 / 3):
        assert sorted(half.reshape(3, 6).sum(1).tolist()) == [0, 6, 6]


def test_small_graphs_are_cut_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(1)
    for num_parts in (2, 3, 7, 16):
        for size in range(num_parts + 1, 3 * num_parts):
            part = partition(no_links(size), (random.pareto(1, size) * 10).astype(np.int64) + 1, num_parts)
            assert part.shape == (size,)
            assert part.max() < num_parts
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(MissingPackageError, match="pip install pymetis"):
        partition(no_links(3), np.ones(3, np.int64), 2)
    with pytest.raises(MissingPackageError, match="pip install pymetis"):
        bisections(no_links(3), np.ones(3, np.int64), 0.5)
