"""Cells that leave the device and come back: the same bits in the same tensors, and never more than two at once."""

from __future__ import annotations

import gc

import pytest
import torch

from strobe.view import Cells
from strobe.view.streamed import Streamed
from tests.engine.runs import small_graph

CPU = torch.device("cpu")
GRAPH = small_graph()


def made(streamed: Streamed, first: int) -> Cells:
    """Cells of two snapshots, with all that a convolution asks of them."""
    cells = Cells(GRAPH[first : first + 2])
    cells.streamed = streamed
    cells.arrive()
    cells.aggregated_input(cells.x, "gcn")
    return cells


def held(cells: Cells) -> int:
    """Bytes of the features and their aggregate that are there."""
    return sum(x.untyped_storage().nbytes() for x in (cells.x, cells._aggregates[("gcn",)]))


@pytest.fixture
def streamed() -> Streamed:
    return Streamed(CPU)


def test_what_has_left_comes_back_with_the_same_bits_in_the_same_tensors(streamed: Streamed) -> None:
    cells = made(streamed, 0)
    x, part, aggregate = cells.x, cells.x[3:5, :1], cells.aggregated_input(cells.x, "gcn")
    before, versions = [each.clone() for each in (x, part, aggregate)], (x._version, aggregate._version)
    made(streamed, 2)
    assert held(cells) == 0
    assert streamed.host_bytes == x.nbytes + aggregate.nbytes
    cells.arrive()
    assert cells.x is x
    assert cells.aggregated_input(x, "gcn") is aggregate
    assert all(torch.equal(now, then) for now, then in zip((x, part, aggregate), before, strict=True))
    assert (x._version, aggregate._version) == versions, "autograd does not take it for a change"


def test_what_is_made_after_the_first_stay_travels_with_the_rest(streamed: Streamed) -> None:
    cells, other = made(streamed, 0), made(streamed, 2)
    cells.arrive()
    twice = cells.aggregated_input(cells.aggregated_input(cells.x, "gcn"), "gcn")
    before = twice.clone()
    other.arrive()
    made(streamed, 4)
    assert twice.untyped_storage().nbytes() == 0
    cells.arrive()
    assert torch.equal(twice, before)


def test_who_followed_last_time_is_there_before_it_is_asked_for_and_nobody_else(streamed: Streamed) -> None:
    windows = [made(streamed, first) for first in (0, 2, 4, 6)]
    sizes = [8 * 2 * len(cells.x) for cells in windows]
    for epoch in range(3):
        for k, cells in enumerate(windows):
            cells.arrive()
            there = [held(each) > 0 for each in windows]
            if epoch:
                assert there == [each in (k, (k + 1) % 4) for each in range(4)]
                assert streamed.device_bytes <= sum(sorted(sizes)[-2:])
            else:
                assert there[k]
                assert sum(there) <= 2


def test_the_way_there_the_way_back_and_evaluation_are_told_apart(streamed: Streamed) -> None:
    first, second, third, other = (made(streamed, k) for k in (0, 2, 4, 6))
    for _ in range(2):
        for cells in (
            first,
            second,
            third,
            third,
            second,
            first,
        ):  # segments, then again on the way back
            cells.arrive()
        with torch.no_grad():
            for cells in (first, second, third, other):
                cells.arrive()
    first.arrive()
    for cells, follower in ((second, third), (third, third), (third, second), (second, first)):
        cells.arrive()
        assert held(follower)
    first.arrive()
    with torch.no_grad():
        for cells, follower in ((first, second), (second, third), (third, other)):
            cells.arrive()
            assert held(follower)


def test_what_stands_beside_cells_comes_and_goes_with_them(streamed: Streamed) -> None:
    cells, beside = made(streamed, 0), [{"y": torch.arange(5)}]
    cells.arrive(beside)
    cells.arrive(beside)
    made(streamed, 2)
    assert beside[0]["y"].untyped_storage().nbytes() == 0
    cells.arrive(beside)
    assert torch.equal(beside[0]["y"], torch.arange(5))


def test_memory_that_two_share_stays_while_one_of_them_is_there(streamed: Streamed) -> None:
    shared = torch.arange(5)
    first, second = made(streamed, 0), made(streamed, 2)
    for cells in (first, second, first, second):
        cells.arrive([shared])
        assert torch.equal(shared, torch.arange(5))


def test_a_state_that_is_the_input_itself_outlives_the_stay(streamed: Streamed) -> None:
    cells = made(streamed, 0)
    own, other = cells.x[:3], torch.ones(2)
    keep = streamed.outlives(cells)
    assert keep(other) is other
    kept, before = keep(own), own.clone()
    made(streamed, 2)
    assert torch.equal(kept, before)


def test_cells_that_nobody_needs_any_more_are_forgotten(streamed: Streamed) -> None:
    for first in (0, 2, 4):
        made(streamed, first)
    gc.collect()
    assert len(streamed._known) == 1
