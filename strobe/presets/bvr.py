"""Batches of vertices out of a reservoir."""

from __future__ import annotations

from strobe.batching import Vertices
from strobe.exchange import Cached, Exchange, Stay
from strobe.placement import LoadAware
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Full
from strobe.sync import AllReduce


def bvr(size: int = 10_000, hops: int | None = None, memory: float = 1024.0) -> Plan:
    """A step per ``size`` vertices of each rank with all their snapshots, made beside training and kept.

    A baseline of DynaHB, there called DBoV-Reservoir. ``hops``: see preset dynahb. ``memory`` MiB for kept batches.

    | axis      | choice     | in the paper | faithful or changed                                    |
    |-----------|------------|--------------|--------------------------------------------------------|
    | store     | full       |              | nothing said                                           |
    | placement | load-aware | 4.2          | nothing said; as in the system it is a baseline of     |
    | batching  | vertices   | 6.1, 5.2     | faithful: from a reservoir; there 5% of all vertices   |
    | structure | cached     | 4.1          | nothing said; as in the system it is a baseline of     |
    | time      | none       |              | sequences are whole                                    |
    | schedule  | in-order   |              | nothing said                                           |
    | sync      | all-reduce | 6.1          | nothing said                                           |
    """
    return Plan(
        store=Full(),
        placement=LoadAware(),
        batching=Vertices(size=size, reservoir=memory),
        exchange=Exchange(structure=Cached(hops=hops), time=Stay()),
        schedule=InOrder(),
        sync=AllReduce(),
    )
