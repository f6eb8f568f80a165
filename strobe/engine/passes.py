"""Passes of a model over windows: the loss of a step, and the answers for snapshots that are to be scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from strobe.engine.asked import Asked, asked, asked_at
from strobe.engine.windows import Segment, Window
from strobe.models.base import Model
from strobe.ops.narrow import NARROW, is_narrow
from strobe.tasks.base import Examples, Problem
from strobe.tasks.readout import NodeReadout
from strobe.view import Carry, Cells, View

Answer = tuple[int, Tensor, Asked]


def answers_of(head: nn.Module, z: Tensor, examples: Examples) -> Tensor:
    """What the head says about the examples, from the embeddings of all cells."""
    narrow = is_narrow(z)
    with torch.autocast(z.device.type, NARROW, enabled=narrow):
        said: Tensor = head(z, *(examples.rows or ()))
    return said.float() if narrow else said


def ask(problem: Problem, window: Window, epoch: int) -> list[Asked | None]:
    """What training asks of each segment of a window."""
    return [asked(problem, segment, problem.split.train, epoch) for segment in window]


def count(questions: Iterable[Asked | None]) -> int:
    """How many examples they are."""
    return sum(0 if each is None else len(each) for each in questions)


def window_loss(
    model: nn.Module,
    head: nn.Module,
    problem: Problem,
    window: Window,
    carry: Carry | None,
    questions: list[Asked | None],
) -> tuple[Tensor, Carry | None]:
    """The summed loss of a window's examples on this rank, and the carry after it.

    A window of several segments computes each again in backward: what is kept of it is the state at its beginning.
    """
    total = torch.zeros((), device=window[0].cells.device)
    for segment, question in zip(window, questions, strict=True):

        def run(carry: Carry | None, cells: Cells = segment.cells, question: Asked | None = question) -> Any:
            cells.arrive(*([] if problem.changes_with_epoch else [question]))
            view = View(cells, carry)
            loss = view.closed(_loss(model, view, head, problem, question))
            return loss, _outliving(cells, view.carry)

        recompute = len(window) > 1 and torch.is_grad_enabled()
        carry = segment.start if segment.fresh else carry
        loss, carry = checkpoint(run, carry, use_reentrant=False) if recompute else run(carry)
        total = total + loss
    return total, carry


def _loss(model: nn.Module, view: View, head: nn.Module, problem: Problem, question: Asked | None) -> Tensor:
    """The loss of what is asked; 0 where nothing is, which still depends on everything that was exchanged."""
    with view.cells.arithmetic():
        if isinstance(model, Model) and view.cells.share is None and _asks_every_cell(head, question):
            assert question is not None
            said = model.answers(view, head.weight, head.bias)
            loss: Tensor = problem.loss(said.float() if is_narrow(said) else said, question.examples)
            return loss
        z: Tensor = model(view)
    if question is not None and question.around is not None:
        z = view.pull_from(question.around, z, kind="pairs")
    if question is None or not len(question):
        return z[:0].sum()
    return problem.loss(answers_of(head, z, question.examples), question.examples)


def _asks_every_cell(head: nn.Module, question: Asked | None) -> TypeGuard[NodeReadout]:
    """Whether all that is wanted of embeddings is an answer for each cell."""
    if question is None or not len(question) or question.around is not None:
        return False
    return question.examples.rows is None and isinstance(head, NodeReadout)


def embeddings(model: nn.Module, windows: Iterable[Window]) -> Iterator[tuple[int, Tensor, Segment]]:
    """(t, embeddings of its cells, its segment) of every snapshot, with the state carried from the first window on.

    Nothing of a window is kept when the next one is computed, if whoever asks keeps nothing. (torch's decorator for
    generators without gradients would keep what was given last.)
    """
    carry: Carry | None = None
    for window in windows:
        for segment in window:
            segment.cells.arrive()
            view = View(segment.cells, None if segment.fresh else carry)
            with torch.no_grad(), segment.cells.arithmetic():
                z = list(view.split(model(view)))
            carry = _outliving(segment.cells, view.carry)
            asked = segment.times if segment.asked is None else segment.asked
            for t in segment.times:
                rows = z.pop(0)
                if t in asked:
                    yield t, rows, segment
            del view, rows


@torch.no_grad()
def answers(
    model: nn.Module, head: nn.Module, problem: Problem, windows: Iterable[Window], part: range
) -> Iterator[Answer]:
    """(t, answers, what was asked) of every snapshot of a part; windows begin with the first snapshot of all."""
    for t, z, segment in embeddings(model, windows):
        question = asked_at(problem, segment, t) if t in part else None
        if question is not None and question.around is not None:
            z = View(segment.cells).pull_from(question.around, z, kind="pairs")
        if question is not None and len(question):
            yield t, answer(head, z, question.examples), question
        del z  # it is all of its window's memory


@torch.no_grad()
def answer(head: nn.Module, z: Tensor, examples: Examples) -> Tensor:
    """What the head says about examples of one snapshot, from its embeddings; on the CPU, where it is scored."""
    return answers_of(head, z, replace(examples, rows=_to(examples.rows, z.device))).cpu()


def detached(carry: Any) -> Any:
    """The same nest of lists, tuples and dictionaries with every tensor cut from its history."""
    return mapped(carry, Tensor.detach)


def _outliving(cells: Cells, carry: Carry) -> Carry:
    """A carry apart from memory of cells that will leave the device."""
    kept: Carry = carry if cells.streamed is None else mapped(carry, cells.streamed.outlives(cells))
    return kept


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
