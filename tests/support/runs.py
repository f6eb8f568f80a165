"""A small graph to train on, and what tests of runs look at."""

from __future__ import annotations

import random
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from strobe.batching.base import StepSource
from strobe.engine import Progress
from strobe.engine.job import Job
from strobe.engine.sources.context import EngineSources
from strobe.graph import DynamicGraph
from strobe.graph.synthetic import Social
from strobe.models.structure import GCN
from strobe.models.time import Recurrent
from strobe.tasks import Task, make_task
from strobe.view import View

Source = TypeVar("Source", bound=StepSource)


def source_of(job: Job, kind: type[Source]) -> Source:
    """The source of a job's steps, which must be of a ``kind``."""
    source = job.plan.batching.start(EngineSources(job))
    assert isinstance(source, kind)
    return source


@cache
def small_graph(seed: int = 0) -> DynamicGraph:
    """40 people over 10 snapshots who come and go: 6 snapshots to train on, 1 to validate, 2 to test, 1 without
    a target."""
    return Social(nodes=40, snapshots=10, edges=80, communities=4, labels=True, seed=seed).write()


@cache
def short_graph() -> DynamicGraph:
    """The same people over 7 snapshots: 4 to train on, 1 to validate, 1 to test, 1 without a target."""
    return Social(nodes=40, snapshots=7, edges=80, communities=4, labels=True).write()


def small_task(name: str) -> Task:
    """A task with few negatives: link prediction has 5 in training and 20 in evaluation, which cost much of a run."""
    return make_task(name, **{"negatives": 2, "eval_negatives": 3} if name == "link-prediction" else {})


def same_tensors(first: Any, second: Any) -> bool:
    """Whether two nests hold the same bits, wherever they are."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first.cpu(), second.cpu())
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same_tensors(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(same_tensors(a, b) for a, b in zip(first, second, strict=True))
    return bool(first == second)


class CtrlC(Progress):
    """Somebody who presses Ctrl-C in the middle of an epoch."""

    def __init__(self, epoch: int, step: int) -> None:
        self.at = (epoch, step)

    def step(self, epoch: int, step: int) -> None:
        if (epoch, step) == self.at:
            raise KeyboardInterrupt


class Noisy(nn.Module):
    """A model that draws random numbers in training, from torch, numpy and Python."""

    width = 8

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.convolution, self.recurrent = GCN(inputs, 8), Recurrent(nn.GRU(8, 8))

    def forward(self, view: View) -> torch.Tensor:
        x = torch.relu(self.convolution(view, view.x))
        if self.training:
            x = nn.functional.dropout(x, 0.3) * (1 + 0.1 * np.random.rand() + 0.1 * random.random())  # noqa: NPY002
        return view.over_time(self.recurrent, x)
