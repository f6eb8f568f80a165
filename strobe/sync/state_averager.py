"""The mean of what ranks have: weights, and what an optimiser keeps with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from strobe.comm import Comm

KIND = "weights"
_DIGEST_BYTES = 8


@dataclass(frozen=True, order=True)
class OptimizerStateSpec:
    """A tensor that an optimiser keeps for a weight: enough to make one of zeros."""

    weight: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str


class StateAverager:
    """Takes means of the weights and of all numbers with a fraction that the optimiser keeps for them.

    An optimiser makes these when a weight first has a gradient, so ranks may have different ones. What nobody else
    knows of is told once; where a rank has none, it is zeros: nothing learnt yet. Afterwards all ranks have the same.
    """

    def __init__(self, weights: Sequence[nn.Parameter], optimizer: Optimizer | None, comm: Comm) -> None:
        self._weights, self._optimizer, self._comm = weights, optimizer, comm
        self._shared_specs: list[OptimizerStateSpec] = []

    def average(self) -> None:
        """All ranks must come; all leave with the same."""
        if self._comm.num_ranks == 1 or not self._weights:
            return
        tensors = [weight.data for weight in self._weights] + [self._state_tensor(kept) for kept in self._shared_specs]
        unknown = self._new_specs()
        if not average_tensors(self._comm, tensors, kind=KIND, flag=bool(unknown)):
            return
        new = sorted(set().union(*self._comm.all_gather_object(unknown, kind=KIND)))
        average_tensors(self._comm, [self._state_tensor(kept) for kept in new], kind=KIND)
        self._shared_specs += new

    def _new_specs(self) -> list[OptimizerStateSpec]:
        """What the optimiser keeps and others have not heard of."""
        if self._optimizer is None:
            return []
        known, found = {(kept.weight, kept.name) for kept in self._shared_specs}, []
        for number, weight in enumerate(self._weights):
            for name, value in self._optimizer.state.get(weight, {}).items():
                if (number, name) not in known and isinstance(value, Tensor) and value.is_floating_point():
                    dtype = str(value.dtype).removeprefix("torch.")
                    found.append(OptimizerStateSpec(number, name, tuple(value.shape), dtype, value.device.type))
        return found

    def _state_tensor(self, spec: OptimizerStateSpec) -> Tensor:
        """The optimiser's own tensor, which it goes on with; a new one where it has none yet."""
        weight = self._weights[spec.weight]
        assert self._optimizer is not None, "all ranks have an optimiser or none has"
        state = self._optimizer.state[weight]
        if not isinstance(state.get(spec.name), Tensor):
            device = weight.device if weight.device.type == spec.device else torch.device(spec.device)
            state[spec.name] = torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
        found: Tensor = state[spec.name]
        return found


def average_tensors(comm: Comm, tensors: Sequence[Tensor], *, kind: str, flag: bool = False) -> bool:
    """Tensors become the mean of all ranks', in place, the same bits on each; whether any rank has set its mark.

    One sum for each type of number. Ranks that have the same bits keep them: a sum of equal numbers, divided, can be
    off in the last digit (of three numbers in one of six cases). That they have the same shows in a digest, which
    travels along as zeros and ones: each bit must add up to none or to all.
    """
    marked = False
    for dtype in dict.fromkeys(each.dtype for each in tensors):
        mine = [each for each in tensors if each.dtype == dtype]
        device = mine[0].device
        flat = torch.cat([each.detach().to(device).flatten() for each in mine])
        told = torch.cat([flat, _digest(flat), flat.new_tensor([float(flag)])])
        total, bits, marks = comm.all_reduce(told, kind=kind).split([len(flat), 8 * _DIGEST_BYTES, 1])
        marked |= bool(marks.item())
        if not ((bits == 0) | (bits == comm.num_ranks)).all():
            means = (total / comm.num_ranks).split([each.numel() for each in mine])
            for each, mean in zip(mine, means, strict=True):
                each.copy_(mean.view(each.shape))
    return marked


def _digest(flat: Tensor) -> Tensor:
    """64 zeros and ones, others for other numbers."""
    digest = blake2b(flat.view(torch.uint8).cpu().numpy().tobytes(), digest_size=_DIGEST_BYTES).digest()
    return torch.from_numpy(np.unpackbits(np.frombuffer(digest, np.uint8))).to(flat)
