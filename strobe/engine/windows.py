"""Snapshots cut into windows (one optimiser step each) and segments (recomputed as one), with what is asked of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from strobe.tasks.base import Examples, Problem
from strobe.view import Cells


@dataclass(frozen=True)
class Segment:
    """Consecutive snapshots that are computed in one go: ``times`` of the graph, prepared as ``cells``."""

    times: range
    cells: Cells


Window = tuple[Segment, ...]


def cut(problem: Problem, times: range, size: int | None, segment: int | None, device: torch.device) -> list[Window]:
    """Windows of at most ``size`` snapshots over ``times``, in order, each of segments of at most ``segment``."""
    return [
        tuple(
            Segment(part, Cells(problem.graph[part.start : part.stop], device=device))
            for part in _pieces(window, segment)
        )
        for window in _pieces(times, size)
    ]


def asked(problem: Problem, segment: Segment, part: range, epoch: int | None = None) -> Examples | None:
    """What is asked of a segment's cells that belong to a part, joined; rows count over the whole segment."""
    found = [
        (offset, examples)
        for t, offset in zip(segment.times, segment.cells.cell_ptr, strict=False)
        if t in part and (examples := problem.examples(t, epoch)) is not None
    ]
    return join(found, segment.cells.num_cells, segment.cells.device) if found else None


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
