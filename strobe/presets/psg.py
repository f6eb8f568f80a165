"""Partitioning by snapshot groups."""

from __future__ import annotations

from strobe.batching import Groups
from strobe.exchange import Exchange, Nothing, Stay
from strobe.placement import Replicated
from strobe.plan import Plan
from strobe.schedule import InOrder
from strobe.store import Full
from strobe.sync import AllReduce


def psg(size: int = 4, stride: int | None = 1) -> Plan:
    """Groups of ``size`` snapshots, each computed whole by one rank (partitioning by snapshot groups).

    A baseline of DyGNeX. Groups begin ``stride`` snapshots apart and are asked about their last ``stride``.

    | axis      | choice     | in the paper | faithful or changed                                         |
    |-----------|------------|--------------|-------------------------------------------------------------|
    | store     | full       |              | nothing said                                                |
    | placement | replicated | B, Figure 9  | faithful: a rank reads the snapshots of its groups          |
    | batching  | groups     | 2, 5.1       | faithful: of 4, independent; one target each is our reading |
    | structure | none       | B, Figure 9  | faithful: nothing travels                                   |
    | time      | none       | B, Figure 9  | faithful: nothing travels                                   |
    | schedule  | in-order   | 5.1          | faithful: a group per rank and step                         |
    | sync      | all-reduce | 4.1          | faithful                                                    |
    """
    return Plan(
        store=Full(),
        placement=Replicated(),
        batching=Groups(size=size, stride=stride),
        exchange=Exchange(structure=Nothing(), time=Stay()),
        schedule=InOrder(),
        sync=AllReduce(),
    )
