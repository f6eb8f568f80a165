"""How weights change by gradients, and how a checkpoint's optimizer state is restored.

On a CPU the optimizers are those of this file. Making one of ``torch.optim`` loads torch's compiler, which no run uses:
1.6 seconds and 140 MiB in every process that trains. Weights and state are the same to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from strobe.errors import FormatError
from strobe.sync.base import Optimizer

if TYPE_CHECKING:
    from strobe.engine.job import Job

_ADAM = {"step", "exp_avg", "exp_avg_sq"}
"""Adam's state per weight after its first step."""


def make_optimizer(weights: list[nn.Parameter], job: Job) -> Optimizer:
    """The optimiser of a job, for these weights."""
    settings = job.settings
    lr, decay = settings.lr, settings.weight_decay
    if job.device.type == "cpu":
        return (SGD if settings.optimizer == "sgd" else Adam)(weights, lr=lr, weight_decay=decay)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(weights, lr=lr, weight_decay=decay)
    return torch.optim.Adam(weights, lr=lr, weight_decay=decay, fused=job.device.type == "cuda")


class CPUOptimizer(ABC):
    """One group of weights and their state, with the names and the ``state_dict`` of ``torch.optim.Optimizer``.

    Each weight is updated by itself, without threads. An update of all weights in one call (``fused``) wakes all cores,
    which costs more than it saves: 0.1 ms for a small model where no other process needs a core, 100 ms where one does,
    against 0.5 ms without.

    Args:
        params: the weights.
        lr: the learning rate.
        weight_decay: the factor of weights that is added to their gradients.
        options: what else ``param_groups`` lists.
    """

    def __init__(self, params: Iterable[nn.Parameter], *, lr: float, weight_decay: float = 0.0, **options: Any) -> None:
        group = {"params": list(params), "lr": lr, "weight_decay": weight_decay, **options}
        self.param_groups: list[dict[str, Any]] = [group]
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)

    @torch.no_grad()
    def step(self) -> None:
        """Update all weights that have a gradient."""
        (group,) = self.param_groups
        for weight in group["params"]:
            if weight.grad is not None:
                grad = weight.grad
                if group["weight_decay"]:
                    grad = grad.add(weight, alpha=group["weight_decay"])
                self._update(weight, grad, group)

    @abstractmethod
    def _update(self, weight: nn.Parameter, grad: Tensor, group: Mapping[str, Any]) -> None:
        """Change a weight and its state, in place."""

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for weight in self.param_groups[0]["params"]:
            weight.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return state by the number of each weight, not copied, and the options."""
        (group,) = self.param_groups
        state = {k: self.state[weight] for k, weight in enumerate(group["params"]) if weight in self.state}
        return {"state": state, "param_groups": [{**group, "params": list(range(len(group["params"])))}]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue with the state and options of ``state_dict``, whose tensors are taken, not copied.

        Raises:
            ValueError: the state is that of another number of weights.
        """
        (group,), (loaded,) = self.param_groups, state_dict["param_groups"]
        weights = group["params"]
        if len(loaded["params"]) != len(weights):
            raise ValueError(f"the optimizer state is that of {len(loaded['params'])} weights, not of {len(weights)}")
        self.param_groups = [{**loaded, "params": weights}]
        self.state = defaultdict(dict)
        for k, moments in state_dict["state"].items():
            weight = weights[k]
            self.state[weight] = {
                name: value if name == "step" else value.to(device=weight.device, dtype=weight.dtype)
                for name, value in moments.items()
            }


class SGD(CPUOptimizer):
    """``torch.optim.SGD`` without momentum."""

    def _update(self, weight: nn.Parameter, grad: Tensor, group: Mapping[str, Any]) -> None:
        weight.add_(grad, alpha=-group["lr"])


class Adam(CPUOptimizer):
    """``torch.optim.Adam`` with its default options, neither fused nor ``foreach``."""

    def __init__(self, params: Iterable[nn.Parameter], *, lr: float = 1e-3, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr=lr, weight_decay=weight_decay, betas=(0.9, 0.999), eps=1e-8)

    def _update(self, weight: nn.Parameter, grad: Tensor, group: Mapping[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        beta1, beta2 = group["betas"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        state["step"] += 1
        step = state["step"].item()
        # In the order of torch.optim.adam: another one rounds differently.
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        denominator = (square.sqrt() / (1 - beta2**step) ** 0.5).add_(group["eps"])
        weight.addcdiv_(mean, denominator, value=-(group["lr"] / (1 - beta1**step)))


def load_optimizer_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load a saved ``state_dict``: the moments of every weight. Options such as ``lr`` stay as the settings say.

    Raises:
        FormatError: the state is that of other weights or of another optimizer.
    """
    weights = optimizer.param_groups[0]["params"]
    moments_of = state["state"]
    for k, weight in enumerate(weights):
        kept = moments_of.get(k, {})
        shapes = {name: value.shape if isinstance(value, Tensor) else None for name, value in kept.items()}
        moments = _ADAM if isinstance(optimizer, Adam | torch.optim.Adam) else set()
        wanted = {name: torch.Size() if name == "step" else weight.shape for name in moments}
        if shapes and shapes != wanted:
            raise FormatError(f"the optimizer state of weight {k} is not of the shape {list(weight.shape)}")
    if not moments_of.keys() <= set(range(len(weights))):
        raise FormatError(f"the optimizer state is not of {len(weights)} weights")
    optimizer.load_state_dict({"state": dict(moments_of), "param_groups": optimizer.state_dict()["param_groups"]})
