"""DyGNeX."""

from __future__ import annotations

from strobe.batching import Groups
from strobe.exchange import Exchange, Nothing, Stay
from strobe.placement import Replicated
from strobe.plan import Plan
from strobe.schedule import Balanced
from strobe.schedule.base import Known
from strobe.store import Full
from strobe.sync import AllReduce


def dygnex(size: int = 4, stride: int | None = 1, limit: int = 2, gap: float = 0.02, times: Known = "measured") -> Plan:
    """Groups of snapshots, those of different times in one step, so that ranks finish together (DyGNeX).

    Groups of ``size`` snapshots are asked about their last ``stride``; at most ``limit`` of them per rank and step.
    Up to 100 are scheduled to within ``gap`` of the best, more of them greedily. See docs/presets/dygnex.md.

    | axis      | choice     | in the paper | faithful or changed                                                 |
    |-----------|------------|--------------|---------------------------------------------------------------------|
    | store     | full       |              | nothing said                                                        |
    | placement | replicated | 3            | faithful: a rank reads the snapshots of its groups                  |
    | batching  | groups     | 2, 5.1       | faithful: of 4, independent; one target each is our reading         |
    | structure | none       | 2            | faithful: nothing travels                                           |
    | time      | none       | 2            | faithful: nothing travels                                           |
    | schedule  | balanced   | 4.2, 4.3     | changed: exchanges before the integer programme, greedy near-linear |
    | sync      | all-reduce | 4.1          | faithful                                                            |
    """
    return Plan(
        store=Full(),
        placement=Replicated(),
        batching=Groups(size=size, stride=stride),
        exchange=Exchange(structure=Nothing(), time=Stay()),
        schedule=Balanced(limit=limit, gap=gap, times=times),
        sync=AllReduce(),
    )
