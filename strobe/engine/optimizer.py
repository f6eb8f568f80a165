"""How weights change by gradients, and how a checkpoint's optimizer state is restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from strobe.errors import FormatError

if TYPE_CHECKING:
    from strobe.engine.job import Job

_ADAM = {"step", "exp_avg", "exp_avg_sq"}
"""Adam's state per weight after its first step."""


def make_optimizer(weights: list[nn.Parameter], job: Job) -> torch.optim.Optimizer:
    """The optimiser of a job, for these weights."""
    settings = job.settings
    if settings.optimizer == "sgd":
        return torch.optim.SGD(weights, lr=settings.lr, weight_decay=settings.weight_decay)
    # Fused, one call steps all weights. On a CPU it wakes all cores for that, which costs more than it saves: 0.1 ms
    # for a small model where no other process needs a core, 100 ms where one does, against 0.5 ms without.
    fused = job.device.type == "cuda"
    return torch.optim.Adam(weights, lr=settings.lr, weight_decay=settings.weight_decay, fused=fused)


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load a saved ``state_dict``: the moments of every weight. Options such as ``lr`` stay as the settings say.

    Raises:
        FormatError: the state is that of other weights or of another optimizer.
    """
    weights = optimizer.param_groups[0]["params"]
    moments_of = state["state"]
    for k, weight in enumerate(weights):
        kept = moments_of.get(k, {})
        shapes = {name: value.shape if isinstance(value, Tensor) else None for name, value in kept.items()}
        moments = _ADAM if isinstance(optimizer, torch.optim.Adam) else set()
        wanted = {name: torch.Size() if name == "step" else weight.shape for name in moments}
        if shapes and shapes != wanted:
            raise FormatError(f"the optimizer state of weight {k} is not of the shape {list(weight.shape)}")
    if not moments_of.keys() <= set(range(len(weights))):
        raise FormatError(f"the optimizer state is not of {len(weights)} weights")
    optimizer.load_state_dict({"state": dict(moments_of), "param_groups": optimizer.state_dict()["param_groups"]})
