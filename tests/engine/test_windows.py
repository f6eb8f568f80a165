from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from strobe.engine.examples import training_examples
from strobe.engine.partitioned_graph import PartitionedGraph
from strobe.engine.windows import Segment, cut_windows
from strobe.tasks import Examples, Problem, Split
from strobe.tasks.base import Metrics
from strobe.view import WindowData
from tests.support.model_cases import CHANGING, with_inputs

CPU = torch.device("cpu")


class Asking(Problem):
    """Asks what a function of the snapshot says, on the changing graph: 4, 3, 0, 6, 4 and 6 cells."""

    metric, higher_is_better = "none", False

    def __init__(self, ask: Callable[[int, int | None], Examples | None], *, resampled: bool = False) -> None:
        self.graph = with_inputs(CHANGING.build())
        self.split = Split(range(4), range(4, 5), range(5, 6))
        self.ask, self.resamples_each_epoch = ask, resampled

    def head(self, width: int) -> nn.Module:
        return nn.Linear(width, 1)

    def examples(self, t: int, epoch: int | None = None) -> Examples | None:
        return self.ask(t, epoch)

    def unlabeled_examples(self, t: int) -> Examples | None:
        return self.ask(t, None)

    def loss(self, predictions: Tensor, examples: Examples) -> Tensor:
        return (predictions[:, 0] - examples.labels.to(predictions)).square().sum()

    def metrics(self, predictions: Sequence[Tensor], examples: Sequence[Examples]) -> Metrics:
        return {}

    def baselines(self, part: str) -> dict[str, Metrics]:
        return {}

    def table(self, predictions: Tensor, examples: Examples, t: int) -> dict[str, Any]:
        return {}

    def state(self) -> dict[str, Any]:
        return {}


def everybody(t: int, epoch: int | None) -> Examples | None:
    """Every cell, with ten times t plus its place."""
    cells = len(CHANGING.present(t))
    return Examples(None, 10.0 * t + torch.arange(float(cells))) if cells else None


def second(t: int, epoch: int | None) -> Examples | None:
    """The second cell of every snapshot that has one."""
    return Examples((torch.tensor([1]),), torch.tensor([float(t)])) if len(CHANGING.present(t)) > 1 else None


def segment(times: range, problem: Problem) -> Segment:
    return Segment(times, WindowData(problem.graph[times.start : times.stop]))


def examples(*question: Any) -> Examples:
    found = training_examples(*question)
    assert found is not None
    return found.examples


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 6), st.integers(0, 6), st.none() | st.integers(1, 8), st.none() | st.integers(1, 8))
def test_windows_and_segments_cover_the_times_once_in_order(a: int, b: int, size: int | None, part: int | None) -> None:
    times = range(min(a, b), max(a, b))
    problem = Asking(everybody)
    windows = cut_windows(PartitionedGraph(problem.graph), times, size, part)
    assert [t for window in windows for piece in window for t in piece.times] == list(times)
    sizes = [sum(len(piece.times) for piece in window) for window in windows]
    assert all(0 < found <= (size or len(times)) for found in sizes)
    assert sizes[:-1] == [size or len(times)] * len(sizes[:-1]), "only the last window may be short"
    for piece in (piece for window in windows for piece in window):
        assert 0 < len(piece.times) <= (part or len(times))
        assert piece.data.graph == problem.graph[piece.times.start : piece.times.stop]


def test_there_is_one_window_of_one_segment_by_default() -> None:
    ((only,),) = cut_windows(PartitionedGraph(Asking(everybody).graph), range(1, 5), None, None)
    assert only.times == range(1, 5)
    windows = cut_windows(PartitionedGraph(Asking(everybody).graph), range(6), 4, 3)
    assert [[piece.times for piece in window] for window in windows] == [[range(3), range(3, 4)], [range(4, 6)]]


def test_examples_of_all_cells_need_no_cell_index() -> None:
    problem = Asking(everybody)
    found = examples(problem, segment(range(4), problem), range(4), 0)
    assert found.cell_index is None
    assert found.labels.tolist() == [0, 1, 2, 3, 10, 11, 12, 30, 31, 32, 33, 34, 35]


def test_rows_count_over_the_whole_segment() -> None:
    problem = Asking(second)
    found = examples(problem, segment(range(1, 5), problem), range(6), 0)
    assert found.cell_index is not None
    assert [rows.tolist() for rows in found.cell_index] == [[1, 4, 10]]
    assert found.labels.tolist() == [1, 3, 4]


def test_snapshots_outside_the_part_have_no_examples() -> None:
    problem = Asking(everybody)
    piece = segment(range(2, 6), problem)
    found = examples(problem, piece, range(4, 5), None)
    assert found.cell_index is not None
    assert found.cell_index[0].tolist() == [6, 7, 8, 9]
    assert found.labels.tolist() == [40, 41, 42, 43]
    assert training_examples(problem, piece, range(2, 3)) is None
    assert training_examples(problem, piece, range(0)) is None


def test_examples_of_all_and_of_some_cells_join() -> None:
    problem = Asking(lambda t, epoch: everybody(t, epoch) if t == 0 else second(t, epoch))
    found = examples(problem, segment(range(2), problem), range(2), 0)
    assert found.cell_index is not None
    assert found.cell_index[0].tolist() == [0, 1, 2, 3, 5]
    assert found.labels.tolist() == [0, 1, 2, 3, 1]
