"""Windows that slide, in which some targets are asked at a time, and of what they read a part is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from strobe.batching.base import Batch, Batching, windows_ending_with
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.options import several
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How batches of targets are drawn: windows of so many snapshots, each gone through so many times, so many
    examples at a time; of the arcs that reach a cell at most so many, by the sparse product that reads them, from the
    last to the first."""

    snapshots: int
    passes: int
    size: int
    fanouts: tuple[int, ...]

    def times(self, t: int, first: int = 0) -> range:
        """The window that ends with a snapshot."""
        return range(max(t + 1 - self.snapshots, first), t + 1)

    def by_hop(self, hops: int) -> list[int]:
        """A fan-out for each of so many sparse products; the last one given holds for all farther ones."""
        return [self.fanouts[min(hop, len(self.fanouts) - 1)] for hop in range(hops)]


@dataclass(frozen=True, kw_only=True)
class Sampled(Batching):
    """Some examples a step, with some of their neighbours in the last ``history`` snapshots, drawn anew each time.

    Every training snapshot ends a window of ``history``. ``size`` examples of it make a step: the nodes they ask are
    targets in all snapshots of the window, and of what they read a part is drawn in every step: of the arcs that reach
    a target ``fanouts[0]``, of those that reach targets and what those arcs come from ``fanouts[1]``, … (0: all).

    States begin anew in every window. ``passes``: how often a window is gone through before the next. Answers are
    judged in windows as long, with all that is read there.

    What is drawn stands for what is left out: on average a sum over neighbours is the whole one, but what a model makes
    of it, no longer linear, is not. With fan-outs of 0 and as many examples as there are, a step is that of the whole
    window. For models that convolve before they go along sequences; of others' cells those drawn have no past.
    """

    name: ClassVar[str] = "sampled"
    exact: ClassVar[bool] = False
    history: int = 4
    size: int = 1024
    fanouts: int | Sequence[int] = (5, 10)
    passes: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        fanouts = several(self.fanouts)
        if not fanouts or any(isinstance(f, bool) or not isinstance(f, int) or f < 0 for f in fanouts):
            raise OptionError(f"fan-outs are one or several whole numbers, 0 for all, not {self.fanouts!r}")
        object.__setattr__(self, "fanouts", fanouts if len(fanouts) > 1 else fanouts[0])
        for name in ("history", "size", "passes"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} of sampled batches must be at least 1, not {getattr(self, name)}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("drawn cells",)

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need("inputs on demand", "a rank computes whatever was drawn for its targets", "exchange structure fetch"),
            Need("gathered sequences", "a target's rows meet where its newest cell is", "exchange time shuffle"),
        )

    @property
    def sampling(self) -> Sampling:
        return Sampling(snapshots=self.history, passes=self.passes, size=self.size, fanouts=several(self.fanouts))

    def evaluation_batches(self, times: range) -> list[Batch]:
        return windows_ending_with(times, self.history)

    def cut(self, size: int) -> Batching:
        return replace(self, history=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[Batch]:
        """Those of whole windows: their targets are drawn while training goes on."""
        del graph, hops, seed
        return windows_ending_with(times, self.history, times.start)
