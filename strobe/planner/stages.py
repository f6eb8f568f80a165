"""One pass forward and backward, timed by stage: what ran along edges, and what ran along sequences."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import Tensor, nn

from strobe.exchange import TimeEncoder
from strobe.view import Cells, View


class Seconds(NamedTuple):
    """How long both stages of a pass took."""

    structure: float
    time: float


class _Cut(NamedTuple):
    """A time stage, cut out of the history of its pass: gradients are carried over the cuts by hand."""

    before: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    output: Tensor
    after: Tensor


def clock(device: torch.device) -> float:
    """Seconds, once the device has done what it was told. One thread never waits, so its own time is counted: what
    others do on its core is not its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif torch.get_num_threads() == 1:
        return time.process_time()
    return time.perf_counter()


class _Clock:
    """Adds up what each stage takes."""

    def __init__(self, device: torch.device) -> None:
        self.structure = self.time = 0.0
        self._device = device
        self._last = self._now()

    def was_structure(self) -> None:
        now = self._now()
        self.structure, self._last = self.structure + now - self._last, now

    def was_time(self) -> None:
        now = self._now()
        self.time, self._last = self.time + now - self._last, now

    def _now(self) -> float:
        return clock(self._device)


class _Timed(View):
    """A view that cuts a pass wherever it changes from one stage to the other."""

    def __init__(self, cells: Cells, clock: _Clock) -> None:
        super().__init__(cells)
        self.clock = clock
        self.cuts: list[_Cut] = []

    def over_time(self, encoder: TimeEncoder, *x: Tensor) -> Tensor:
        self.clock.was_structure()
        inputs = tuple(_cut(each) for each in x)
        output = super().over_time(encoder, *inputs)
        self.cuts.append(_Cut(x, inputs, output, _cut(output)))
        self.clock.was_time()
        return self.cuts[-1].after


def timed_pass(model: nn.Module, cells: Cells, gradient: Tensor) -> Seconds:
    """Embeddings of all cells and the way back from a gradient of them, [C, width].

    Nothing runs that training would not run, and nothing twice: both stages together are the whole pass. A model
    that never calls ``over_time`` (its convolution reads states, or its weights change in time) is all structure.
    """
    for parameter in model.parameters():
        parameter.grad = None
    clock = _Clock(cells.device)
    view = _Timed(cells, clock)
    z = model(view)
    if view.cuts and z is view.cuts[-1].after:
        z.grad = gradient  # the pass ends with a time stage
    else:
        _back([z], [gradient])
    clock.was_structure()
    for cut in reversed(view.cuts):
        _back([cut.output], [cut.after.grad])
        clock.was_time()
        _back(cut.before, [each.grad for each in cut.inputs])
        clock.was_structure()
    return Seconds(clock.structure, clock.time)


def whole_pass(model: nn.Module, cells: Cells, gradient: Tensor) -> Seconds:
    """The same pass without cuts, all of it called structure: for models that will not be cut."""
    for parameter in model.parameters():
        parameter.grad = None
    clock = _Clock(cells.device)
    _back([model(View(cells))], [gradient])
    clock.was_structure()
    return Seconds(clock.structure, 0.0)


def _cut(x: Tensor) -> Tensor:
    """The same numbers without history; what has none is left as it is."""
    return x.detach().requires_grad_() if x.requires_grad else x


def _back(of: list[Tensor] | tuple[Tensor, ...], gradients: list[Tensor | None]) -> None:
    """From some tensors on, as far as a gradient has reached them and they have a history."""
    reached = [(x, grad) for x, grad in zip(of, gradients, strict=True) if grad is not None and x.requires_grad]
    if reached:
        torch.autograd.backward([x for x, _ in reached], [grad for _, grad in reached])
