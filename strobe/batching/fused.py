"""All training cells of a step, the structure stage in pieces that fit into memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from strobe.batching.base import Batch, Batching, pieces
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.strategy import Need


@dataclass(frozen=True, kw_only=True)
class Fused(Batching):
    """A step over all training snapshots (or every ``size`` of them) whose convolutions run in pieces: chunks, fused
    as far as ``memory`` (MiB) allows.

    A piece loads each row that its chunks read once, and keeps nothing but its result: backward computes it again.
    Chunks that load the same rows are fused first. What a convolution takes is measured on a few chunks before it
    first runs and fitted for the rest, so a piece may take somewhat more. Exact, but for the order in which gradients
    of weights are added up.
    """

    name: ClassVar[str] = "fused"
    memory: float = 1024.0
    size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.memory >= 0:
            raise OptionError(f"pieces fit into at least 0 MiB (0: every chunk by itself), not {self.memory}")
        if self.size is not None and self.size < 1:
            raise OptionError(f"a window has at least 1 snapshot, not {self.size}")

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("chunks", "pieces are made of chunks", "placement chunks, or batching full"),)

    @property
    def window(self) -> int | None:
        return self.size

    @property
    def piece_bytes(self) -> float | None:
        return self.memory * 2**20

    def cut(self, size: int) -> Batching:
        return replace(self, size=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[Batch]:
        del graph, hops, seed
        return [Batch(window, window) for window in pieces(times, self.size)]
