"""Passes of a model over windows: the loss of a step, and the answers for snapshots that are to be scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from strobe.engine.windows import Segment, Window, asked, asked_at
from strobe.tasks.base import Examples, Problem
from strobe.view import Carry, Cells, View

Answer = tuple[int, Tensor, Examples]


def answers_of(head: nn.Module, z: Tensor, examples: Examples) -> Tensor:
    """What the head says about the examples, from the embeddings of all cells."""
    said: Tensor = head(z, *(examples.rows or ()))
    return said


def window_loss(
    model: nn.Module, head: nn.Module, problem: Problem, window: Window, carry: Carry | None, epoch: int
) -> tuple[Tensor, int, Carry | None]:
    """The summed loss of a window, the number of its examples, and the carry after it.

    A window of several segments computes each again in backward: what is kept of it is the state at its beginning.
    """
    total, count = torch.zeros((), device=window[0].cells.device), 0
    for segment in window:
        examples = asked(problem, segment, problem.split.train, epoch)

        def run(carry: Carry | None, cells: Cells = segment.cells, examples: Examples | None = examples) -> Any:
            view = View(cells, carry)
            z = model(view)
            loss = z.new_zeros(()) if examples is None else problem.loss(answers_of(head, z, examples), examples)
            return loss, view.carry

        recompute = len(window) > 1 and torch.is_grad_enabled()
        loss, carry = checkpoint(run, carry, use_reentrant=False) if recompute else run(carry)
        total = total + loss
        count += 0 if examples is None else len(examples)
    return total, count, carry


@torch.no_grad()
def embeddings(model: nn.Module, windows: Iterable[Window]) -> Iterator[tuple[int, Tensor, Segment]]:
    """(t, embeddings of its cells, its segment) of every snapshot, with the state carried from the first window on."""
    carry: Carry | None = None
    for window in windows:
        for segment in window:
            view = View(segment.cells, carry)
            z = view.split(model(view))
            carry = view.carry
            yield from ((t, rows, segment) for t, rows in zip(segment.times, z, strict=True))


@torch.no_grad()
def answers(
    model: nn.Module, head: nn.Module, problem: Problem, windows: Iterable[Window], part: range
) -> Iterator[Answer]:
    """(t, answers, examples) of every snapshot of a part; windows begin with the first snapshot of all."""
    for t, z, segment in embeddings(model, windows):
        examples = asked_at(problem, segment, t) if t in part else None
        if examples is not None:
            yield t, answer(head, z, examples), examples


@torch.no_grad()
def answer(head: nn.Module, z: Tensor, examples: Examples) -> Tensor:
    """What the head says about examples of one snapshot, from its embeddings; on the CPU, where it is scored."""
    return answers_of(head, z, replace(examples, rows=_to(examples.rows, z.device))).cpu()


def detached(carry: Any) -> Any:
    """The same nest of lists, tuples and dictionaries with every tensor cut from its history."""
    return mapped(carry, Tensor.detach)


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A nest with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mapped(item, change) for item in value)
    return value


def _to(rows: tuple[Tensor, ...] | None, device: torch.device) -> tuple[Tensor, ...] | None:
    return None if rows is None else tuple(row.to(device) for row in rows)
