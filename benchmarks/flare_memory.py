"""How much memory does a process take that only trains? Told by the kernel, step by step, in a process of its own.

What it held before, with all libraries imported and the whole graph read, is taken off; so is what placing took: the
kernel forgets its peak when training begins. A run ends after a few full windows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.flare_runs import WIDE, WINDOW
from benchmarks.record import child, memory
from benchmarks.time_to_loss import EnoughError
from strobe.api import SERVICES
from strobe.comm import Comm, SingleRankComm
from strobe.engine import Progress
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.train import train_on_rank
from strobe.graph import DynamicGraph, open_graph
from strobe.graph.synthetic import Social
from strobe.ops.runtime.buffers import POOL
from strobe.ops.runtime.memory_trace import AllocationTracker
from strobe.plan import Plan
from strobe.tasks import Task

STEPS = WINDOW + 3


class Scales(Progress):
    """The peak of this process from when training begins until it has taken some steps, in bytes."""

    def __init__(self, steps: int) -> None:
        forget_peak()
        self.before = memory("VmRSS")
        self.peak = 0
        self._left = steps

    def begin(self, info: dict[str, Any]) -> None:
        forget_peak()

    def step(self, epoch: int, step: int) -> None:
        self.peak = memory("VmHWM")
        self._left -= 1
        if not self._left:
            raise EnoughError

    @property
    def added(self) -> int:
        """What training took beyond what was there."""
        return self.peak - self.before


class Tensors(Progress):
    """The most bytes that tensors of some steps have at a time."""

    def __init__(self, steps: int) -> None:
        self.counting = AllocationTracker()
        self._left = steps
        self._while = ExitStack()

    def begin(self, info: dict[str, Any]) -> None:
        self._while.enter_context(POOL.pause())
        self._while.enter_context(self.counting)

    def step(self, epoch: int, step: int) -> None:
        self._left -= 1
        if not self._left:
            self._while.close()
            raise EnoughError


def weighed(
    graph: str, task: Task, model: str, plan: Plan, comm: Comm | None = None, *, count: bool = True, **settings: Any
) -> dict[str, int]:
    """Bytes that training takes in this process: of the process, and of tensors."""
    wide = {"hidden": WIDE}
    how = {"epochs": 1, "evaluate_every": 2, "threads": 1, "patience": 0, **settings}
    mine = SingleRankComm() if comm is None else comm
    tiny = Social(nodes=200, snapshots=12, edges=400).write()
    warm_up = TrainRequest(tiny, model, task, wide, changes=how, plan=plan, services=SERVICES)
    train_on_rank(warm_up, OutputConfig(), Progress(), mine)  # imports everything
    opened = open_graph(graph)
    read_all(opened)
    given = TrainRequest(opened, model, task, wide, changes=how, plan=plan, services=SERVICES)
    scales, tensors = Scales(STEPS), Tensors(STEPS)
    for watch in (scales, tensors) if count else (scales,):
        with suppress(EnoughError):
            train_on_rank(given, OutputConfig(), watch, mine)
    return {"peak_bytes": scales.peak, "added_bytes": scales.added, "tensor_bytes": tensors.counting.peak_bytes}


def read_all(graph: DynamicGraph) -> None:
    """Brings all of a graph on disk into memory, so that no measured peak includes the first read."""
    for array in _arrays(graph):
        np.add.reduce(array, axis=None)


def _arrays(graph: DynamicGraph) -> Iterator[np.ndarray[Any, Any]]:
    for value in vars(graph.storage).values():
        if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
            yield value


def forget_peak() -> None:
    """Gives what is free back to the kernel, and has it forget how much this process ever held."""
    POOL.clear()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def side_by_side(module: str, calls: Sequence[Sequence[object]], at_once: int = 2) -> list[dict[str, Any]]:
    """Children, some at a time: what they measure does not depend on the time they take."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda arguments: child(module, *arguments), calls))
