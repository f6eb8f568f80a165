"""Snapshots cut into windows (one optimiser step each) and segments (recomputed as one), with what is asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from strobe.engine.kept import KeptExamples
from strobe.tasks.base import Examples, Problem
from strobe.view import Cells


@dataclass(frozen=True)
class Segment:
    """Consecutive snapshots that are computed in one go: ``times`` of the graph, prepared as ``cells``."""

    times: range
    cells: Cells
    kept: KeptExamples = field(default_factory=KeptExamples, repr=False, compare=False)


Window = tuple[Segment, ...]


def cut(problem: Problem, times: range, size: int | None, segment: int | None, device: torch.device) -> list[Window]:
    """Windows of at most ``size`` snapshots over ``times``, in order, each of segments of at most ``segment``."""
    return list(stream(problem, times, size, segment, device))


def stream(
    problem: Problem, times: range, size: int | None, segment: int | None, device: torch.device
) -> Iterator[Window]:
    """The same windows one at a time: whoever does not keep them never holds more than one in memory."""
    kept = KeptExamples()
    for window in _pieces(times, size):
        yield tuple(
            Segment(part, Cells(problem.graph[part.start : part.stop], device=device), kept)
            for part in _pieces(window, segment)
        )


def asked(problem: Problem, segment: Segment, part: range, epoch: int | None = None) -> Examples | None:
    """What is asked of a segment's cells that belong to a part, joined; rows count over the whole segment.

    Made once where it is the same in every epoch.
    """

    def make() -> Examples | None:
        found = [
            (offset, examples)
            for t, offset in zip(segment.times, segment.cells.cell_ptr, strict=False)
            if t in part and (examples := problem.examples(t, epoch)) is not None
        ]
        return join(found, segment.cells.num_cells, segment.cells.device) if found else None

    if epoch is not None and problem.changes_with_epoch:
        return make()
    return segment.kept.get(problem, (segment.times, part), make)


def asked_at(problem: Problem, segment: Segment, t: int) -> Examples | None:
    """What is asked of one snapshot of a segment when it is scored: always the same, so made once."""
    return segment.kept.get(problem, t, lambda: problem.examples(t))


def prepare(problem: Problem, windows: Iterable[Window], part: range) -> Iterator[int]:
    """Makes ahead what passes over windows will need and can be made without a model; gives the snapshots done."""
    for window in windows:
        for segment in window:
            _ = segment.cells.x, segment.cells.sequences
            if part == problem.split.train and not problem.changes_with_epoch:
                asked(problem, segment, part, 0)
            elif part != problem.split.train:
                for t in segment.times:
                    asked_at(problem, segment, t)
            yield len(segment.times)


def join(found: list[tuple[int, Examples]], num_cells: int, device: torch.device) -> Examples:
    """Examples of several snapshots as one, given the number of cells before each snapshot."""
    y = torch.cat([examples.y for _, examples in found]).to(device)
    bases = [examples.base for _, examples in found if examples.base is not None]
    base = torch.cat(bases) if bases else None
    if all(examples.rows is None for _, examples in found) and len(y) == num_cells:
        return Examples(None, y, base)
    rows = [
        tuple(row + offset for row in examples.rows)
        if examples.rows is not None
        else (torch.arange(offset, offset + len(examples)),)
        for offset, examples in found
    ]
    return Examples(tuple(torch.cat(column).to(device) for column in zip(*rows, strict=True)), y, base)


def _pieces(times: range, size: int | None) -> Iterator[range]:
    step = size or max(len(times), 1)
    return (times[start : start + step] for start in range(0, len(times), step))
