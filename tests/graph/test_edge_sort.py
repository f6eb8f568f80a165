from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.graph.edge_sort import EdgeSorter
from strobe.ops.sparse.csr import Parallel

Part = list[tuple[int, int, float]]

NUM_NODES = 6
node = st.integers(0, NUM_NODES - 1)
parts_of_edges = st.lists(st.lists(st.tuples(node, node, st.integers(0, 50).map(float)), max_size=8), max_size=6)
IN_MEMORY = 10**6


def _sorted(
    parts: list[Part], num_nodes: int = NUM_NODES, *, weighted: bool = True, **options: Any
) -> tuple[list[int], list[float] | None, list[list[int]]]:
    """Keys, weights, and the keys of each block."""
    given_options = {"directed": True, "self_loops": True, "parallel": "keep", **options}
    sorter = EdgeSorter(num_nodes, **given_options)
    for part in parts:
        src, dst, weight = (np.array([edge[i] for edge in part]) for i in range(3))
        sorter.add(src.astype(np.int64), dst.astype(np.int64), weight.astype(np.float32) if weighted else None)
    blocks = list(sorter.blocks())
    keys = [key.tolist() for key, _ in blocks]
    weights = None
    if blocks[0][1] is not None:
        weights = [float(w) for _, weight in blocks if weight is not None for w in weight]
    return list(itertools.chain(*keys)), weights, keys


def _reference(parts: list[Part], parallel: Parallel, *, directed: bool, self_loops: bool) -> list[tuple[int, float]]:
    """Sorted (key, weight), merged by a dictionary."""
    arcs: dict[int, list[float]] = {}
    for u, v, w in itertools.chain(*parts):
        if u == v and not self_loops:
            continue
        arcs.setdefault(v * NUM_NODES + u, []).append(w)
        if not directed and u != v:
            arcs.setdefault(u * NUM_NODES + v, []).append(w)
    merged = {
        key: {"keep": weights, "count": [float(len(weights))], "sum": [sum(weights)], "last": weights[-1:]}[parallel]
        for key, weights in arcs.items()
    }
    return [(key, weight) for key in sorted(merged) for weight in merged[key]]


@settings(deadline=None, max_examples=150)
@given(
    parts_of_edges,
    st.sampled_from(["keep", "count", "sum", "last"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2, 5, IN_MEMORY]),
)
def test_edges_come_out_sorted_and_merged_in_memory_and_through_the_disk(
    parts: list[Part], parallel: Parallel, directed: bool, self_loops: bool, run_arcs: int
) -> None:
    expected = _reference(parts, parallel, directed=directed, self_loops=self_loops)
    keys, weights, _ = _sorted(parts, directed=directed, self_loops=self_loops, parallel=parallel, run_arcs=run_arcs)
    assert keys == [key for key, _ in expected]
    assert (weights or []) == [weight for _, weight in expected]
    if parallel == "keep":
        options = {"directed": directed, "self_loops": self_loops, "run_arcs": run_arcs}
        assert _sorted(parts, weighted=False, **options)[:2] == (keys, None)


def _random_parts(rng: np.random.Generator, dst: np.ndarray[Any, Any], num_nodes: int, per_part: int) -> list[Part]:
    src = rng.integers(0, num_nodes, dst.size)
    edges = list(zip(src.tolist(), dst.tolist(), rng.integers(0, 99, dst.size).astype(float).tolist(), strict=True))
    return [edges[at : at + per_part] for at in range(0, len(edges), per_part)]


@pytest.mark.parametrize("skew", ["even", "one region", "one destination", "rising"])
def test_blocks_stay_near_half_a_run_and_split_no_destination_however_skewed(skew: str) -> None:
    rng, num_nodes, run_arcs = np.random.default_rng(0), 1000, 500
    dst = {
        "even": rng.integers(0, num_nodes, 5000),
        "one region": np.where(rng.random(5000) < 0.95, rng.integers(400, 450, 5000), rng.integers(0, num_nodes, 5000)),
        "one destination": np.where(rng.random(5000) < 0.9, 7, rng.integers(0, num_nodes, 5000)),
        "rising": np.sort(rng.integers(0, num_nodes, 5000)),
    }[skew]
    parts = _random_parts(rng, dst, num_nodes, 250)
    keys, weights, blocks = _sorted(parts, num_nodes, run_arcs=run_arcs)
    assert (keys, weights) == _sorted(parts, num_nodes)[:2]
    ends = [{key // num_nodes for key in block} for block in blocks if block]
    for first, second in itertools.pairwise(ends):
        assert max(first) < min(second)
    degree = np.bincount(dst, minlength=num_nodes).max()
    assert max(map(len, blocks)) <= run_arcs / 2 * 1.5 + degree


def test_runs_go_into_the_scratch_directory_and_are_gone_after_the_last_block(tmp_path: Path) -> None:
    sorter = EdgeSorter(9, directed=True, self_loops=True, parallel="keep", scratch_dir=tmp_path, run_arcs=2)
    for part in range(4):
        sorter.add(np.arange(3), np.arange(3) + part, np.ones(3, np.float32))
    assert any(tmp_path.iterdir())
    assert sum(key.size for key, _ in sorter.blocks()) == 12
    assert not any(tmp_path.iterdir())
    sorter.add(np.arange(3), np.arange(3), None)
    assert any(tmp_path.iterdir())
    sorter.close()  # never read
    assert not any(tmp_path.iterdir())


def test_keys_of_more_than_46340_nodes_do_not_overflow_32_bits() -> None:
    largest = 60_000 - 1
    for run_arcs in (1, IN_MEMORY):
        sorter = EdgeSorter(60_000, directed=False, self_loops=True, parallel="keep", run_arcs=run_arcs)
        sorter.add(np.array([largest, 0], np.int32), np.array([largest - 1, largest], np.int32), None)
        keys = np.concatenate([key for key, _ in sorter.blocks()])
        expected = [largest, (largest - 1) * 60_000 + largest, largest * 60_000, largest * 60_000 + largest - 1]
        assert keys.tolist() == expected


def test_a_sorter_without_edges_gives_one_empty_block() -> None:
    assert _sorted([], 0) == ([], None, [[]])
