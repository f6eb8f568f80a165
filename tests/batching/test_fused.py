from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from strobe.batching import Fused
from strobe.batching.fused import ChunkExtent, fuse_chunks
from strobe.comm import Ledger
from strobe.errors import OptionError
from strobe.ops.sparse.csr import IntArray
from strobe.placement import Chunks, Metis
from strobe.plan import Plan, PlanError


def test_fused_needs_chunks() -> None:
    Plan(placement=Chunks(), batching=Fused()).check(2)
    with pytest.raises(PlanError, match=r"batching fused .* needs chunks"):
        Plan(placement=Metis(), batching=Fused()).check(2)


def test_memory_is_in_mebibytes_and_with_window_sets_the_size() -> None:
    class Window:
        def run_in_chunks(self, cell_chunk: IntArray, memory_bytes: float, ledger: Ledger) -> None:
            assert memory_bytes == 2 * 2**20
            assert cell_chunk.tolist() == [0, 1]

    Fused(memory=2).structure_stage(Window(), lambda: np.arange(2), Ledger())
    assert Fused(memory=5).with_window(4) == Fused(memory=5, size=4)
    assert Fused(size=4).window == 4


@pytest.mark.parametrize(("options", "message"), [({"memory": -1.0}, "0 MiB"), ({"size": 0}, "at least 1 snapshot")])
def test_invalid_sizes_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Fused(**options)  # type: ignore[arg-type]


def by_loaded(extent: ChunkExtent) -> float:
    return float(extent.loaded)


def loads(*rows: list[int]) -> sp.csr_array:
    """The rows that every chunk loads."""
    ptr = np.cumsum([0, *map(len, rows)])
    cols = np.array([row for each in rows for row in each], np.int64)
    return sp.csr_array((np.ones(len(cols), np.int8), cols, ptr), shape=(len(rows), int(cols.max(initial=0)) + 1))


def fused(rows: sp.csr_array, budget: float) -> list[int]:
    ones = np.ones(rows.shape[0], np.int64)
    return [int(number) for number in fuse_chunks(rows, ones, ones, by_loaded, budget)]


@pytest.mark.parametrize(
    ("rows", "budget", "expected"),
    [
        ([[0, 1, 2, 3], [3, 4, 5, 6], [4, 5, 6, 7]], 6, [0, 1, 1]),  # the pair that shares most rows first
        ([[0, 1], [1, 2], [2, 3], [9]], 100, [0, 0, 0, 0]),
        ([[0, 1], [1, 2], [2, 3]], 0, [0, 1, 2]),
        ([[0, 1], list(range(50)), [1, 2]], 4, [0, 1, 0]),  # a chunk that does not fit stays alone
        ([[0, 1], [2, 3], [4, 5], [6, 7]], 4, [0, 0, 1, 1]),  # without shared rows, in order
        ([[0, 1, 2], [0, 1, 2], [0, 1, 2]], 3, [0, 0, 0]),  # shared rows count once
        ([], 10, []),
    ],
)
def test_fused_chunks(rows: list[list[int]], budget: float, expected: list[int]) -> None:
    assert fused(loads(*rows), budget) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=8, unique=True), min_size=1, max_size=12), st.data())
def test_no_fused_chunk_exceeds_the_budget(chunks: list[list[int]], data: st.DataObject) -> None:
    budget = data.draw(st.integers(0, 25))
    numbers = fused(loads(*map(sorted, chunks)), budget)
    assert sorted(set(numbers)) == list(range(max(numbers) + 1))
    for number in set(numbers):
        members = [chunk for chunk, at in zip(chunks, numbers, strict=True) if at == number]
        assert len(members) == 1 or len(set().union(*members)) <= budget
