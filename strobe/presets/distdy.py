"""DistDy: online placement, delta storage and neighbor sampling."""

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
    """Snapshots placed as they arrive, stored as differences, sampled by window (DistDy, Zhang and Wu 2025).

    Every snapshot ends a window of ``window`` snapshots, trained ``passes`` times in steps of ``size`` examples with
    neighbor sampling by ``fanouts``. Feature rows have ``segments``; a rank may store ``slack`` times its even share of
    rows: more slack, fewer cut arcs. See docs/presets/distdy.md and docs/online.md.

    | axis      | choice     | in the paper | faithful or changed                                                   |
    |-----------|------------|--------------|-----------------------------------------------------------------------|
    | store     | delta      | 3.2          | faithful; feature rows as segments, edges as insertions and deletions |
    | placement | online     | 4            | changed: marginal prices, a memory limit that always holds; see page  |
    | batching  | sampled    | 3.1          | faithful; the sample of a node does not depend on the rank            |
    | structure | fetch      | 3.1          | changed: rows of the next step are prefetched                         |
    | time      | shuffle    | 3.1          | changed: older cells are computed on the rank of the newest one       |
    | schedule  | in-order   | 3.1          | faithful                                                              |
    | sync      | all-reduce |              | faithful                                                              |
    """
    return Plan(
        store=Delta(window=window, segments=segments),
        placement=Online(window=window, segments=segments, slack=slack),
        batching=Sampled(history=window, size=size, fanouts=fanouts, passes=passes),
        exchange=Exchange(structure=Fetch(gather_sequences=True), time=Shuffle()),
        schedule=InOrder(),
        sync=AllReduce(),
    )
