"""DistDy: snapshots placed as they arrive and kept as differences; targets, and a part of what they read."""

from __future__ import annotations

from collections.abc import Sequence

from strobe.batching import Sampled
from strobe.exchange import Exchange, Fetch, Shuffle
from strobe.placement import Online
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Delta
from strobe.sync import AllReduce


def distdy(
    window: int = 4,
    size: int = 1024,
    fanouts: int | Sequence[int] = (5, 10),
    segments: int = 4,
    passes: int = 1,
    slack: float = 1.05,
) -> Plan:
    """Snapshots placed as they arrive, kept as differences, sampled window by window (DistDy, Zhang and Wu 2025).

    Every snapshot ends a window of ``window``; steps of ``size`` examples ask its nodes in all of them, and draw
    ``fanouts`` of what those read; a window is gone through ``passes`` times. Rows of features are cut into
    ``segments``, and a rank may keep ``slack`` times its even share of them: the more, the fewer arcs are cut. See
    docs/presets/distdy.md and docs/online.md.

    | axis      | choice     | in the paper | faithful or changed                                                      |
    |-----------|------------|--------------|--------------------------------------------------------------------------|
    | store     | delta      | 3.2          | faithful; a rank's rows as segments, who reads whom as edges in and out  |
    | placement | online     | 4            | changed: marginal prices, a limit that holds at every moment; see page   |
    | batching  | sampled    | 3.1          | faithful; what is drawn for a node does not depend on who draws it       |
    | structure | fetch      | 3.1          | changed: rows of the next step travel while this one computes            |
    | time      | shuffle    | 3.1          | changed: a node's older cells are computed where its newest one is       |
    | schedule  | in-order   | 3.1          | faithful                                                                 |
    | sync      | all-reduce |              | faithful                                                                 |
    """
    return Plan(
        store=Delta(window=window, segments=segments),
        placement=Online(window=window, segments=segments, slack=slack),
        batching=Sampled(history=window, size=size, fanouts=fanouts, passes=passes),
        exchange=Exchange(structure=Fetch(sequences=True), time=Shuffle()),
        schedule=InOrder(),
        sync=AllReduce(),
    )
