"""Neighbor sampling in sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from strobe.batching.base import Batching, BatchSpec, SourceContext, StepSource, build_sliding_windows
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.options import as_tuple
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Sampled(Batching):
    """``size`` examples per step with sampled neighbors in the last ``history`` snapshots.

    Every training snapshot ends a window of ``history`` snapshots. A step has ``size`` of its examples: their nodes are
    seed nodes in all snapshots of the window, and every step samples at most ``fanouts[k]`` incoming arcs per cell at
    hop k (0: all). Each window starts from the initial state; ``passes`` is the number of passes over a window before
    the next. Evaluation uses windows of the same length without sampling.

    Sampled sums over neighbors are unbiased; what a nonlinear model computes from them is not. With fan-outs of 0 and
    ``size`` at least the number of examples, a step covers the whole window. For models whose structure stage comes
    before the time stage: sampled neighbors have no history.
    """

    name: ClassVar[str] = "sampled"
    exact: ClassVar[bool] = False
    gives: ClassVar[tuple[Fact, ...]] = ("sampled cells", "streaming batches")
    needs: ClassVar[tuple[Need, ...]] = (
        Need("fetched inputs", "a rank computes the cells sampled for its seed nodes", "exchange structure fetch"),
        Need("gathered sequences", "rows of a seed node meet where its newest cell is", "exchange time shuffle"),
    )
    caches_windows: ClassVar[bool] = False
    not_simulated: ClassVar[str | None] = "its cells are sampled while it trains: only whole snapshots are timed"
    history: int = 4
    size: int = 1024
    fanouts: int | Sequence[int] = (5, 10)
    passes: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        fanouts = as_tuple(self.fanouts)
        if not fanouts or any(isinstance(f, bool) or not isinstance(f, int) or f < 0 for f in fanouts):
            raise OptionError(f"fanouts must be one or several whole numbers, 0 for all, not {self.fanouts!r}")
        object.__setattr__(self, "fanouts", fanouts if len(fanouts) > 1 else fanouts[0])
        for name in ("history", "size", "passes"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} of sampled batches must be at least 1, not {getattr(self, name)}")

    def times(self, t: int, first: int = 0) -> range:
        """The window that ends with snapshot t, without snapshots before ``first``."""
        return range(max(t + 1 - self.history, first), t + 1)

    def fanouts_by_hop(self, hops: int) -> list[int]:
        """A fan-out for each hop; hops beyond the last fan-out use the last."""
        fanouts = as_tuple(self.fanouts)
        return [fanouts[min(hop, len(fanouts) - 1)] for hop in range(hops)]

    def start(self, context: SourceContext) -> StepSource:
        return context.neighbor_sampling(self)

    def evaluation_batches(self, times: range) -> list[BatchSpec]:
        return build_sliding_windows(times, self.history)

    def with_window(self, size: int) -> Batching:
        return replace(self, history=size)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[BatchSpec]:
        """Batches of whole windows; seed nodes are sampled during training."""
        del graph, hops, seed
        return build_sliding_windows(times, self.history, times.start)
