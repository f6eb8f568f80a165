"""How weights change by gradients."""

from __future__ import annotations

import torch
from torch import nn

from strobe.engine.job import Job


def make_optimiser(weights: list[nn.Parameter], job: Job) -> torch.optim.Optimizer:
    """The optimiser of a job, for these weights."""
    settings = job.settings
    if settings.optimiser == "sgd":
        return torch.optim.SGD(weights, lr=settings.lr, weight_decay=settings.weight_decay)
    # Fused, one call steps all weights. On a CPU it wakes all cores for that, which costs more than it saves: 0.1 ms
    # for a small model where nobody else needs a core, 100 ms where somebody does, against 0.5 ms without.
    fused = job.device.type == "cuda"
    return torch.optim.Adam(weights, lr=settings.lr, weight_decay=settings.weight_decay, fused=fused)
