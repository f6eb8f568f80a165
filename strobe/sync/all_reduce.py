"""All-reduce of gradients in every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from strobe.comm import Comm, Work
from strobe.errors import OptionError
from strobe.sync.base import GradientSync, Optimizer, Sync

KIND = "gradients"


@dataclass(frozen=True, kw_only=True)
class AllReduce(Sync):
    """Sum gradients over all ranks in buckets of ``bucket_kb`` KiB.

    Where communication may be reordered, a bucket is sent while backward continues with the others.

    Cost: twice the bytes of the parameters per rank and step.
    """

    name: ClassVar[str] = "all-reduce"
    bucket_kb: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bucket_kb < 1:
            raise OptionError(f"a bucket has at least 1 KiB, not {self.bucket_kb}")

    def start(
        self,
        parameters: Sequence[nn.Parameter],
        comm: Comm,
        optimizer: Optimizer | None = None,
        free_running: bool = False,
    ) -> GradientSync:
        del optimizer  # its state stays equal on all ranks, like the gradients
        assert comm.num_ranks == 1 or not free_running, "all-reduce needs ranks in lockstep"
        return GradientSync() if comm.num_ranks == 1 else _AllReduceSync(parameters, comm, self.bucket_kb * 1024)


@dataclass(eq=False)
class _Bucket:
    parameters: list[nn.Parameter]
    pending: set[int] = field(default_factory=set)
    work: Work | None = None


class _AllReduceSync(GradientSync):
    def __init__(self, parameters: Sequence[nn.Parameter], comm: Comm, bucket_bytes: int) -> None:
        self._comm = comm
        self._buckets = _make_buckets([p for p in parameters if p.requires_grad], bucket_bytes)
        self._next, self._active = 0, False
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._make_hook(bucket, parameter))
            for bucket in self._buckets
            for parameter in bucket.parameters
        ]

    def begin_backward(self, last: bool = True) -> None:
        self._active = last
        if last:
            self._next = 0
            for bucket in self._buckets:
                bucket.pending = {id(parameter) for parameter in bucket.parameters}

    def end_backward(self) -> None:
        self._active = False
        while self._next < len(self._buckets):  # parameters without a gradient on this rank
            self._reduce_next()
        for bucket in self._buckets:
            assert bucket.work is not None
            total = bucket.work.wait()
            sizes = [parameter.numel() for parameter in bucket.parameters]
            for parameter, part in zip(bucket.parameters, total.split(sizes), strict=True):
                parameter.grad = part.view_as(parameter)
            bucket.work = None

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _make_hook(self, bucket: _Bucket, parameter: nn.Parameter):  # type: ignore[no-untyped-def]
        def ready(_: Tensor) -> None:
            if not self._active:
                return
            bucket.pending.discard(id(parameter))
            if not self._comm.allows_reordering:
                return  # end_backward reduces, at the same point on all ranks
            # All ranks must reduce buckets in the same order, whichever is ready first.
            while self._next < len(self._buckets) and not self._buckets[self._next].pending:
                self._reduce_next()

        return ready

    def _reduce_next(self) -> None:
        bucket = self._buckets[self._next]
        parts = [
            torch.zeros_like(parameter).flatten() if parameter.grad is None else parameter.grad.flatten()
            for parameter in bucket.parameters
        ]
        bucket.work = self._comm.all_reduce_async(torch.cat(parts), kind=KIND)
        self._next += 1


def _make_buckets(parameters: list[nn.Parameter], bucket_bytes: int) -> list[_Bucket]:
    """Buckets of one dtype each, from the last parameter to the first, about the order of backward."""
    buckets: list[_Bucket] = []
    size = 0
    for parameter in reversed(parameters):
        more = parameter.numel() * parameter.element_size()
        if not buckets or size + more > bucket_bytes or buckets[-1].parameters[0].dtype != parameter.dtype:
            buckets.append(_Bucket([]))
            size = 0
        buckets[-1].parameters.append(parameter)
        size += more
    return buckets
