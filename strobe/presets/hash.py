"""Vertices by lot."""

from __future__ import annotations

from strobe.batching import Full as FullBatch
from strobe.exchange import Exchange, Halo, Stay
from strobe.placement import Hash
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Full as FullStore
from strobe.sync import AllReduce


def hash() -> Plan:
    """Vertices on ranks by a hash of their number, blind to edges.

    A baseline of DistDy (Zhang and Wu), which partitions snapshots as they arrive; here all are there from the start.

    | axis      | choice     | in the paper | faithful or changed                                                  |
    |-----------|------------|--------------|----------------------------------------------------------------------|
    | store     | full       |              | nothing said                                                         |
    | placement | hash       | 5.1          | faithful                                                             |
    | batching  | full       | 5.1          | changed: the paper samples neighbours in windows of 4 snapshots      |
    | structure | halo       | 5.1          | changed: rows of every layer for all cut edges, not sampled features |
    | time      | none       |              | sequences are whole                                                  |
    | schedule  | in-order   |              | nothing said                                                         |
    | sync      | all-reduce | 5.1          | changed: the paper has a parameter server                            |
    """
    return Plan(
        store=FullStore(),
        placement=Hash(),
        batching=FullBatch(),
        exchange=Exchange(structure=Halo(), time=Stay()),
        schedule=InOrder(),
        sync=AllReduce(),
    )
