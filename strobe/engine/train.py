"""Training, top to bottom: bind the task, cut windows, for epoch, for window: forward, backward, step; save; score."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from strobe.engine.passes import answers, detached, window_loss
from strobe.engine.settings import Settings
from strobe.engine.windows import cut
from strobe.graph import DynamicGraph
from strobe.tasks.base import Metrics, Problem, Task
from strobe.view import Carry


@dataclass
class Outcome:
    """What training gives back."""

    model: nn.Module
    head: nn.Module
    problem: Problem
    history: list[dict[str, Any]] = field(default_factory=list)
    test: Metrics = field(default_factory=dict)
    baselines: dict[str, Metrics] = field(default_factory=dict)


def train(
    graph: DynamicGraph, make_model: Callable[[int], nn.Module], task: Task, settings: Settings | None = None
) -> Outcome:
    """A skeleton to be completed: no checkpoints, no record yet."""
    settings = settings or Settings()
    torch.manual_seed(settings.seed)
    problem = task.bind(graph, seed=settings.seed)
    device = torch.device("cpu")
    model = make_model(problem.graph.features.shape[0])  # type: ignore[union-attr]
    head = problem.head(model.width)  # type: ignore[arg-type]
    optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=settings.lr)
    windows = cut(problem, problem.split.train, settings.window, settings.recompute, device)
    scored = cut(problem, range(problem.split.validation.stop), settings.window, None, device)
    out = Outcome(model, head, problem)
    for epoch in range(settings.epochs):
        began = time.perf_counter()
        carry: Carry | None = None
        total = 0.0
        for window in windows:
            loss, count, carry = window_loss(model, head, problem, window, carry, epoch)
            (loss / max(count, 1)).backward()
            optimiser.step()
            optimiser.zero_grad()
            carry = detached(carry)
            total += float(loss.detach())
        said = list(answers(model, head, problem, scored, problem.split.validation))
        metrics = problem.metrics([a for _, a, _ in said], [e for _, _, e in said])
        out.history.append({"epoch": epoch, "loss": total, "s": time.perf_counter() - began, **metrics})
    every = cut(problem, range(problem.split.test.stop), settings.window, None, device)
    said = list(answers(model, head, problem, every, problem.split.test))
    out.test = problem.metrics([a for _, a, _ in said], [e for _, _, e in said])
    out.baselines = problem.baselines("test")
    return out
