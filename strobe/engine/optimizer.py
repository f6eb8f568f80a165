"""How weights change by gradients, and how a checkpoint's optimizer state is restored.

Making an optimizer of ``torch.optim`` loads the compiler of torch, which no run uses: 1.6 seconds and 140 MiB in every
process that trains. Those of this file do not; on a CPU weights and state are the same to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors as flatten
from torch._utils import _unflatten_dense_tensors as unflatten

from strobe.errors import FormatError
from strobe.sync.base import Optimizer

if TYPE_CHECKING:
    from strobe.engine.job import Job

_ADAM = {"step", "exp_avg", "exp_avg_sq"}
"""Adam's state per weight after its first step."""

_MAX_FLAT_NUMEL = 1 << 16
"""Larger weights are updated one by one: their operations take longer than it takes to call them."""


def make_optimizer(weights: list[nn.Parameter], job: Job) -> Optimizer:
    """The optimiser of a job, for these weights."""
    settings = job.settings
    make = SGD if settings.optimizer == "sgd" else Adam
    return make(weights, lr=settings.lr, weight_decay=settings.weight_decay)


class OneGroupOptimizer(ABC):
    """One group of weights and their state, with the names and the ``state_dict`` of ``torch.optim.Optimizer``.

    Step counts are on the CPU: no step waits for a GPU. Operations on small tensors take one core. An update of all
    weights in one call (``fused``) wakes all cores, which costs more than it saves: 0.1 ms for a small model where no
    other process needs a core, 100 ms where one does.

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
        found = [weight for weight in group["params"] if weight.grad is not None]
        if found:
            self._update(found, [weight.grad for weight in found], group)

    @abstractmethod
    def _update(self, weights: list[nn.Parameter], grads: list[Tensor], group: Mapping[str, Any]) -> None:
        """Change weights and their state, in place."""

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


class SGD(OneGroupOptimizer):
    """``torch.optim.SGD`` without momentum."""

    def _update(self, weights: list[nn.Parameter], grads: list[Tensor], group: Mapping[str, Any]) -> None:
        for weight, grad in zip(weights, grads, strict=True):
            if group["weight_decay"]:
                grad = grad.add(weight, alpha=group["weight_decay"])
            weight.add_(grad, alpha=-group["lr"])


class Adam(OneGroupOptimizer):
    """``torch.optim.Adam`` with its default options, neither fused nor ``foreach``.

    The moments of small weights are views of two flat tensors, so that a step takes a few operations, not some for each
    weight: 0.1 ms instead of 0.5 for the 14 weights of T-GCN.
    """

    def __init__(self, params: Iterable[nn.Parameter], *, lr: float = 1e-3, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr=lr, weight_decay=weight_decay, betas=(0.9, 0.999), eps=1e-8)
        self._flat: _FlatState | None = None

    def _update(self, weights: list[nn.Parameter], grads: list[Tensor], group: Mapping[str, Any]) -> None:
        small = [weight for weight in weights if weight.numel() <= _MAX_FLAT_NUMEL]
        for weight in small:
            if not self.state[weight]:
                self.state[weight] |= _zero_moments(weight)
        if self._flat is None or not self._flat.is_of(small, self.state):
            self._flat = _FlatState.join(small, self.state)
        for weight, grad in zip(weights, grads, strict=True):
            if self._flat is None or weight.numel() > _MAX_FLAT_NUMEL:
                self._update_one(weight, grad, group)
        if self._flat is not None:
            self._update_flat(self._flat, [grad for grad in grads if grad.numel() <= _MAX_FLAT_NUMEL], group)

    def _update_one(self, weight: nn.Parameter, grad: Tensor, group: Mapping[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state |= _zero_moments(weight)
        if group["weight_decay"]:
            grad = grad.add(weight, alpha=group["weight_decay"])
        state["step"] += 1
        step = state["step"].item()
        weight.add_(_adam_change(grad, state["exp_avg"], state["exp_avg_sq"], step, group, torch.empty_like(weight)))

    def _update_flat(self, flat: _FlatState, grads: list[Tensor], group: Mapping[str, Any]) -> None:
        grad = flatten(grads)
        if group["weight_decay"]:
            grad.add_(flatten(flat.weights), alpha=group["weight_decay"])
        flat.steps.add_(1)
        _adam_change(grad, flat.exp_avg, flat.exp_avg_sq, flat.steps[0].item(), group, flat.change)
        torch._foreach_add_(flat.weights, flat.changes)  # type: ignore[arg-type]  # torch declares it for numbers


def _zero_moments(weight: Tensor) -> dict[str, Tensor]:
    return {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}


def _adam_change(
    grad: Tensor, mean: Tensor, square: Tensor, step: float, group: Mapping[str, Any], out: Tensor
) -> Tensor:
    """What Adam adds to a weight; updates the moments. In the order of torch.optim.adam: another rounds differently."""
    beta1, beta2 = group["betas"]
    mean.lerp_(grad, 1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    denominator = square.sqrt().div_((1 - beta2**step) ** 0.5).add_(group["eps"])
    return torch.mul(mean, -(group["lr"] / (1 - beta1**step)), out=out).div_(denominator)


@dataclass(frozen=True, eq=False)
class _FlatState:
    """The moments of some weights as views of flat tensors, all after the same number of steps.

    ``changes`` are views of ``change``, in the shapes of the weights.
    """

    weights: list[nn.Parameter]
    states: list[dict[str, Tensor]]
    steps: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    change: Tensor
    changes: list[Tensor]

    @classmethod
    def join(cls, weights: list[nn.Parameter], state: Mapping[Tensor, dict[str, Tensor]]) -> _FlatState | None:
        """Move the moments into flat tensors; None where weights have other dtypes or have taken other steps."""
        states = [state[weight] for weight in weights]
        if len({weight.dtype for weight in weights}) != 1 or len({each["step"].item() for each in states}) != 1:
            return None
        steps, means, squares = (flatten([each[name] for each in states]) for name in ("step", "exp_avg", "exp_avg_sq"))
        views = steps.unbind(), unflatten(means, weights), unflatten(squares, weights)
        for each, step, mean, square in zip(states, *views, strict=True):
            each |= {"step": step, "exp_avg": mean, "exp_avg_sq": square}
        change = torch.empty_like(means)
        return cls(weights, states, steps, means, squares, change, list(unflatten(change, weights)))

    def is_of(self, weights: list[nn.Parameter], state: Mapping[Tensor, dict[str, Tensor]]) -> bool:
        """Whether these are the weights, and theirs the state, all after the same number of steps."""
        steps = self.steps.tolist()  # an average with other ranks may have moved them apart
        return (
            len(weights) == len(self.weights)
            and all(map(is_, weights, self.weights))
            and all(state[weight] is each for weight, each in zip(weights, self.states, strict=True))
            and steps.count(steps[0]) == len(steps)
        )


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
