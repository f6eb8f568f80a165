"""Timing of a forward and backward pass by stage: structure (along edges) and time (along sequences)."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import Tensor, nn

from strobe.exchange import TimeEncoder
from strobe.view import View, WindowData


class StageSeconds(NamedTuple):
    """Seconds of both stages of a pass."""

    structure: float
    time: float


class _Cut(NamedTuple):
    """A time stage, detached from the autograd graph of its pass; gradients cross the cuts explicitly."""

    before: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    output: Tensor
    after: Tensor


def clock(device: torch.device) -> float:
    """Synchronize the device and return the time in seconds. A single CPU thread is timed by CPU time, which excludes
    other processes on its core."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif torch.get_num_threads() == 1:
        return time.process_time()
    return time.perf_counter()


class _Clock:
    """Accumulates the seconds of each stage."""

    def __init__(self, device: torch.device) -> None:
        self.structure = self.time = 0.0
        self._device = device
        self._last = self._now()

    def add_structure(self) -> None:
        now = self._now()
        self.structure, self._last = self.structure + now - self._last, now

    def add_time(self) -> None:
        now = self._now()
        self.time, self._last = self.time + now - self._last, now

    def _now(self) -> float:
        return clock(self._device)


class _TimedView(View):
    """A view that cuts the autograd graph between stages."""

    def __init__(self, data: WindowData, clock: _Clock) -> None:
        super().__init__(data)
        self.clock = clock
        self.cuts: list[_Cut] = []

    def over_time(self, encoder: TimeEncoder, *x: Tensor) -> Tensor:
        self.clock.add_structure()
        inputs = tuple(_cut(each) for each in x)
        output = super().over_time(encoder, *inputs)
        self.cuts.append(_Cut(x, inputs, output, _cut(output)))
        self.clock.add_time()
        return self.cuts[-1].after


def time_pass(model: nn.Module, cells: WindowData, gradient: Tensor) -> StageSeconds:
    """Time a forward pass and the backward pass from ``gradient`` of the embeddings, [C, width].

    Runs exactly what training runs; the stages add up to the whole pass. A model that never calls ``over_time`` (its
    convolution reads states, or its weights evolve) counts as structure.
    """
    for parameter in model.parameters():
        parameter.grad = None
    clock = _Clock(cells.device)
    view = _TimedView(cells, clock)
    z = model(view)
    if view.cuts and z is view.cuts[-1].after:
        z.grad = gradient  # the pass ends with a time stage
    else:
        _backward([z], [gradient])
    clock.add_structure()
    for cut in reversed(view.cuts):
        _backward([cut.output], [cut.after.grad])
        clock.add_time()
        _backward(cut.before, [each.grad for each in cut.inputs])
        clock.add_structure()
    return StageSeconds(clock.structure, clock.time)


def time_unsplit_pass(model: nn.Module, cells: WindowData, gradient: Tensor) -> StageSeconds:
    """Time a pass without cuts, as structure: for models whose stages cannot be separated."""
    for parameter in model.parameters():
        parameter.grad = None
    clock = _Clock(cells.device)
    _backward([model(View(cells))], [gradient])
    clock.add_structure()
    return StageSeconds(clock.structure, 0.0)


def is_second_backward(error: RuntimeError) -> bool:
    """Whether autograd raised an error because stages share a part of the graph, which was freed."""
    return "a second time" in str(error)


def _cut(x: Tensor) -> Tensor:
    """Detach a tensor that has a history."""
    return x.detach().requires_grad_() if x.requires_grad else x


def _backward(tensors: list[Tensor] | tuple[Tensor, ...], gradients: list[Tensor | None]) -> None:
    """Run the backward pass from the tensors that have a gradient and a history."""
    reached = [(x, grad) for x, grad in zip(tensors, gradients, strict=True) if grad is not None and x.requires_grad]
    if reached:
        torch.autograd.backward([x for x, _ in reached], [grad for _, grad in reached])
