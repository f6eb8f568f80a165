"""Sliding windows that are thinner in the past."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from strobe.batching.base import Batch, Batching
from strobe.batching.decay import Decay, Tune
from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.strategy import Fact, Need

Degrees = Literal["kept", "whole"]
"""By which degrees weights of arcs are normalised in snapshots of which a part is kept."""


@dataclass(frozen=True, kw_only=True)
class Trapezoid(Batching):
    """A step per snapshot: it asks about that one and computes ``full`` snapshots up to it whole, and of ``decayed``
    more before them ever fewer chunks of nodes, down to a share ``keep`` of them. (3.2 of Huang et al. 2026.)

    What an older snapshot keeps is kept in all newer ones, so a node's sequence never breaks; which chunks stay is
    drawn in every epoch. A node goes on from the state it had there one step before, whose gradient is cut. Arcs from
    cells that are left out add nothing; with ``degrees`` kept the others weigh more for it, as if degrees were those of
    what is kept, with whole as in the whole snapshot. Aggregates of inputs, which no weight comes before, are always
    those of the whole snapshot.

    ``tune``: every so many epochs (0: never) neighbouring settings are tried: ``full`` one more or less in a window
    as long as before, ``keep`` a tenth more and less. Each trains the epoch from the same weights, and the one that
    validation likes best goes on, until none is better than the one at hand. (3.5.) Such an epoch costs up to five, and
    memory for weights, optimiser and inherited states twice more. ``most``: the largest share of a window that keeps
    everything which tuning may reach.

    With ``keep`` 1 and as many snapshots as there are, every step has the whole history.
    """

    name: ClassVar[str] = "trapezoid"
    exact: ClassVar[bool] = False
    full: int = 2
    decayed: int = 6
    keep: float = 0.1
    degrees: Degrees = "kept"
    tune: int = 0
    most: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.full < 1:
            raise OptionError(f"at least 1 snapshot is computed whole, not {self.full}")
        if self.decayed < 0:
            raise OptionError(f"the number of decayed snapshots must be 0 or more, not {self.decayed}")
        if not 0 < self.keep <= 1:
            raise OptionError(f"what is kept of the oldest snapshot is a share above 0 and up to 1, not {self.keep}")
        if self.tune < 0:
            raise OptionError(f"settings are tried every 1 epoch or more, or never with 0, not every {self.tune}")
        if not 0 < self.most <= 1:
            raise OptionError(f"the most that tuning may reach is a share above 0 and up to 1, not {self.most}")
        if self.most < 1 and not self.tune:
            raise OptionError(f"most, {self.most:g}, limits tuning, and nothing is tuned: say tune=5, or leave it out")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("sliding windows",)

    @property
    def needs(self) -> tuple[Need, ...]:
        found = (
            Need("whole sequences", "a rank keeps the states of its nodes", "placement metis or hash"),
            Need("fresh rows", "windows are new in every step", "exchange structure halo, or batching windows"),
        )
        if self.decay.whole and not self.tune:
            return found
        why = "older snapshots are left out chunk by chunk"
        return (
            *found,
            Need("node chunks", why, "placement metis:chunks=64, or batching trapezoid:keep=1 without tune"),
        )

    @property
    def decay(self) -> Decay:
        return Decay(self.full, self.decayed, self.keep, evened=self.degrees == "kept")

    @property
    def tuning(self) -> Tune | None:
        return Tune(self.tune, self.most) if self.tune else None

    @property
    def window(self) -> int:
        return self.full

    def cut(self, size: int) -> Batching:
        full = min(self.full, size)
        return replace(self, full=full, decayed=size - full)

    def batches(self, graph: DynamicGraph, times: range, *, hops: int, seed: int = 0) -> list[Batch]:
        del graph, hops, seed
        return [Batch(self.decay.times(t, times.start), range(t, t + 1), carries=t > times.start) for t in times]
