"""Cells that leave the device and come back: the same bits in the same tensors, and never more than two at once."""

from __future__ import annotations

import gc

import pytest
import torch

from strobe.view import WindowData
from strobe.view.offload import OffloadedWindows
from tests.support.runs import small_graph

CPU = torch.device("cpu")
GRAPH = small_graph()


def made(offloaded: OffloadedWindows, first: int) -> WindowData:
    """Cells of two snapshots, with all that a convolution asks of them."""
    cells = WindowData(GRAPH[first : first + 2])
    cells.offloaded = offloaded
    cells.prefetch()
    cells.aggregate_input(cells.x, "gcn")
    return cells


def held(cells: WindowData) -> int:
    """Bytes of the features and their aggregate that are there."""
    return sum(x.untyped_storage().nbytes() for x in (cells.x, cells._aggregates[("gcn",)]))


@pytest.fixture
def offloaded() -> OffloadedWindows:
    return OffloadedWindows(CPU)


def test_offloaded_tensors_return_bit_identical_in_the_same_objects(offloaded: OffloadedWindows) -> None:
    cells = made(offloaded, 0)
    x, part, aggregate = cells.x, cells.x[3:5, :1], cells.aggregate_input(cells.x, "gcn")
    before, versions = [each.clone() for each in (x, part, aggregate)], (x._version, aggregate._version)
    made(offloaded, 2)
    assert held(cells) == 0
    assert offloaded.host_bytes == x.nbytes + aggregate.nbytes
    cells.prefetch()
    assert cells.x is x
    assert cells.aggregate_input(x, "gcn") is aggregate
    assert all(torch.equal(now, then) for now, then in zip((x, part, aggregate), before, strict=True))
    assert (x._version, aggregate._version) == versions, "autograd does not take it for a change"


def test_tensors_made_after_the_first_eviction_are_offloaded_too(offloaded: OffloadedWindows) -> None:
    cells, other = made(offloaded, 0), made(offloaded, 2)
    cells.prefetch()
    twice = cells.aggregate_input(cells.aggregate_input(cells.x, "gcn"), "gcn")
    before = twice.clone()
    other.prefetch()
    made(offloaded, 4)
    assert twice.untyped_storage().nbytes() == 0
    cells.prefetch()
    assert torch.equal(twice, before)


def test_successor_of_the_last_epoch_is_prefetched(offloaded: OffloadedWindows) -> None:
    windows = [made(offloaded, first) for first in (0, 2, 4, 6)]
    sizes = [8 * 2 * len(cells.x) for cells in windows]
    for epoch in range(3):
        for k, cells in enumerate(windows):
            cells.prefetch()
            there = [held(each) > 0 for each in windows]
            if epoch:
                assert there == [each in (k, (k + 1) % 4) for each in range(4)]
                assert offloaded.device_bytes <= sum(sorted(sizes)[-2:])
            else:
                assert there[k]
                assert sum(there) <= 2


def test_training_backward_and_evaluation_have_their_own_successors(offloaded: OffloadedWindows) -> None:
    first, second, third, other = (made(offloaded, k) for k in (0, 2, 4, 6))
    for _ in range(2):
        for cells in (first, second, third, third, second, first):  # forward, then backward
            cells.prefetch()
        with torch.no_grad():
            for cells in (first, second, third, other):
                cells.prefetch()
    first.prefetch()
    for cells, follower in ((second, third), (third, third), (third, second), (second, first)):
        cells.prefetch()
        assert held(follower)
    first.prefetch()
    with torch.no_grad():
        for cells, follower in ((first, second), (second, third), (third, other)):
            cells.prefetch()
            assert held(follower)


def test_related_objects_are_offloaded_with_their_window(offloaded: OffloadedWindows) -> None:
    cells, related = made(offloaded, 0), [{"y": torch.arange(5)}]
    cells.prefetch(related)
    cells.prefetch(related)
    made(offloaded, 2)
    assert related[0]["y"].untyped_storage().nbytes() == 0
    cells.prefetch(related)
    assert torch.equal(related[0]["y"], torch.arange(5))


def test_shared_memory_stays_while_one_of_its_windows_is_resident(offloaded: OffloadedWindows) -> None:
    shared = torch.arange(5)
    first, second = made(offloaded, 0), made(offloaded, 2)
    for cells in (first, second, first, second):
        cells.prefetch([shared])
        assert torch.equal(shared, torch.arange(5))


def test_state_that_shares_memory_with_inputs_survives_eviction(offloaded: OffloadedWindows) -> None:
    cells = made(offloaded, 0)
    own, other = cells.x[:3], torch.ones(2)
    keep = offloaded.clone_if_shared(cells)
    assert keep(other) is other
    kept, before = keep(own), own.clone()
    made(offloaded, 2)
    assert torch.equal(kept, before)


def test_unreferenced_windows_are_released(offloaded: OffloadedWindows) -> None:
    for first in (0, 2, 4):
        made(offloaded, first)
    gc.collect()
    assert len(offloaded._tensors) == 1
