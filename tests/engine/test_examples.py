from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strobe.comm import Comm
from strobe.engine.example_cache import ByteBudget, ExampleCache
from strobe.engine.examples import (
    LocalExamples,
    evaluation_examples,
    join_examples,
    training_examples,
)
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.engine.windows import Segment
from strobe.placement import Partition
from strobe.tasks import Examples, Problem, make_task
from strobe.view import WindowData
from tests.engine.test_windows import Asking, everybody, second
from tests.support.model_cases import CHANGING
from tests.support.partitions import among_threads, one_of
from tests.support.ranks import as_threads
from tests.support.runs import small_graph

CPU = torch.device("cpu")
CELLS = [4, 3, 0, 6, 4, 6]  # of the graph that is asked about
FIRST = np.cumsum([0, *CELLS]).tolist()
sparing = among_threads(40)


@st.composite
def questions(draw: st.DrawFn, /) -> list[Examples | None]:
    """What is asked of each snapshot: nothing, all cells or some of them. All examples have numbers as y. Pairs are
    tested in tests/view/test_pair_ends.py."""
    based = draw(st.booleans())
    found: list[Examples | None] = []
    for t, cells in enumerate(CELLS):
        how = draw(st.sampled_from(["nothing", "all", "some"]))
        if how == "nothing" or not cells:
            found.append(None)
            continue
        chosen = draw(st.lists(st.integers(0, cells - 1), min_size=1, max_size=6))
        number = cells if how == "all" else len(chosen)
        y = 100.0 * t + torch.arange(float(number))
        found.append(Examples(None if how == "all" else (torch.tensor(chosen),), y, y / 2 if based else None))
    return found


@st.composite
def placements(draw: st.DrawFn, /) -> Partition:
    num_ranks = draw(st.integers(2, 3))
    graph = CHANGING.build()
    if draw(st.booleans()):
        of_snapshot = draw(st.lists(st.integers(0, num_ranks - 1), min_size=6, max_size=6))
        return Partition.by_snapshot(num_ranks, np.array(of_snapshot), 6).with_sequence_owner(graph)
    of_cell = draw(st.lists(st.integers(0, num_ranks - 1), min_size=FIRST[-1], max_size=FIRST[-1]))
    return Partition.by_cell(num_ranks, np.array(of_cell), graph).with_sequence_owner(graph)


@dataclass(frozen=True)
class ReadExamples:
    """The examples of a rank: y and base of each, the numbers of the cells it reads, and which ones they are."""

    y: list[float]
    base: list[float] | None
    cells: list[tuple[int, ...]]
    at: list[int] | None


def numbers_of(share: Any) -> Tensor:
    """The numbers of a share's cells among all of the graph."""
    starts = [FIRST[t] for t in share.owners.times]
    own = [start + rows for start, rows in zip(starts, share.own, strict=True)]
    return torch.from_numpy(np.concatenate([np.empty(0, np.int64), *own]))


def read_examples(local: LocalExamples, numbers: Tensor) -> ReadExamples:
    """Cells tell their numbers: this is what examples read."""
    z = numbers.double()[:, None]
    examples = local.examples
    rows = (torch.arange(len(examples)),) if examples.cell_index is None else examples.cell_index
    cells = list(zip(*([int(number) for number in z[row, 0]] for row in rows), strict=True))
    base = None if examples.offset is None else examples.offset.tolist()
    return ReadExamples(
        examples.labels.tolist(),
        base,
        cells,
        None if local.example_index is None else local.example_index.tolist(),
    )


def whole(found: list[Examples | None], times: range) -> list[tuple[float, float | None, tuple[int, ...]]]:
    """(y, base, cells) of all examples in order, as one rank would be asked them."""
    listed = []
    for t in times:
        examples = found[t]
        if examples is None:
            continue
        rows = (torch.arange(len(examples)),) if examples.cell_index is None else examples.cell_index
        for k in range(len(examples)):
            base = None if examples.offset is None else float(examples.offset[k])
            listed.append((float(examples.labels[k]), base, tuple(FIRST[t] + int(row[k]) for row in rows)))
    return listed


def listed(each: ReadExamples) -> list[tuple[float, float | None, tuple[int, ...]]]:
    bases = [None] * len(each.y) if each.base is None else each.base
    return list(zip(each.y, bases, each.cells, strict=True))


def owner_of(placed: Partition, graph: Any) -> list[int]:
    return [int(who) for t in range(6) for who in placed.owners(graph, t)]


@sparing
@given(questions(), placements(), st.integers(0, 3), st.integers(4, 6))
def test_every_example_belongs_to_the_rank_of_its_first_cell(
    found: list[Examples | None], placed: Partition, start: int, stop: int
) -> None:
    problem = Asking(lambda t, epoch: found[t])
    times, part = range(start, stop), range(1, 6)

    def work(comm: Comm) -> ReadExamples | None:
        sharing = PartitionedGraph(problem.graph, None, comm, placed, dtype=torch.float64)
        segment = Segment(times, sharing.window_data(times))
        local = training_examples(problem, segment, part, 0)
        if local is None:
            return None
        return read_examples(local, numbers_of(segment.data.local_partition))

    owners = owner_of(placed, problem.graph)
    everyone = as_threads(work, placed.num_ranks)
    for rank, each in enumerate(everyone):
        if each is not None:
            assert all(owners[cells[0]] == rank for cells in each.cells)
            assert each.y == sorted(each.y), "in the order in which they are asked"
    together = sorted(example for each in everyone if each is not None for example in listed(each))
    assert together == whole(found, range(max(start, 1), stop))


@sparing
@given(questions(), placements())
def test_evaluation_examples_have_their_index_in_the_snapshot(found: list[Examples | None], placed: Partition) -> None:
    problem = Asking(lambda t, epoch: found[t])

    def work(comm: Comm) -> list[ReadExamples | None]:
        sharing = PartitionedGraph(problem.graph, None, comm, placed, dtype=torch.float64)
        segment = Segment(range(1, 6), sharing.window_data(range(1, 6)))
        share = segment.data.local_partition
        ranked: list[ReadExamples | None] = []
        assert share is not None
        for k, t in enumerate(segment.times):
            (local,) = evaluation_examples(problem, segment, [t])
            assert (local is None) == (found[t] is None or not len(share.own[k]))
            if local is None:
                ranked.append(None)
                continue
            numbers = torch.from_numpy(FIRST[t] + share.own[k])
            ranked.append(read_examples(local, numbers))
        return ranked

    everyone = as_threads(work, placed.num_ranks)
    for k, t in enumerate(range(1, 6)):
        expected = whole(found, range(t, t + 1))
        seen: list[int] = []
        for each in (ranked[k] for ranked in everyone):
            if each is not None:
                assert each.at is not None
                assert listed(each) == [expected[at] for at in each.at]
                seen += each.at
        assert sorted(seen) == list(range(len(expected)))


# One rank's, and what concerns only it.


def shared_segment(problem: Problem, rank: int, **options: Any) -> Segment:
    placed = Partition.by_cell(2, np.arange(23) % 2, problem.graph).with_sequence_owner(problem.graph)
    return Segment(
        range(6), PartitionedGraph(problem.graph, None, one_of(rank, 2), placed).window_data(range(6)), **options
    )


def test_one_rank_has_all_examples() -> None:
    problem = Asking(everybody)
    segment = Segment(range(6), WindowData(problem.graph))
    empty, local = evaluation_examples(problem, segment, [2, 3])
    assert empty is None
    assert local is not None
    assert local.examples.labels.tolist() == [30, 31, 32, 33, 34, 35]
    assert (local.examples.cell_index, local.slots, local.example_index) == (None, None, None)
    everything = training_examples(problem, segment, range(6))
    assert everything is not None
    assert (len(everything), everything.slots, everything.example_index) == (23, None, None)


@pytest.mark.parametrize(("task", "reads_base"), [("regression", False), ("link-prediction", True)])
def test_training_and_evaluation_examples_hold_no_more_than_is_read(task: str, reads_base: bool) -> None:
    problem = make_task(task).bind(small_graph())
    segment = Segment(range(4), WindowData(problem.graph[:4]))
    learnt, (judged,) = training_examples(problem, segment, range(4), 0), evaluation_examples(problem, segment, [1])
    assert learnt is not None
    assert judged is not None
    assert learnt.examples.labels.dtype == torch.float32
    assert judged.examples.labels.dtype == problem.examples(1).labels.dtype  # type: ignore[union-attr]
    for each in (learnt, judged):
        assert (each.examples.offset is not None) == reads_base


def test_windows_share_the_room_for_their_examples() -> None:
    problem, size = Asking(everybody), 6 * 4
    room = ByteBudget(2 * size - 1)
    first, second = (Segment(range(6), WindowData(problem.graph), ExampleCache(room)) for _ in range(2))
    (one,), (other,) = (evaluation_examples(problem, first, [3]) for _ in range(2))
    assert one is other
    assert room.left == size - 1
    (one,), (other,) = (evaluation_examples(problem, second, [3]) for _ in range(2))
    assert one is not other


@pytest.mark.parametrize("shared", [True, False])
def test_only_target_snapshots_have_examples(shared: bool) -> None:
    problem = Asking(everybody)
    segment = shared_segment(problem, 0) if shared else Segment(range(6), WindowData(problem.graph))
    local = training_examples(
        problem, replace(segment, target_times=range(3, 5), example_cache=ExampleCache()), range(4), 0
    )
    assert local is not None
    assert {int(y) // 10 for y in local.examples.labels.tolist()} == {3}
    assert (
        training_examples(
            problem, replace(segment, target_times=range(5, 6), example_cache=ExampleCache()), range(4), 0
        )
        is None
    )


def test_only_target_nodes_have_examples_on_any_rank() -> None:
    problem = Asking(everybody)
    targets = np.array([False, True, False, True, False, False])
    found = []
    for rank in range(2):
        local = training_examples(problem, shared_segment(problem, rank, target_mask=targets), range(6), 0)
        assert local is not None
        found += local.examples.labels.tolist()
    expected = [10 * t + k for t in range(6) for k, v in enumerate(CHANGING.present(t)) if v in (1, 3)]
    assert sorted(found) == expected


def test_a_rank_without_target_cells_has_no_examples() -> None:
    problem = Asking(second)
    placed = Partition.by_snapshot(2, np.array([0, 0, 0, 1, 1, 1]), 6).with_sequence_owner(problem.graph)
    for rank, answered in ((0, True), (1, False)):
        cells = PartitionedGraph(problem.graph, None, one_of(rank, 2), placed).window_data(range(6))
        segment = Segment(range(6), cells)
        assert (training_examples(problem, segment, range(3), 0) is not None) == answered
        assert [local is not None for local in evaluation_examples(problem, segment, [1])] == [answered]


class Pairing(Asking):
    """Asks for pairs of nodes."""

    is_edge_level = True


def test_a_rank_without_examples_still_sends_the_rows_of_pairs() -> None:
    """It scores nothing itself, but others' pairs end in its cells: 0 and 2 are rank 0's, 1 and 4 are rank 1's."""
    pair = Examples(None, torch.tensor([1.0, 0.0]), edge_label_index=torch.tensor([[0, 2], [1, 4]]))
    problem = Pairing(lambda t, epoch: pair if t == 0 else None)
    local = training_examples(problem, shared_segment(problem, 1), range(6), 0)
    assert local is not None
    assert len(local) == 0
    assert local.route is not None
    assert {to: rows.tolist() for to, rows in local.route.send.items()} == {0: [0, 1]}


def test_pairs_of_all_snapshots_are_joined_and_described_by_the_rank_that_scores_them() -> None:
    pairs = {
        t: Examples(None, torch.tensor([10.0 * t, 10.0 * t + 1]), edge_label_index=torch.tensor([[0, 1], [3, 0]]))
        for t in (0, 3)
    }
    described: list[tuple[int, int]] = []

    class Describing(Pairing):
        def describe_pairs(self, t: int, pairs: Examples) -> Examples:
            described.append((t, len(pairs)))
            return replace(pairs, offset=pairs.labels / 2)

    problem = Describing(lambda t, epoch: pairs.get(t))
    labels: list[float] = []
    for rank in range(2):
        local = training_examples(problem, shared_segment(problem, rank), range(6), 0)
        assert local is not None
        assert local.examples.offset is not None
        assert (local.examples.offset * 2).tolist() == local.examples.labels.tolist()
        labels += local.examples.labels.tolist()
    assert sorted(labels) == [0, 1, 30, 31]
    assert sum(count for _, count in described) == 4


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("resampled", [True, False])
def test_examples_are_made_once_unless_every_epoch_has_its_own(shared: bool, resampled: bool) -> None:
    calls: list[tuple[int, int | None]] = []

    def noted(t: int, epoch: int | None) -> Examples | None:
        calls.append((t, epoch))
        return second(t, epoch)

    problem = Asking(noted, resampled=resampled)
    segment = shared_segment(problem, 0) if shared else Segment(range(6), WindowData(problem.graph))
    with_cells = [t for t in range(4) if CELLS[t] or not shared]
    for epoch in (0, 1):
        training_examples(problem, segment, range(4), epoch)
    assert calls == [(t, epoch) for epoch in (0, 1) for t in with_cells if resampled or epoch == 0]
    calls.clear()
    for _ in range(2):
        training_examples(problem, segment, range(4), None)
        list(evaluation_examples(problem, segment, [0]))
    assert calls == [*([(t, None) for t in with_cells] if resampled else []), (0, None)]


def test_what_examples_take_is_counted() -> None:
    rows, y = (torch.zeros(5, dtype=torch.int64),) * 2, torch.zeros(5)
    assert LocalExamples(Examples(rows, y)).nbytes == 2 * 40 + 20
    assert LocalExamples(Examples(None, y, torch.zeros(5, 2, dtype=torch.float64))).nbytes == 20 + 80


def test_joined_examples_need_no_rows_only_if_they_are_all_cells() -> None:
    examples = Examples(None, torch.tensor([1.0, 2.0]))
    assert join_examples([(0, examples), (2, examples)], 4, CPU).cell_index is None
    some = join_examples([(1, examples), (3, examples)], 5, CPU).cell_index
    assert some is not None
    assert some[0].tolist() == [1, 2, 3, 4]
