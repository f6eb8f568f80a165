"""DyGNeX: balanced schedules of snapshot groups."""

from __future__ import annotations

from strobe.batching import Groups
from strobe.exchange import Exchange, NoExchange, NoTimeExchange
from strobe.placement import Replicated
from strobe.plan import Plan
from strobe.schedule import Balanced
from strobe.schedule.base import CostSource
from strobe.store import Full
from strobe.sync import AllReduce


def dygnex(
    size: int = 4, stride: int | None = 1, max_per_step: int = 2, gap: float = 0.02, times: CostSource = "measured"
) -> Plan:
    """Groups of snapshots, combined into steps in which ranks finish together (DyGNeX).

    Groups have ``size`` snapshots, the last ``stride`` of which are targets; at most ``max_per_step`` groups per rank
    and step. Up to 100 groups are scheduled to within ``gap`` of the optimum, more greedily. ``times``: cost source.
    See docs/presets/dygnex.md.

    | axis      | choice     | in the paper | faithful or changed                                                  |
    |-----------|------------|--------------|----------------------------------------------------------------------|
    | store     | full       |              | not specified                                                        |
    | placement | replicated | 3            | faithful: a rank reads the snapshots of its groups                   |
    | batching  | groups     | 2, 5.1       | faithful: of 4, independent; one target each is our reading          |
    | structure | none       | 2            | faithful: no communication                                           |
    | time      | none       | 2            | faithful: no communication                                           |
    | schedule  | balanced   | 4.2, 4.3     | changed: local search and branch and bound, greedy near-linear       |
    | sync      | all-reduce | 4.1          | faithful                                                             |
    """
    return Plan(
        store=Full(),
        placement=Replicated(),
        batching=Groups(size=size, stride=stride),
        exchange=Exchange(structure=NoExchange(), time=NoTimeExchange()),
        schedule=Balanced(max_per_step=max_per_step, gap=gap, times=times),
        sync=AllReduce(),
    )
