"""The third axis: which cells a step trains."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.ops.csr import IntArray
from strobe.strategy import Strategy

if TYPE_CHECKING:
    from strobe.batching.decay import Decay, Tune
    from strobe.batching.drawing import Drawing
    from strobe.batching.sampled import Sampling


@dataclass(frozen=True, eq=False)
class Batch:
    """The cells of a step: those of snapshots ``times``; answers are asked of ``asked``, a part of them.

    ``targets`` are the nodes that are asked (None: all); the batch then holds their cells and whatever those read in
    ``hops`` sparse products. ``carries``: states go on from the batch before, else they begin anew.
    """

    times: range
    asked: range
    targets: IntArray | None = None
    hops: int = 0
    carries: bool = True


@dataclass(frozen=True, kw_only=True)
class Batching(Strategy):
    """A way to cut the training cells into batches. An epoch asks every training cell once, or about as many as there
    are where batches are drawn."""

    wants_hops: ClassVar[bool] = False
    """Whether batches are of some nodes and what they read, so that it matters how far a model reads. The other end of
    a pair may then be in no batch."""

    @property
    def window(self) -> int | None:
        """Snapshots that are computed together where all cells are asked for; None: all."""
        return None

    @property
    def piece_bytes(self) -> float | None:
        """Memory for a piece of the structure stage, which is then computed chunk by chunk; None: all in one go."""
        return None

    @property
    def drawing(self) -> Drawing | None:
        """How ranks draw batches of their own while training goes on; None: they are known before it."""
        return None

    @property
    def decay(self) -> Decay | None:
        """How windows slide and what they keep of older snapshots; None: those of an epoch stay as they are."""
        return None

    @property
    def sampling(self) -> Sampling | None:
        """How targets of windows, and cells for them, are drawn while training goes on; None: they are not."""
        return None

    @property
    def tuning(self) -> Tune | None:
        """How the decay is tuned while training goes on; None: it stays as it is."""
        return None

    def cut(self, size: int) -> Batching:
        """The same with so many snapshots at a time."""
        raise OptionError(f"batching {self} is not cut into windows of {size}: leave --window out")

    def evaluation_batches(self, times: range) -> list[Batch] | None:
        """The batches that score snapshots ``times``, where training reads a bounded history: each starts from an
        initial state and reads as many snapshots as a training batch. None: states are carried from the first snapshot
        on."""
        del times
        return None

    @abstractmethod
    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[Batch]:
        """The batches of an epoch over snapshots ``times``, for a model with so many sparse products in a row."""


def windows_ending_with(times: range, size: int, first: int = 0) -> list[Batch]:
    """For each of ``times`` a batch of the last ``size`` snapshots up to it, none before ``first``, with an initial
    state; only the last snapshot is asked."""
    return [Batch(range(max(t + 1 - size, first), t + 1), range(t, t + 1), carries=False) for t in times]


def pieces(times: range, size: int | None) -> list[range]:
    """Stretches of at most ``size`` snapshots, in order."""
    step = size or max(len(times), 1)
    return [times[start : start + step] for start in range(0, len(times), step)]
