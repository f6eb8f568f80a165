"""Training the same model with several plans, on ranks that are threads."""

from __future__ import annotations

from copy import deepcopy
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from strobe.comm import Comm, SingleRankComm
from strobe.engine.inputs.resolve import TrainRequest
from strobe.engine.job import Job
from strobe.engine.launch.processes import OutputConfig
from strobe.engine.progress import Progress
from strobe.engine.run import Run
from strobe.engine.train import train_on_rank
from strobe.graph import DynamicGraph
from strobe.models import make_model
from strobe.plan import Plan
from strobe.tasks import Task
from strobe.tasks.link_prediction import LinkProblem
from tests.support.ranks import as_threads
from tests.support.runs import small_task

OPTIONS: dict[str, dict[str, Any]] = {"gat-lstm": {"heads": 2}, "dysat": {"heads": 2, "span": 3}}
_MAKE = Job.make_model


class Trainer:
    """Trains copies of one model and one head, made once: random numbers are one stream for all threads."""

    def __init__(self, graph: DynamicGraph, model: str, task: str | Task) -> None:
        self.graph, self.task = graph, small_task(task) if isinstance(task, str) else task
        torch.manual_seed(0)
        columns = 2 if graph.features is None else graph.features.shape[0]
        self.model = make_model(model, columns, hidden=4, **OPTIONS.get(model, {}))
        self.head: nn.Module | None = None
        self._lock = Lock()

    def train(self, plan: Plan, num_ranks: int, **changes: Any) -> list[Run]:
        settings = {"epochs": 5, "threads": 1, "optimizer": "sgd", "lr": 0.1, "precision": "float64"} | changes
        given = TrainRequest(self.graph, lambda _: deepcopy(self.model), self.task, None, None, settings, None, plan)

        def work(comm: Comm) -> Run:
            return train_on_rank(given, OutputConfig(), Progress(), comm)

        return [work(SingleRankComm())] if num_ranks == 1 else as_threads(work, num_ranks)

    def same_head(self, monkeypatch: pytest.MonkeyPatch) -> None:
        make = _MAKE

        def made(job: Job) -> tuple[nn.Module, nn.Module]:
            model, head = make(job)
            with self._lock:
                if self.head is None:
                    self.head = deepcopy(head)
                    for parameter in self.head.parameters():  # a head that begins at 0 would teach the model nothing
                        nn.init.normal_(parameter, std=min(0.3, parameter.shape[-1] ** -0.5 / 2))
            head.load_state_dict(self.head.state_dict())
            return model, head

        monkeypatch.setattr(Job, "make_model", made)
        monkeypatch.setattr(
            LinkProblem, "starts_at_offset", False
        )  # this head does not, so runs end with trained weights


def assert_same(runs: list[Run], one: Run, *, scored: bool = True) -> None:
    for run in runs:
        losses, expected = ([line["loss"] for line in each.history] for each in (run, one))
        np.testing.assert_allclose(losses, expected, rtol=1e-9)
        for part in ("model", "head"):
            found, wanted = (dict(getattr(each, part).named_parameters()) for each in (run, one))
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
        if scored:
            assert run.validation == pytest.approx(one.validation, rel=1e-9, nan_ok=True)
            assert run.test == pytest.approx(one.test, rel=1e-9, nan_ok=True)
